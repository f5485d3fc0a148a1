"""Settings of the whole suite: no deadlines, since a loaded machine is not a defect, and no entries of the user's own zoo."""

import os

from hypothesis import settings

os.environ["MLSYSIM_ZOO"] = ""

settings.register_profile("suite", deadline=None)
settings.load_profile("suite")

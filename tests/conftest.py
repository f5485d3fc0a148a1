"""Settings of the whole suite: no deadlines, since a loaded machine is not a defect."""

from hypothesis import settings

settings.register_profile("suite", deadline=None)
settings.load_profile("suite")

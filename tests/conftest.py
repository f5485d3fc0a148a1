"""Settings of the whole suite: no deadlines, since a loaded machine is not a defect, no entries of the user's own zoo, interrupts heard."""

import os
import signal

from hypothesis import settings

os.environ["MLSYSIM_ZOO"] = ""
# A shell starts what runs in the background deaf to interrupts, and its children inherit that; tests of interrupts need ears.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("suite", deadline=None, max_examples=50)
settings.load_profile("suite")

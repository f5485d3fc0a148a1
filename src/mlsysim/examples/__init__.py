"""To start from: scripts (``python -m mlsysim.examples.full_stack_audit``), a notebook, scenarios and design spaces (``mlsysim scenarios``)."""

"""A training run over its weeks: what fails when, what that costs, and when the run ends.

clocks.py     when something happens: times of a distribution, failures of a whole fleet by cause and age
nodes.py      nodes in repair, spares that stand in for them, crews that repair, nodes that break again
progress.py   work, checkpoints of it, and what a failure takes back
run.py        the events of one run, in order
record.py     what the time of a run went on by cause, and many runs together
"""

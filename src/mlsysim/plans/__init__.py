"""A plan in, an answer out: what every face (terminal, files, reports, servers, browser) asks the engine.

plan.py         the typed plan: workload, hardware, parallelism, serving traffic, operations, constraints
files.py        plans as TOML, YAML or JSON, and their JSON Schema
resolve.py      names and paths to models, chips, fleets and grids
metrics.py      what the metrics of answers are, read from data/metrics.toml
answer.py       the answer: verdict, metrics, what binds, parts of the time, memory, scorecard, assumptions
training.py  serving.py  inference.py  mixed.py     one evaluation each
evaluate.py     ``evaluate(plan)``, with assertions and the cheapest change
explained.py    where a number comes from: equations, sources and assumptions behind it
planned.py      the least fleets for a goal, over least_fleet.py and least_service.py
"""

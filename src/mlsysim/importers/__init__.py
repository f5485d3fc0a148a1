"""Readers of what others write: model configurations, checkpoints' headers, operator graphs and traces.

Nothing that is read is executed or unpickled, and every reader bounds what it loads (``limits.py``).
"""

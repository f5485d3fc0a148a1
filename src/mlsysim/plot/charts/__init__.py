"""One chart, one module."""

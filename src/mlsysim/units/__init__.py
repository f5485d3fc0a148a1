"""Room 1, measure: the unit registry, quantity fields, array-agnostic operations and kernels."""

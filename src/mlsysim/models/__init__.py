"""Layer A, demand: what a model computes, without reference to any chip."""

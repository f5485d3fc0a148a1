"""Layer B, supply: what a chip offers, without reference to any model."""

"""What the four zoos share: provenance, data files, registries and checks."""

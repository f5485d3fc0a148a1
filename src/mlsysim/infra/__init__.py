"""Layer C, context: grids, facilities, racks and prices."""

"""Layer D, topology: nodes, fabrics and fleets."""

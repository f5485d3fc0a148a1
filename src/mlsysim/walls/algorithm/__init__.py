"""Algorithm (11 to 13): how much work there is."""

"""Room 3, the walls: one module a wall, in the folders of the paper's taxonomy."""

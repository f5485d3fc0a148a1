"""Analysis (21, 22): which wall binds, and what would move it."""

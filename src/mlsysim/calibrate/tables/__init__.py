"""Readers of measurement tables: one module a table, each turning a row into calls of the walls."""

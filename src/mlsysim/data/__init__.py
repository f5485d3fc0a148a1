"""Data that belongs to no single room."""

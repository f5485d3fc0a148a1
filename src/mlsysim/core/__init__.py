"""The import paths that the MLSys·im documents use. Re-exports only."""

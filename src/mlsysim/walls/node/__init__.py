"""Node (1 to 7): what one accelerator can do."""

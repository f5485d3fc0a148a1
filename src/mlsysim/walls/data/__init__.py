"""Data (8 to 10): what reaches the accelerator."""

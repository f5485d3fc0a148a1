"""Kernels that several walls share: precision, roofline and memory."""

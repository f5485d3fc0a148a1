"""Fits of measured silicon to efficiency profiles, and validation against published measurements."""

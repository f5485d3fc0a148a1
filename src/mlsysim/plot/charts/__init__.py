"""One kind of chart, one module."""

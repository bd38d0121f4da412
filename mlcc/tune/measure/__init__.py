"""Build candidates, run them apart from this process, check what they compute, and measure them."""

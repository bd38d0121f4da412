"""Programs of PyTorch: read from `.pt2` files and live ones, translated to relax."""

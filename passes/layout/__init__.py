"""Tensor layouts: transposed axes, and weights packed at compile time."""

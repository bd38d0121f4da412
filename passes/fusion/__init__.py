"""Fusion: the grouping of operations into kernels."""

"""Reduced precision: half precision in graphs, narrow floats in kernels, and quantized weights."""

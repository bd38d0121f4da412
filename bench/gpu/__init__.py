"""Kernels on an NVIDIA GPU beside cuBLAS, PyTorch and the measured copy bandwidth: `python -m bench gpu`."""

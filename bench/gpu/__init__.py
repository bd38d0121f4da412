"""Kernels on an NVIDIA GPU against cuBLAS, PyTorch and the measured copy bandwidth: `python -m bench gpu`."""

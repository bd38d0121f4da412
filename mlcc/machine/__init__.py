"""Targets and machine models: properties of CPUs and GPUs, and of the host."""

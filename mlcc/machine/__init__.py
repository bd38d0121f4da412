"""Targets, and the machines that they name: what is known of CPUs and GPUs, and of this computer."""

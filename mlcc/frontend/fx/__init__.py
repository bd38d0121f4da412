"""Graphs of `torch.fx`, given or captured by `torch.compile`, as relax modules."""

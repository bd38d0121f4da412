"""Half precision in graphs, and float32 inside the kernels that have it."""

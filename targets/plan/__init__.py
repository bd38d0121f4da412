"""Plans of graph functions for any target: steps over preallocated memory, and entries of the manifest."""

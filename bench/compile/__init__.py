"""Compile times and memory: from a text or a model to the first result in one process, against peers."""

"""TensorIR with blocks to plain loop code, one small step per module."""

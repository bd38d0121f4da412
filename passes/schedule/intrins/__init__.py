"""The tensor intrinsics that every schedule knows, by TVM's names."""

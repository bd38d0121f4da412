"""The predefined tensor intrinsics, by TVM's names."""

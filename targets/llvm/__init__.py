"""The llvm target: loop code and graph functions to LLVM IR text, and from there to objects."""

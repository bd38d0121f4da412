"""LLVM IR text to objects: compiling, finishing and linking them."""

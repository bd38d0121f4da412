"""Portable C99 source for CPUs: a module as one file, with the same C interface as the object of the target `llvm`."""

"""Reduction of failing programs: delta debugging on modules, pipelines and schedule scripts.

Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", 2002, with edits that know the IR, as
llvm-reduce and mlir-reduce have them: every candidate is a valid program.
"""

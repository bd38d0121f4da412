"""TensorIR with blocks to plain loop code, one small step per module.

Each step is a pass (`stage.LoweringStep`); the record of a target (`mlcc.backends`) has them in order. What comes out
for a CPU has no blocks, no thread bindings, one index per buffer access, explicit vectors in place of vectorized loops,
and allocations as statements. It is TensorIR still: it prints, reads back, and the interpreter runs it.
"""

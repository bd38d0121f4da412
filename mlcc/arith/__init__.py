"""Analysis of integer expressions: bounds, proofs, simplification, iterator maps, accessed regions."""

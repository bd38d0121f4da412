"""The reference that `mlcc explain` prints: a page for each operator, intrinsic, pass, primitive, option and code.

Facts come from the records that the compiler itself uses (signatures, options, codes). What records cannot say, the
meaning of an operator in a sentence and an example, stands in the Markdown files beside this module. `docs/operators`
and `docs/intrinsics.md` are written from the same pages by `scripts/reference.py`.
"""

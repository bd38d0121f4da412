"""Diagnostic codes: TensorIR."""

from mlcc.codes.verifier import TENSORIR

CODES: dict[str, tuple[str, str]] = {
    **TENSORIR,
    "E0300": (
        "misplaced expression",
        "The expression is well formed but has no meaning here, such as a lambda in a loop bound, a whole buffer where "
        "a number is needed, or a function that is not called.",
    ),
    "E0301": (
        "wrong dtype",
        "The operands do not have the dtypes that the operation needs, or no dtype holds both or the result. Convert "
        'explicitly: `T.Cast("float32", x)`.',
    ),
    "E0302": (
        "wrong kind of value",
        "A string, a constant integer, a buffer, a list or a name is needed here, but something else is written.",
    ),
    "E0303": (
        "wrong indices",
        "A buffer is read or written with exactly one integer index for each dimension. The last one may be a slice of "
        "constant length, which means a vector.",
    ),
    "E0304": (
        "wrong arguments",
        "The function does not take these arguments: too many, too few, an unknown name, or one given twice.",
    ),
    "E0305": (
        "misplaced statement",
        "The statement is not allowed here: statements that describe a block must stand directly in it, `break` "
        "in a loop, and calls that are statements on lines of their own.",
    ),
    "E0306": (
        "wrong type annotation",
        'A parameter of a PrimFunc must be `T.Buffer((4, 4), "float32")`, `T.handle`, or a scalar such as `T.int32`; '
        "it cannot have a default. The result must be a scalar, or None.",
    ),
    "E0312": (
        "no such dtype",
        "A dtype is one of int8 to int64, uint8 to uint64, float16, bfloat16, float32, float64, bool and handle, or a "
        "vector of one, such as `float32x4`.",
    ),
}

"""Diagnostic codes: relax operators (E0440 to E0479)."""

CODES: dict[str, tuple[str, str]] = {
    "E0440": (
        "unknown operator",
        "A call such as `R.nn.relu(x)` names an operator that does not exist. `docs/ops-tables.md` lists all.",
    ),
    "E0441": (
        "wrong arguments of a call",
        "A call has too many or too few arguments, one twice, or one by a name that the callee does not have.",
    ),
    "E0442": (
        "wrong value of an argument",
        "An argument or attribute of an operator has a value of the wrong kind: a string where axes are, a number "
        "where a dtype is, a list of the wrong length.",
    ),
    "E0443": (
        "wrong kind of operand",
        "An operator was given something else than it works on: a shape or a tuple where it needs a tensor, a tensor "
        "where it needs a scalar.",
    ),
    "E0444": (
        "wrong dtype of an operand",
        "The dtypes of an operator's tensors do not fit it, or each other: adding float32 to int32, the exponential of "
        "integers. Convert one of them with `R.astype(x, dtype)`; nothing is converted silently.",
    ),
    "E0445": (
        "shapes do not fit",
        "The shapes of an operator's tensors do not fit each other or its attributes: (2, 3) and (2, 4) do not "
        "broadcast, a matrix product needs equal inner extents, a reshape needs as many elements as there are.",
    ),
    "E0446": (
        "axis out of range",
        "An axis is not one of the tensor's, or is given twice. Axes count from 0; negative ones count from the back.",
    ),
    "E0447": (
        "tensor too large",
        "A tensor has at most 2**63 - 1 bytes, as in NumPy, whether it is ever in memory or not. Its sizes never wrap "
        "around: those that do not fit 64 bits are refused, at the latest when a function is called.",
    ),
    "E0448": (
        "negative extent",
        "An operator was given sizes by which an extent of its result is negative, as in `R.zeros(R.shape([-1, 3]), "
        '"float32")` or `R.nn.pad(x, [-3, -3])` of 4 elements. Extents are at least 0. Symbolic sizes may be bound to '
        "numbers that are too small.",
    ),
    "E0460": (
        "builder used out of order",
        "A method of `mlcc.relax.BlockBuilder` was called where it means nothing: `emit` outside of a function, "
        "`emit_output` outside of a dataflow block, a second result, a function without one.",
    ),
    "E0461": (
        "variable of a dataflow block used after it",
        "What `emit` binds inside `with bb.dataflow():` is visible there only. Make it an output with `emit_output`.",
    ),
    "E0462": (
        "a cast that cannot succeed",
        "`match_cast` states what no value of the given struct info can be, so the check at run time always fails.",
    ),
    "E0463": (
        "one name for two public functions",
        "Two functions of a module have the same `global_symbol`, by which callers find them.",
    ),
    "E0464": (
        "a nested computation in a finished binding",
        "`emit_normalized` takes bindings whose operands are variables, constants, or tuples of these. `emit` gives "
        "every nested computation a variable.",
    ),
}

"""Diagnostic codes: relax functions in text (E0400 to E0439)."""

CODES: dict[str, tuple[str, str]] = {
    "E0400": (
        "not a type",
        "An annotation of a relax function gives the type of a value: `R.Tensor(shape, dtype)`, "
        "`R.Shape(dims)`, `R.Prim(dtype)`, `R.Tuple(...)`, `R.Callable(params, result)`, `R.Object`, or `None` for "
        "nothing.",
    ),
    "E0401": (
        "a malformed type",
        'A type such as `R.Tensor((1, n), dtype="float32")` has too many arguments, one that it does not take, '
        "or a shape whose dimensions are not integer expressions of int64.",
    ),
    "E0403": (
        "not a scalar",
        "Shapes, conditions of `R.prim_value` and scalar arithmetic take numbers and symbolic variables, not "
        "tensors. The value of a scalar that a function returns is not known before run time: bind it to a "
        "symbolic variable, `n = T.int64()` and `R.match_cast(x, R.Prim(value=n))`.",
    ),
    "E0404": (
        "an expression has no value",
        "The operands of a scalar expression do not fit together, or it divides by zero.",
    ),
    "E0405": (
        "a form that is not allowed here",
        "`R.match_cast` is the whole right side of a binding, and `R.func_attr` and `R.output` are statements of "
        "their own; none of them can be part of an expression.",
    ),
    "E0406": (
        "not a value of a relax function",
        "relax functions compute with tensors, scalars, shapes, strings, tuples and functions. Types, the module "
        "itself, attributes of Python objects, lambdas and the like are not values.",
    ),
    "E0407": (
        "wrong attributes",
        "`R.func_attr` takes one dict whose keys are strings, and whose values are numbers, strings, bools, lists "
        "and dicts of them.",
    ),
    "E0408": (
        "wrong use of a tuple",
        "Tuples are indexed by one constant number within their length, and unpacked into as many names as they "
        "have items.",
    ),
    "E0410": (
        "a function does not return",
        "Every relax function must end with `return`; one that has nothing to return ends with `return R.tuple()`.",
    ),
    "E0411": (
        "a type contradicts the value",
        "What is annotated cannot be true: the value has another dtype, another number of dimensions, or other "
        "dimensions, whatever the values of the symbolic ones. Correct the annotation, or leave it out: types are "
        "inferred. (One that says more than is known is checked when the program runs.)",
    ),
    "E0413": (
        "a signature is wrong",
        "Every parameter of a relax function needs a type and has no default; a recursive function inside "
        "another function needs a return type; the options of `R.function` are `pure` and `private`.",
    ),
    "E0414": (
        "a statement that is not allowed in relax functions",
        "The body of a relax function is a sequence of bindings, `with R.dataflow():` blocks, `if`/`else` that "
        "bind one name, functions, calls for their effect, and one `return` at the end.",
    ),
    "E0415": (
        "wrong outputs of a dataflow block",
        "A dataflow block ends with `R.output(...)`, which lists the variables of the block that are visible after "
        "it. Dataflow blocks cannot be nested.",
    ),
    "E0416": (
        "not a symbolic variable",
        "`n = T.int64()` declares a symbolic variable, or names one of the signature again; the name is bound to "
        "something else here, or to a variable of another dtype.",
    ),
    "E0417": (
        "a malformed `if`",
        "An `if` of a relax function must have an `else`; both branches end by binding the same name, which is the "
        "value of the whole; its condition is a single bool; and it is not inside a dataflow block.",
    ),
    "E0418": (
        "a type is too large",
        "Tuples of tuples that are used again and again have types that double with every line, and so may dimensions "
        "that follow from each other. Unpack tuples, or give a dimension a new name by `R.match_cast`.",
    ),
}

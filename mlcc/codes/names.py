"""Diagnostic codes: names and scopes."""

CODES: dict[str, tuple[str, str]] = {
    "E0201": (
        "unknown name",
        "No binding of the name is visible here. Names are bound by parameters, loops, block axes, buffers, "
        'assignments, and at the module\'s level by functions and lines such as `n = TypeVar("n")`.',
    ),
    "E0202": (
        "name used outside its scope",
        "The name was bound in a loop, block or function that ended before this place; the note shows where.",
    ),
    "E0203": (
        "unknown function of the language",
        "The language has no such dotted name. `T.` has loops, blocks, buffers, dtypes and the intrinsics of "
        "TensorIR, `R.` the operators of graphs, `I.` module attributes; values have a few attributes and methods. "
        "`mlcc explain --list` lists the intrinsics, `mlcc ops` the operators.",
    ),
    "E0204": (
        "unknown function of the module",
        "`cls.f` or `Module.f` names a function that the module does not define.",
    ),
    "E0205": (
        "name bound twice",
        "In one body a name is bound once, and its value does not change. Use another name; a value that has to change "
        "must be an element of a buffer.",
    ),
    "E0206": (
        "unfinished function",
        "The body is `...`, a placeholder for statements that are still to be written; it cannot be compiled.",
    ),
    "E0207": (
        "no functions",
        "The text is empty, or has only comments and imports. A module without functions is a class with `pass`.",
    ),
    "E0208": (
        "misplaced in the module",
        "At the level of a file or module the text may have functions under `@T.prim_func` or `@R.function`, one class "
        "under `@I.ir_module`, imports, `I.module_attrs({...})`, and lines that declare symbolic variables.",
    ),
    "E0209": (
        "function defined twice",
        "Two functions of one module have the same name.",
    ),
    "E0210": (
        "a value of Python that a text cannot use",
        "A function or module under a decorator of `mlcc.lang` is read as text. Names that it does not bind are taken "
        "from the program around it: numbers, strings, dtypes, tuples, lists and dicts of these, and NumPy arrays as "
        "constants of relax functions. Nothing is executed: compute other values before, and give them a name.",
    ),
    "E0211": (
        "the source text of a decorated object is not available",
        "The decorators of `mlcc.lang` read the source text of the function or class, from its file or from the cell "
        "of a notebook. There is none for what `exec` runs from a string, unless `linecache` has it: "
        "`mlcc.parse` takes such a string.",
    ),
    "E0250": (
        "no such function in the module",
        "A call names a function that the text does not define. Functions of the module are called as `cls.f`, by "
        "their bare name, or by their name in quotes in `R.call_dps_packed`; packed functions of the environment are "
        "named in quotes only.",
    ),
}

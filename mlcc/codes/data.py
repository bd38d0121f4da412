"""Diagnostic codes: constants and data."""

CODES: dict[str, tuple[str, str]] = {
    "E0901": (
        "a data line cannot be read",
        "The data of constants can be at the end of a text, in comment lines `# mlcc.data KEY DTYPE SHAPE BASE64`, "
        "long ones with continuation lines `# mlcc.data KEY + BASE64`. This one is truncated, altered, or malformed. "
        "Print the module again, or take the data from FILE.npz.",
    ),
    "E0902": (
        "the data of a constant have another dtype or shape",
        "`R.data(KEY, R.Tensor(shape, dtype))` states the shape and dtype. The data under that key, in the data "
        "lines or in FILE.npz beside the text, have others. Constants are never converted.",
    ),
    "E0903": (
        "the data of a constant have other content",
        "A reference `R.data(KEY, ..., sha256=...)` names its content by hash. The data under that key have another "
        "hash: the text and the data do not belong together.",
    ),
    "E0905": (
        "not a constant",
        "`R.const` takes a number, a bool, or nested lists of equal length of values that fit the dtype.",
    ),
    "E0906": (
        "a reference leaves its folder",
        "The data of a text are looked up only in the text's own folder. Links out of the folder are not followed.",
    ),
    "E0907": (
        "metadata cannot be read",
        "The line `metadata = tvm.ir.load_json(...)` above a module holds its constants, as TVM writes them with "
        "`script(show_meta=True)`. This one is truncated, altered, or of another version of TVM.",
    ),
}

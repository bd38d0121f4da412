"""Diagnostic codes: constants and data."""

CODES: dict[str, tuple[str, str]] = {
    "E0901": (
        "malformed data line",
        "Data of constants travel at the end of a text as comment lines `# mlcc.data KEY DTYPE SHAPE BASE64`, long "
        "ones in further lines `# mlcc.data KEY + BASE64`. This one is cut off, altered, or not of that form. Print "
        "the module again, or take the data from FILE.npz.",
    ),
    "E0902": (
        "the data of a constant have another dtype or shape",
        "`R.data(KEY, R.Tensor(shape, dtype))` states dtype and shape of the data. Under that key, in the data lines "
        "or in FILE.npz beside the text, there is an array of another dtype or shape. Constants are never converted.",
    ),
    "E0903": (
        "the data of a constant have changed",
        "A reference `R.data(KEY, ..., sha256=...)` names its content by hash. The data under that key have "
        "another hash: the text and the data do not belong together.",
    ),
    "E0905": (
        "not a constant",
        "`R.const` takes a number, a bool, or nested lists of equal length of values that fit the dtype.",
    ),
    "E0906": (
        "a reference leads outside its folder",
        "Data of a text are looked for in the text's own folder and nowhere else. A link that leads out of it is not "
        "followed.",
    ),
    "E0907": (
        "metadata cannot be read",
        "The line `metadata = tvm.ir.load_json(...)` above a module holds its constants, as TVM writes them with "
        "`script(show_meta=True)`. This one is cut off, altered, or of another version of TVM.",
    ),
}

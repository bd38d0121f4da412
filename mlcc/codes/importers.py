"""E10: importing models."""

CODES = {
    "E1001": (
        "an operator cannot be imported",
        "The model has an operator that mlcc does not know how to say. The message counts its uses and names the "
        "modules they are in; all such operators of a model are listed at once, and nothing is written. A converter "
        "of your own can say it: a function in a Python file given with `--map`, or `custom_convert_map=` in Python.",
    ),
    "E1002": (
        "an operator cannot be imported as it is used",
        "mlcc knows the operator, but not with these arguments, dtypes or shapes; the message says what is in the way. "
        "Nothing is guessed: a model is imported whole or not at all.",
    ),
    "E1070": (
        "a .safetensors cannot hold an array",
        "A .safetensors has dtypes of its own: bool, integers and floats of 8 to 64 bits, bfloat16 and two 8-bit "
        "floats. Write other arrays to an .npz.",
    ),
    "E1071": (
        "a constant's data are in two files",
        "The data of a text's constants lie in FILE.npz or FILE.safetensors beside FILE, or in the files that lines "
        "`# mlcc.data-file NAME` name. Here two of them have the same key, and which one is meant is not guessed.",
    ),
}

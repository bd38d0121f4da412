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
    "E1072": (
        "weights do not fit the model",
        "The files named with --weights give values to the weights of a model by the names that the model has for "
        "them. Each has the dtype and shape of the weight; at least one name is the same; and every weight whose data"
        " the model itself does not have is in one of the files.",
    ),
    "E1073": (
        "weights without a model",
        "A .safetensors has the values of weights, and says nothing of what is computed with them. Import the model "
        "that they belong to (exported to .onnx or .pt2) with --weights, or write the model as text and bind them by "
        "`bind-params{params=FILE.safetensors}`.",
    ),
    "E1074": (
        "not a model that can be imported",
        "`mlcc import` reads .onnx, and .pt2 as `torch.export.save` writes it. Files of Python objects (.pt, .pth, "
        ".bin) are never read: they run code.",
    ),
    "E1075": (
        "a shape, range or size that does not fit the model",
        "`--shape NAME=EXTENT,...` states the shape of an input: a symbolic dimension takes the name or number that "
        "stands in its place; a fixed one is only confirmed. `--dim NAME:MIN..MAX` states the range of a symbol, "
        "`--size NAME=N` the value that --compare uses for it.",
    ),
    "E1076": (
        "a file of converters cannot be used",
        "`--map FILE.py` names a Python file that has a map `CONVERTERS` from names of operators to functions, which "
        "say them in relax. It runs with your rights.",
    ),
    "E1077": (
        "the model cannot be compared",
        "`--compare` runs the model by its own framework on generated inputs: PyTorch for .pt2; ONNX Runtime, or the "
        "reference evaluator of the onnx package, for .onnx. The framework is not installed, or it refused the model "
        "or every input that was tried. `--size NAME=N` says which sizes are good.",
    ),
}

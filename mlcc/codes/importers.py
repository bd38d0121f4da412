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
    "E1010": (
        "a .pt2 file cannot be read",
        "The file is no archive of `torch.export.save`, or it is damaged: cut off, not JSON, with weights that lie "
        "outside of the file, or nodes that take what nothing gives. Nothing in a file is believed, and nothing of it "
        "is run. Write it anew with torch.export.save(program, path).",
    ),
    "E1011": (
        "a .pt2 file is of an older PyTorch, or has pickled data",
        "mlcc reads `.pt2` files as PyTorch 2.9 and later write them, of JSON and raw weights. Older versions pickle "
        "weights, as PyTorch still does with objects and tensors of classes of their own; reading a pickle runs code, "
        "which an importer never does. Load the file with a newer PyTorch, if you trust it, and save it anew.",
    ),
    "E1012": (
        "a .pt2 file is larger than what is read",
        "The program in the file has more nodes, or more bytes of JSON, than any model has. Weights may be of any "
        "size.",
    ),
    "E1013": (
        "a name for an extent does not fit",
        "`dim_names` gives symbolic extents of inputs names: by input and axis, `{'x.0': 'batch'}`, or by PyTorch's "
        "own name for the symbol. The input or axis does not exist, the extent is a number, or two extents that may "
        "differ have one name.",
    ),
    "E1030": (
        "PyTorch does not run the graph",
        "A graph of `torch.fx` is run once with tensors that have shapes but no elements, to see which operators it "
        "takes. PyTorch raised an error: the shapes or dtypes in `input_info` do not suit the model, or what it does "
        "depends on elements.",
    ),
    "E1031": (
        "a wrong description of inputs",
        "`input_info` has an entry for each placeholder of the graph that has no default value, in their order: "
        "`((shape), dtype)`, a shape alone for float32, or a tensor. Extents are numbers, names of symbols, or "
        "expressions over them.",
    ),
    "E1032": (
        "a graph that is right for some sizes only",
        "The description of the inputs has symbols, and the model decides by their value: for other values it would "
        "run other operators. Give such an extent as a number, or as an expression for which the decision is always "
        "the same, such as `2*n` for a size that must be even.",
    ),
    "E1040": (
        "the package onnx is missing",
        "Files in ONNX's format are read with the package `onnx`, which mlcc needs for nothing else. "
        "`pip install 'mlcc[onnx]'` installs it.",
    ),
    "E1041": (
        "what was given is no ONNX model",
        "The file or the bytes are no protobuf of an ONNX model: cut off, damaged, or something else. Files of ONNX's "
        "text formats are not read; a model of more than 2 GiB keeps its weights in other files (external data).",
    ),
    "E1042": (
        "an ONNX model of a version that is not known",
        "Models of IR versions 3 to 14 and of opsets 7 to 28 are read. What later versions mean is not guessed; older "
        "models are brought to a later opset by `onnx.version_converter.convert_version`.",
    ),
    "E1043": (
        "an ONNX graph is not sound",
        "Every value of a graph is made once, by a node, an input or an initializer, and no value depends on itself. "
        "The message says what is missing, made twice or in a circle. `onnx.checker.check_model` looks at more.",
    ),
    "E1044": (
        "the external data of an ONNX model cannot be read",
        "Weights may lie in files beside the model. Such a file lies in the model's folder or below it: absolute "
        "paths, "
        "`..` and links that lead out are refused, and so is a place beyond the end of the file.",
    ),
    "E1045": (
        "an ONNX model is too large",
        "A model is imported up to 100,000 nodes, functions and loops unrolled, with graphs nested at most 64 deep.",
    ),
    "E1046": (
        "an input or output of an ONNX model cannot be one of a function",
        "Inputs are tensors of a known number of dimensions and a dtype that mlcc has. A shape that the model "
        "leaves out "
        "or leaves open is given by `shape_dict=` or `--shape NAME=n,3,224,224`; it must not contradict the model.",
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
    "E1085": (
        "a file of weights cannot be linked",
        "`mlcc import --link-weights` gives files of --weights that lie elsewhere a hard link in the folder of the "
        "text, by which the text refers to them. Hard links stay within one file system, and never replace another "
        "file without --force. Without the option such weights are copied.",
    ),
    "E1086": (
        "a model that cannot be imported in another dtype",
        "`--dtype float16` and `--dtype bfloat16` import a float32 model in 16 bits: inputs, results, weights and what "
        "is computed from them. Packed functions, and TensorIR functions that converters add, have their dtypes in "
        "their own code, which is not changed.",
    ),
}

"""E10: importing models."""

CODES = {
    "E1001": (
        "an operator cannot be imported",
        "mlcc has no converter for an operator of the model. The message counts its uses and names their modules; "
        "all such operators of a model are listed at once, and nothing is written. Supply a converter: a function in "
        "a Python file given with `--map`, or `custom_convert_map=` in Python.",
    ),
    "E1002": (
        "this use of an operator cannot be imported",
        "mlcc has a converter for the operator, but not for these arguments, dtypes or shapes; the message gives the "
        "reason. A model is imported completely or not at all.",
    ),
    "E1010": (
        "a .pt2 file cannot be read",
        "The file is not an archive of `torch.export.save`, or it is damaged: truncated, not JSON, with weights "
        "outside the file, or with nodes that use undefined values. Files are fully validated, and no code in them "
        "is run. Write the file again with torch.export.save(program, path).",
    ),
    "E1011": (
        "a .pt2 file is of an older PyTorch, or has pickled data",
        "mlcc reads `.pt2` files of PyTorch 2.9 and later, which contain JSON and raw weights. Older versions pickle "
        "the weights, and newer ones still pickle objects and tensors of custom classes. Reading a pickle runs code, "
        "which an importer never does. If you trust the file, load it with a newer PyTorch and save it again.",
    ),
    "E1012": (
        "a .pt2 file is too large",
        "The program in the file has more nodes, or more bytes of JSON, than mlcc reads. Weights may be of any size.",
    ),
    "E1013": (
        "an extent cannot have this name",
        "`dim_names` gives symbolic extents of inputs names: by input and axis, `{'x.0': 'batch'}`, or by PyTorch's "
        "own name for the symbol. The input or axis does not exist, the extent is a number, or two extents that may "
        "differ have one name.",
    ),
    "E1030": (
        "PyTorch cannot run the graph",
        "A graph of `torch.fx` is traced with fake tensors, which have shapes but no elements, to record its "
        "operators. PyTorch raised an error: the shapes or dtypes in `input_info` do not fit the model, or its "
        "control flow depends on elements.",
    ),
    "E1031": (
        "an invalid description of inputs",
        "`input_info` has an entry for each placeholder of the graph that has no default value, in their order: "
        "`((shape), dtype)`, a shape alone for float32, or a tensor. Extents are numbers, names of symbols, or "
        "expressions over them.",
    ),
    "E1032": (
        "a graph that is valid for some sizes only",
        "The description of the inputs has symbols, and the control flow of the model depends on their values. State "
        "such an extent as a number, or as an expression for which the branch is always the same, such as `2*n` for "
        "a size that must be even.",
    ),
    "E1040": (
        "the package onnx is missing",
        "Reading ONNX files needs the package `onnx`. Install it with `pip install 'mlcc[onnx]'`.",
    ),
    "E1041": (
        "not an ONNX model",
        "The file or the bytes are not a protobuf of an ONNX model, or are truncated or damaged. ONNX's text formats "
        "are not supported; a model of more than 2 GiB stores its weights in other files (external data).",
    ),
    "E1042": (
        "an ONNX model of an unsupported version",
        "Models of IR versions 3 to 14 and of opsets 7 to 28 are supported. Convert older models to a later opset "
        "with `onnx.version_converter.convert_version`.",
    ),
    "E1043": (
        "an ONNX graph is malformed",
        "Every value of a graph must be defined once, by a node, an input or an initializer, and no value may depend "
        "on itself. The message names the undefined or doubly defined value, or the graph with a cycle. "
        "`onnx.checker.check_model` checks more.",
    ),
    "E1044": (
        "the external data of an ONNX model cannot be read",
        "Weights may be stored in files in the model's folder or below it. Absolute paths, `..`, links to files "
        "outside, and offsets beyond the end of a file are errors.",
    ),
    "E1045": (
        "an ONNX model is too large",
        "A model may have up to 100,000 nodes, after functions are inlined and loops unrolled, and graphs nested up "
        "to 64 deep.",
    ),
    "E1046": (
        "an input or output of an ONNX model is not supported",
        "Inputs must be tensors of a known rank and a dtype that mlcc supports. If the model does not state a shape, "
        "or only a part of it, give it by `shape_dict=` or `--shape NAME=n,3,224,224`; it must not contradict the "
        "model.",
    ),
    "E1070": (
        "a .safetensors cannot hold an array",
        "A .safetensors file supports bool, integers and floats of 8 to 64 bits, bfloat16 and two 8-bit floats. "
        "Write other arrays to an .npz file.",
    ),
    "E1071": (
        "a constant's data are in two files",
        "The data of a text's constants are in FILE.npz or FILE.safetensors beside FILE, or in the files named by "
        "lines `# mlcc.data-file NAME`. Two of these files have the same key, so the reference is ambiguous.",
    ),
    "E1072": (
        "weights do not match the model",
        "The files given with --weights set the weights of a model by name. Each array must have the dtype and shape "
        "of its weight, at least one name must match, and every weight without data in the model must be in one of "
        "the files.",
    ),
    "E1073": (
        "weights without a model",
        "A .safetensors file has only the values of weights, not the model. Import the model (exported to .onnx or "
        ".pt2) with --weights, or write the model as text and bind them with `bind-params{params=FILE.safetensors}`.",
    ),
    "E1074": (
        "not an importable model",
        "`mlcc import` reads .onnx, and .pt2 as `torch.export.save` writes it. Pickled files (.pt, .pth, .bin) are "
        "never read, because reading them runs code.",
    ),
    "E1075": (
        "a shape, range or size does not match the model",
        "`--shape NAME=EXTENT,...` states the shape of an input: a symbolic dimension takes the given name or "
        "number, and a constant one must be equal. `--dim NAME:MIN..MAX` states the range of a symbol, and `--size "
        "NAME=N` its value for --compare.",
    ),
    "E1076": (
        "a file of converters cannot be used",
        "`--map FILE.py` names a Python file that defines a dict `CONVERTERS` from operator names to functions, "
        "which convert them to relax. It runs with your rights.",
    ),
    "E1077": (
        "the model cannot be compared",
        "`--compare` runs the model in its own framework on generated inputs, `mlcc run --compare-with` on those of "
        "the run: PyTorch for .pt2; ONNX Runtime, or the reference evaluator of the onnx package, for .onnx. The "
        "framework is not installed, the file is no such model, or the framework rejected it or every input. State "
        "valid sizes with `--size NAME=N`; of a text that was imported name the model, `--compare-with model.onnx`; "
        "any text can be compared with the interpreter, `--compare-with interp`.",
    ),
    "E1085": (
        "a file of weights cannot be linked",
        "`mlcc import --link-weights` creates hard links to files of --weights in the folder of the text, and the "
        "text refers to the links. Hard links cannot cross file systems, and never replace another file without "
        "--force. Without the option such weights are copied.",
    ),
    "E1086": (
        "a model cannot be converted to another dtype",
        "`--dtype float16` and `--dtype bfloat16` convert a float32 model to 16 bits: inputs, results, weights and "
        "values computed from them. The dtypes in the code of packed functions, and of TensorIR functions that "
        "converters add, cannot be converted.",
    ),
}

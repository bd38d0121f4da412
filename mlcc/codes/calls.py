"""Diagnostic codes: run time."""

from mlcc.codes.interpreter import CODES as INTERPRETER

CODES: dict[str, tuple[str, str]] = {
    **INTERPRETER,
    "E0801": (
        "no function of that name in the artifact",
        "Only public functions can be called; private ones are internal to the object. `mlcc inspect FILE` lists them.",
    ),
    "E0802": (
        "wrong number of arguments",
        "A function takes its parameters in order. A PrimFunc takes its outputs too, as arrays that it writes; they "
        "may be left out together, and are then made and returned. A relax function returns its results, or writes "
        "them to `out`.",
    ),
    "E0803": (
        "wrong kind of argument",
        "A tensor parameter takes a NumPy array or any object with `__dlpack__` whose memory the CPU can read; a "
        "scalar takes a number, a shape a tuple of integers, a tuple a tuple of as many values.",
    ),
    "E0804": (
        "wrong dtype",
        "Element types are never converted silently: use `array.astype(...)`. bfloat16 and 8-bit floats are passed "
        "as arrays of their bits (uint16, uint8), as ml_dtypes arrays, or by DLPack.",
    ),
    "E0805": ("wrong shape", "An argument has another number of dimensions, or another extent, than its parameter."),
    "E0806": (
        "symbolic dimensions disagree",
        "A symbol such as `n` stands for one number in a call: every dimension declared as `n` must have that extent.",
    ),
    "E0808": ("read-only output", "The function writes this argument, but the array may not be written."),
    "E0809": (
        "an output overlaps another argument, or itself",
        "Functions may read inputs after they have written parts of their outputs: the two must not share memory. Nor "
        "may elements of an output, as those of `numpy.broadcast_to` do.",
    ),
    "E0810": ("out of memory", "A result or the workspace for intermediates could not be allocated."),
    "E0811": (
        "packed function not registered",
        "The code calls a packed function by name that nobody registered. Register it by `mlcc.register_func(name, "
        "f)`, by --env FILE on the command line, or in C by `PREFIX_set_packed(name, f, context)`.",
    ),
    "E0812": (
        "a packed function failed",
        "A packed function of a C library returned an error, or a Python one returned something of another shape or "
        "dtype than the program declares. Exceptions of Python functions are raised again as they are.",
    ),
    "E0813": ("an assertion of the program failed", "A `T.assert` or `R.assert_op` of the program did not hold."),
    "E0814": (
        "sizes inside a function do not fit",
        "A value does not have the struct info that `R.match_cast` says it has, or sizes differ that an operator needs "
        "to be equal. The line is that of the text.",
    ),
    "E0815": (
        "packed function already registered",
        "A name can be registered once; `override=True` replaces the function.",
    ),
    "E0816": (
        "an environment cannot be loaded",
        "--env takes a Python file that calls `mlcc.register_func`, or a shared library that exports `int "
        "mlcc_register(const mlcc_registry *)`. The file is missing, or failed.",
    ),
    "E0817": ("value out of range", "A number does not fit the parameter's dtype, or is not allowed here."),
    "E0818": (
        "an index in the data lies outside",
        "A tensor of indices, or a number that a call was given, names an element that does not exist. The message "
        "says which operator found it, in which line of the text, the index, and how many elements there are. Nothing "
        "outside of the tensors was read or written; what the results hold is undefined. Indices below 0 count from "
        "the end where NumPy's and ONNX's do (docs/semantics.md says where). The target option `check-indices=false` "
        "leaves these checks out, for data that are known to be right.",
    ),
    "E0850": (
        "an artifact cannot be read",
        "The file does not exist or may not be read, or the value is no artifact of a kind that mlcc runs.",
    ),
    "E0851": (
        "not a sound artifact",
        "The file is no object or shared library made by mlcc, or it was cut off, damaged or changed afterwards.",
    ),
    "E0852": (
        "the manifest does not fit this mlcc",
        "Every artifact says in its manifest what it holds. This one is malformed or of another version. Compile it "
        "again.",
    ),
    "E0853": ("an artifact for another machine", "The object holds code of another architecture than this machine's."),
    "E0854": (
        "the machine lacks CPU features",
        "The object was compiled for a CPU with instructions that this one does not have. Compile it with -t "
        "'llvm{cpu=native}' on this machine, or with -t llvm for any machine of the architecture.",
    ),
    "E0855": (
        "an outside symbol is missing",
        "Objects may use libm and a few functions of libc. Other C symbols must be allowed by name (--allow-extern) "
        "and must be in the process, for instance in a library loaded with --env.",
    ),
    "E0856": ("the system refuses to load the artifact", "Mapping or protecting memory failed, or the dynamic linker."),
    "E0860": (
        "no CUDA device can be used",
        "A CUDA artifact needs an NVIDIA GPU with its driver, and one of the Python packages `cuda-bindings` "
        "(`pip install mlcc[cuda]`) or `pycuda` (`pip install mlcc[pycuda]`).",
    ),
    "E0861": (
        "the device is too old or of another kind",
        "The artifact was compiled for a compute capability that this device does not have. Code for sm_90 runs on 9.0 "
        "and later; code for sm_90a on 9.0 alone. Compile it for the device at hand: -t 'cuda{arch=sm_80}'.",
    ),
    "E0862": (
        "the driver is too old",
        "The artifact's PTX is of a version that the installed NVIDIA driver does not know. The manifest names the "
        "lowest driver that does: `mlcc inspect FILE`.",
    ),
    "E0863": (
        "the device's driver refuses the code",
        "The driver could not make machine code of the PTX. What it said follows the message.",
    ),
    "E0864": (
        "a kernel cannot be launched",
        "The grid, the block or the shared memory of a launch is more than the device has, or the driver refused it.",
    ),
    "E0865": (
        "out of device memory",
        "An argument, a result or the workspace does not fit the memory of the device. Memory that this process keeps "
        "for later calls was given back before.",
    ),
    "E0866": (
        "a kernel failed on the device",
        "The device stopped a kernel, for instance for an illegal address. Its memory is lost with it: the context was "
        "made anew, constants are copied again, and later calls work, but device arrays made before do not. "
        "`mlcc run -t cuda --emulate` or compute-sanitizer finds the place.",
    ),
    "E0867": (
        "an array of another device",
        "An argument lies in the memory of a device that the artifact does not run on.",
    ),
    "E0868": (
        "constants are missing or others",
        "The constants of a .ptx lie beside it, in an .npz of the same name; the .ptx holds their hashes. Copy the two "
        "together, or compile to one .mlca.",
    ),
    "E0869": (
        "an artifact for a GPU is damaged",
        "The file is cut off, was changed on its way (copied as text, say), or its launch plan is none that this "
        "version writes. Copy it again, or compile it again. Who changes the code of a .ptx by hand takes out its line "
        "`// mlcc sum`, which is the checksum of the rest.",
    ),
    "E0879": (
        "a tensor that the copy engine cannot read",
        "A kernel copies boxes of an argument by a tensor map (bulk copies). Its address and the distances of its rows "
        "have to be multiples of 16 bytes, which here they are not. Pad the rows, or compile without bulk copies.",
    ),
}

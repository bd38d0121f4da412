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
        "A function takes its parameters in order. A PrimFunc also takes its outputs, as arrays that it writes; they "
        "can be omitted together, and are then allocated and returned. A relax function returns its results, or "
        "writes them to `out`.",
    ),
    "E0803": (
        "wrong kind of argument",
        "A tensor parameter takes a NumPy array or any object with `__dlpack__` in memory that the CPU can read; a "
        "scalar takes a number, a shape a tuple of integers, and a tuple a tuple of the same length.",
    ),
    "E0804": (
        "wrong dtype",
        "Element types are never converted silently: use `array.astype(...)`. bfloat16 and 8-bit floats are passed "
        "as arrays of their bits (uint16, uint8), as ml_dtypes arrays, or by DLPack.",
    ),
    "E0805": (
        "wrong shape",
        "An argument differs from its parameter in the number of dimensions or in an extent.",
    ),
    "E0806": (
        "symbolic dimensions disagree",
        "A symbol such as `n` stands for one number in a call: every dimension declared as `n` must have that extent.",
    ),
    "E0808": (
        "read-only output",
        "The function writes this argument, but the array is read-only.",
    ),
    "E0809": (
        "an output overlaps another argument, or itself",
        "A function may read inputs after it has written parts of its outputs, so the two must not share memory. "
        "Elements of an output must not share memory either, as those of `numpy.broadcast_to` do.",
    ),
    "E0810": ("out of memory", "A result or the workspace for intermediates could not be allocated."),
    "E0811": (
        "packed function not registered",
        "The code calls a packed function that is not registered. Register it by `mlcc.register_func(name, f)`, by "
        "--env FILE on the command line, or in C by `PREFIX_set_packed(name, f, context)`.",
    ),
    "E0812": (
        "a packed function failed",
        "A packed function of a C library returned an error, or one in Python returned a value of another shape or "
        "dtype than the program declares. Exceptions of Python functions are raised again unchanged.",
    ),
    "E0813": ("an assertion of the program failed", "A `T.assert` or `R.assert_op` of the program did not hold."),
    "E0814": (
        "sizes inside a function do not match",
        "A value does not have the struct info that `R.match_cast` declares, or sizes differ that an operator "
        "requires to be equal. The line is that of the source text.",
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
    "E0817": (
        "value out of range",
        "The parameter's dtype cannot represent a number, or the number is not allowed here.",
    ),
    "E0818": (
        "an index is out of bounds",
        "A tensor of indices, or a scalar argument, contains an index that is out of bounds. The message names the "
        "operator, the line of the text, the index and the number of elements. No memory outside the tensors was "
        "accessed; the results are undefined. Negative indices count from the end where NumPy's and ONNX's do (see "
        "docs/semantics.md). The target option `check-indices=false` omits these checks, for data that are known to "
        "be valid.",
    ),
    "E0850": (
        "an artifact cannot be read",
        "The file does not exist or is not readable, or the value is not an artifact that mlcc can run.",
    ),
    "E0851": (
        "not a valid artifact",
        "The file is not an object or shared library made by mlcc, or it was truncated, damaged or changed.",
    ),
    "E0852": (
        "the manifest does not match this mlcc",
        "The manifest of the artifact is malformed, or of another version. Compile the artifact again.",
    ),
    "E0853": (
        "an artifact for another machine",
        "The object contains code for another architecture than this machine's.",
    ),
    "E0854": (
        "the machine lacks CPU features",
        "The object was compiled for a CPU with instructions that this one does not have. Compile it with -t "
        "'llvm{cpu=native}' on this machine, or with -t llvm for any machine of the architecture.",
    ),
    "E0855": (
        "an external symbol is missing",
        "Objects may use libm and a few functions of libc. Other C symbols must be allowed by name (--allow-extern) "
        "and must be in the process, for instance in a library loaded with --env.",
    ),
    "E0856": (
        "the system cannot load the artifact",
        "Mapping or protecting memory failed, or the dynamic linker reported an error.",
    ),
    "E0860": (
        "no CUDA device can be used",
        "A CUDA artifact needs an NVIDIA GPU with its driver, and one of the Python packages `cuda-bindings` "
        "(`pip install mlcc[cuda]`) or `pycuda` (`pip install mlcc[pycuda]`).",
    ),
    "E0861": (
        "the device cannot run the code",
        "The artifact was compiled for a compute capability that this device does not have. Code for sm_90 runs on "
        "9.0 and later, code for sm_90a on 9.0 only. Compile it for this device, for example with -t "
        "'cuda{arch=sm_80}'.",
    ),
    "E0862": (
        "the driver is too old",
        "The artifact's PTX needs a newer NVIDIA driver. The manifest names the oldest driver that supports it: `mlcc "
        "inspect FILE`.",
    ),
    "E0863": (
        "the driver rejects the code",
        "The driver could not compile the PTX. Its message is quoted.",
    ),
    "E0864": (
        "a kernel cannot be launched",
        "The grid, the block or the shared memory of a launch exceeds the limits of the device, or the driver "
        "rejected the launch.",
    ),
    "E0865": (
        "out of device memory",
        "An argument, a result or the workspace does not fit in device memory, even after releasing the memory that "
        "this process keeps for later calls.",
    ),
    "E0866": (
        "a kernel failed on the device",
        "The device stopped a kernel, for instance for an illegal address, and the contents of its memory are lost. "
        "The context was replaced and constants are copied again, so that later calls work, but earlier device arrays "
        "do not. `mlcc run -t cuda --emulate` or compute-sanitizer finds the location.",
    ),
    "E0867": (
        "an array on another device",
        "An argument is in the memory of a device that the artifact does not run on.",
    ),
    "E0868": (
        "constants are missing or do not match",
        "The constants of a .ptx are beside it, in an .npz of the same name, and the .ptx contains their hashes. Copy "
        "the two together, or compile to a single .mlca.",
    ),
    "E0869": (
        "an artifact for a GPU is damaged",
        "The file is truncated or was changed (copied as text, say), or its launch plan is not of this version. Copy "
        "it again, or compile it again. After editing a .ptx by hand, remove its line `// mlcc sum`, the checksum of "
        "the rest.",
    ),
    "E0879": (
        "a tensor that the copy engine cannot read",
        "A kernel copies boxes of an argument by a tensor map (bulk copies). The address and row strides of the "
        "argument must be multiples of 16 bytes. Pad the rows, or compile without bulk copies.",
    ),
}

"""Diagnostic codes: command line and files."""

CODES: dict[str, tuple[str, str]] = {
    "E0001": (
        "a file cannot be read",
        "The file named on the command line, or in a text, does not exist, is a folder, or may not be read. Paths on "
        "the command line are taken from the current folder, paths inside a file from that file's folder.",
    ),
    "E0002": (
        "a file cannot be written",
        "The folder is missing or not writable, the file is write-protected, or the disk is full, possibly that of "
        "standard output. Files are written atomically: an earlier file of that name is unchanged.",
    ),
    "E0003": (
        "not a valid file of arrays",
        "The file is not an .npz or .safetensors file, is truncated, damaged or encrypted, or contains Python "
        "objects, which mlcc never loads; or an array's header contradicts the content. A compressed array of more "
        "than 1 GiB plus three times the archive is read only if a declaration states its size: store it "
        "uncompressed. The tensors of a .safetensors file must be contiguous, without overlaps, and its header at "
        "most 32 MiB. Write it with numpy.savez(path, name=array, ...), or safetensors.numpy.save_file({name: "
        "array}, path).",
    ),
    "E0004": (
        "arrays do not match the function",
        "An array that the function needs is missing from the files, or an array has a name that no parameter has. "
        "Arrays are matched to parameters by name; an array `layer1.weight` is for `layer1_weight`, too. "
        "`--in NAME=FILE` gives an array of a .npy file, or the only one of a file, the name of a parameter, "
        "`--in NAME=FILE:ARRAY` an array of another name. `--random` makes what is missing, `--ignore-extra` leaves "
        "out what no parameter takes.",
    ),
    "E0005": (
        "no function of that name",
        "The module or artifact has no public function of the name given with --func.",
    ),
    "E0006": (
        "no such topic",
        "`mlcc explain` takes a diagnostic code as messages show it in brackets, such as E0312, or the name of an "
        "operator (R.nn.conv2d), an intrinsic (T.exp), a pass (fuse), a schedule primitive (sch.split), a target "
        "(llvm), a level (-O2) or a variable (MLCC_JOBS). `mlcc explain --list` lists all of them.",
    ),
    "E0007": (
        "nested too deeply",
        "Expressions, statements or functions are nested deeper than mlcc supports, which is far beyond ordinary "
        "programs. Split the expression or the function.",
    ),
    "E0017": (
        "random arrays that cannot be made",
        "`--random` makes an array for each parameter that has none. It needs the sizes of all shapes: from the arrays "
        "that are given (`--in x.npz`), or for the symbols in them (`--size n=32`). Objects that are no arrays have no "
        "random values.",
    ),
    "E0010": (
        "an output is an input",
        "A command never writes to a file that it reads, under whatever name or link: model, arrays, scripts, rules, "
        "environments, and the .npz that a text or a .ptx refers to. Name another file. Only `mlcc fmt -i` rewrites "
        "its input.",
    ),
    "E0011": (
        "two outputs are one file",
        "Two options name the same file, possibly by different names or links. The second output would replace the "
        "first.",
    ),
    "E0012": (
        "the suffix does not fit the output",
        "The suffix of an output states its format: .o, .so, .a, .s, .ll, .ptx, .mlca, .cu, .metal, .h, .npz, "
        ".safetensors, .mlc, .mls. An object is never written to a .mlc or .c file, which is likely a source. For "
        "other suffixes, name the format with --emit (in Python: `emit=`).",
    ),
    "E0013": (
        "a file that was not named would be replaced",
        "Some files are written implicitly: the constants in `net.npz` beside `-o net.mlc` or `-o net.ptx`, and "
        "dumps in --dump-dir. Such a file replaces only one that mlcc wrote for the same purpose, as marked inside "
        "(the zip comment, the first line of a dump), and is kept if it already has the needed content. Name another "
        "file (--data FILE), or pass --force.",
    ),
    "E0014": (
        "binary data for a terminal",
        "Objects, libraries and arrays are not shown on a terminal. Name a file, or redirect standard output.",
    ),
    "E0015": (
        "an invalid environment variable",
        "Variables that start with MLCC_ are read strictly: MLCC_CACHE (0 or 1), MLCC_CACHE_DIR (a folder), "
        "MLCC_CACHE_SIZE (MiB), MLCC_JOBS, MLCC_NUM_THREADS, MLCC_CPU (one of the CPUs that `mlcc inspect` lists: "
        "run kernels in their versions for it), MLCC_CUDA_DEVICE (a number), MLCC_CUDA_DRIVER (pycuda or bindings), "
        "MLCC_TRACEBACK (0 or 1). An empty variable counts as unset.",
    ),
    "E0019": (
        "the language server needs pygls",
        "`mlcc lsp` speaks the Language Server Protocol through pygls, an optional dependency. Install it into the "
        "environment of mlcc: `pip install 'mlcc[lsp]'`. If your editor starts another `mlcc` than your shell, set the "
        "path of this one in its settings.",
    ),
    "E0090": (
        "wrong usage of a command",
        "The command line does not fit the command: an option that it does not have, a value that the option does not "
        "take, a file too many or too few. `mlcc COMMAND --help` lists what there is. The exit code is 2.",
    ),
    "E0016": (
        "out of memory",
        "There was not enough memory for the compiler, or for LLVM, which runs in a separate process if memory is "
        "limited (`ulimit -v`). Raise the limit, or split the module.",
    ),
}

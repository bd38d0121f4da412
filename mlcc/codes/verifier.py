"""Diagnostic codes: what the verifier reports on TensorIR and relax."""

TENSORIR: dict[str, tuple[str, str]] = {
    "E0330": (
        "regions cannot be inferred",
        "A block that passes a buffer by pointer may read or write any of it. Write `T.reads(...)` and "
        "`T.writes(...)` in such a block.",
    ),
    "E0331": (
        "variable out of scope",
        "A variable is used where nothing binds it: loop variables are visible in their loop, axes in their block, "
        "bound values in the rest of their body. A symbolic size must stand alone as a dimension, stride or offset of "
        "a parameter's buffer before it can be used.",
    ),
    "E0332": (
        "buffer not declared",
        "A buffer is used where it is neither a parameter, nor allocated, matched or declared around this place.",
    ),
    "E0333": (
        "bound twice",
        "The same variable, buffer or block object is bound in two places. Each binding needs an object of its own; "
        "names may repeat.",
    ),
    "E0334": (
        "axis not covered",
        "The values bound to a block axis do not reach all of its domain, so part of the block never runs: an axis of "
        "128 bound to a loop of 127. Change the loop or the axis.",
    ),
    "E0335": (
        "axis out of its domain",
        "The values bound to a block axis go outside its domain. Change the loop or the axis, or guard the block with "
        "`T.where(...)`.",
    ),
    "E0336": ("axes and bindings differ in number", "A block is realized with one value for each of its axes."),
    "E0337": (
        "operands do not fit",
        "The operands of an expression must have the same dtype, which determines the dtype of the result. Use "
        '`T.Cast` (or `T.float32(...)`, `.astype("float32")`) to convert. A block axis cannot be bound to a value that '
        "is wider than the axis.",
    ),
    "E0338": (
        "stored value has the wrong dtype",
        "A value stored to a buffer must have the buffer's element type, with as many lanes as the index has.",
    ),
    "E0339": ("wrong number of indices", "A buffer is accessed with one index for each of its dimensions."),
    "E0340": (
        "loop variable inside a block",
        "A block with axes is self-contained: its body uses its axes, not the loops around it. Bind the loop to an "
        "axis with `T.axis.spatial` or `T.axis.reduce`.",
    ),
    "E0341": (
        "access outside the declared regions",
        "The body of a block accesses more than its `T.reads` and `T.writes` declare. Passes rely on these regions.",
    ),
    "E0342": ("not a condition", "A condition must be a single bool."),
    "E0343": (
        "invalid loop kind",
        "A step must be positive, and a thread-bound loop must name a thread axis such as `threadIdx.x`.",
    ),
    "E0344": ("unknown block axis kind", "Axes of a block must be spatial, reduce, scan or opaque."),
    "E0345": ("wrong arguments for an intrinsic", "An intrinsic is called with arguments that it does not take."),
    "E0346": (
        "parameters and buffers do not fit",
        "A parameter with a buffer must be a handle, and each is listed once.",
    ),
    "E0347": ("outside a loop", "`break` and `continue` are allowed only inside a loop."),
    "E0348": ("constant does not fit its dtype", "A constant must lie in the range of its dtype."),
    "E0349": ("malformed function", "The tree has a node where such a node is not allowed."),
    "E0350": (
        "malformed buffer",
        "Sizes, strides and offsets of a buffer must be integers, with one stride for each dimension.",
    ),
    "E0353": (
        "match_buffer does not fit its source",
        "A matched buffer must have the dtype of its source and the extents of the matched region.",
    ),
    "E0355": (
        "access outside its buffer",
        "In an iteration that certainly runs, whatever the arguments are, an index is out of bounds. The "
        "message shows the index, the extent and the loops. Loops run from 0 to their extent less one: shorten the "
        "loop, guard the access (`if`, `T.where`, `T.if_then_else`), or give the buffer another shape. Symbolic sizes "
        "count as at least 1. Accesses that depend on data are checked at run time by `mlcc run --sanitize`.",
    ),
    "E0354": (
        "call does not fit the function",
        "A function of the module must be called with the arguments that it declares. Those of a kernel launch "
        "(`tir.is_global_func`) must have the dtypes of its parameters.",
    ),
}

GRAPH: dict[str, tuple[str, str]] = {
    "E0480": ("variable not bound", "A variable is used before it is bound, or outside the block that binds it."),
    "E0481": (
        "variable leaves its dataflow block",
        "A variable bound inside `R.dataflow()` can be used after it only if `R.output(...)` names it.",
    ),
    "E0482": (
        "side effect in a dataflow block",
        "Bindings of a dataflow block may be reordered or removed. Move calls with side effects, such as printing, out "
        "of it.",
    ),
    "E0483": (
        "side effect in a pure function",
        "A function is pure unless it is declared `@R.function(pure=False)`.",
    ),
    "E0484": ("variable bound twice", "Each binding needs a variable of its own; names may repeat."),
    "E0485": ("unknown function", "A call names a function that is neither in the module nor an operator."),
    "E0486": ("wrong number of arguments", "A call passes as many arguments as the function declares parameters."),
    "E0487": (
        "argument does not fit the parameter",
        "Dtype, rank or shape of an argument cannot be what the parameter is declared to be.",
    ),
    "E0488": (
        "result does not fit the function",
        "The `out_sinfo` of a `call_tir` names the buffers that the TensorIR function writes: its last parameters.",
    ),
    "E0489": (
        "constant without data",
        "The text refers to a constant whose data are missing. Put the data beside the text to build or run it.",
    ),
    "E0490": ("no such element", "The index of a tuple must be from 0 to its length minus one."),
    "E0491": (
        "not a condition",
        "The condition of a graph-level `if` must be a single bool: a scalar tensor or a scalar.",
    ),
    "E0492": (
        "match_cast cannot hold",
        "The value is known to have another rank, dtype or size than the cast states.",
    ),
    "E0493": (
        "symbolic variable not bound",
        "A symbolic size is bound where it is used alone as a dimension of a parameter or of a `match_cast`; only then "
        "can shapes use it.",
    ),
    "E0494": ("malformed function", "The tree has a node where such a node is not allowed."),
    "E0495": (
        "result disagrees with the declared one",
        "A function must return a value of the type that its signature declares.",
    ),
    "E0496": ("value disagrees with the annotation", "The annotation of a binding must be true of its value."),
    "E0497": (
        "call_tir of a function that writes its input",
        "Values of the graph never change: other users, or the caller, may still read what the function would write. "
        "Pass it as a result, copy it inside the function, or use `R.call_tir_inplace`, which names what is written.",
    ),
}

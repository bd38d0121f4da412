"""Hints for what texts borrow from Python and its libraries: modules, built-in functions, methods, sizes.

A text is data: nothing of Python runs while it is read. The hints name what stands for the borrowed word in the
language. Only messages need them, so this module is imported when there is one.
"""

from __future__ import annotations

import re

from mlcc.ops.meant import call_text, meant_operator

# the roots of dotted names that are libraries, by the names that programs import them under
_LIBRARIES = {
    "np": "NumPy", "numpy": "NumPy", "torch": "PyTorch", "nn": "PyTorch", "F": "PyTorch", "tf": "TensorFlow",
    "keras": "Keras", "jnp": "JAX", "jax": "JAX", "lax": "JAX", "math": "Python", "cmath": "Python", "random": "Python",
    "scipy": "SciPy", "onnx": "ONNX", "topi": "TVM", "te": "TVM", "cp": "CuPy",
}  # fmt: skip
_KERNEL_WORDS = {  # of Python, NumPy and C, where the intrinsic has another name
    "arccos": "acos", "arcsin": "asin", "arctan": "atan", "absolute": "abs", "maximum": "max", "minimum": "min",
    "fmax": "max", "fmin": "min", "power": "pow", "sum": None, "expf": "exp", "sqrtf": "sqrt", "clamp": None,
    "where": "if_then_else", "select": "Select", "mod": "floormod", "div": "floordiv", "float": "Cast", "int": "Cast",
    "astype": "Cast", "isclose": None, "logical_and": "And", "logical_or": "Or", "logical_not": "Not", "neg": None,
}  # fmt: skip
FUNCTIONS = ("And", "Cast", "Not", "Or", "Select", "floordiv", "floormod", "max", "min")  # no intrinsics of TensorIR
_KERNEL_FORMS = {
    "relu": "T.max(x, T.float32(0))",
    "clip": "T.min(T.max(x, low), high)",
    "clamp": "T.min(T.max(x, low), high)",
    "maximum": "T.max(a, b)",
    "minimum": "T.min(a, b)",
    "square": "x * x",
    "silu": "x * T.sigmoid(x)",
    "softplus": "T.log(T.float32(1) + T.exp(x))",
    "where": "T.if_then_else(condition, a, b)",
    "dot": "a reduction: `C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]` in a block with a reduce axis",
    "matmul": "a reduction: `C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]` in a block with a reduce axis",
    "sum": "a reduction: `S[vi] = S[vi] + A[vi, vk]` in a block with a reduce axis",
}
_SIZE = re.compile(r"\b(?:Tensor|Buffer|Shape|match_buffer)\([^()\n]*\(?[^()\n]*$")
_OWN_DTYPES = {"float": "float32", "int": "int32", "bool": "bool", "double": "float64", "half": "float16"}
_OTHER_DTYPES = {
    "long": "int64", "short": "int16", "single": "float32", "byte": "uint8", "bf16": "bfloat16",
    **{f"{short}{bits}": f"float{bits}" for short in ("fp", "f") for bits in (16, 32, 64)},
    **{f"{short}{bits}": f"{long}{bits}" for short, long in (("i", "int"), ("u", "uint")) for bits in (8, 16, 32, 64)},
}  # fmt: skip


def meant_dtype(word: str) -> str | None:
    """Return the dtype that a word stands for in another language or library: `float32` for `fp32` and `single`."""
    from mlcc.ir.dtypes import NAMES

    word = word.removesuffix("_")
    return word if word in NAMES else {**_OWN_DTYPES, **_OTHER_DTYPES}.get(word)


def name_hint(name: str, text: str, start: int, end: int, graph: bool) -> str | None:
    """Return the help for the unknown name `text[start:end]`, in a relax function if `graph`; None if there is none."""
    rest = re.compile(r"(?:\.\w+)+").match(text, end)
    if name in _LIBRARIES and rest is not None:
        path = text[start : rest.end()]
        dtype = meant_dtype(path.rpartition(".")[2])
        if dtype is not None:
            number = f'R.const(..., "{dtype}")' if graph else f"T.{dtype}(...)"
            called = text[rest.end() : rest.end() + 1] == "("
            return f"a number of this dtype is `{number}`" if called else f'a dtype is written in quotes: "{dtype}"'
        whose = "no Python" if _LIBRARIES[name] == "Python" else f"no Python, {_LIBRARIES[name]} included"
        hint = operator_hint(path) if graph else intrinsic_hint(path)
        return f"a text runs {whose}: {hint or 'write it with what `R.` and `T.` have'}"
    line = text[text.rfind("\n", 0, start) + 1 : start]
    if name in _OWN_DTYPES and line.rstrip().endswith((",", "=")):
        return f'a dtype is written in quotes: "{_OWN_DTYPES[name]}"'
    if _SIZE.search(line) and text[start] not in "\"'":
        quoted = f'a size that is known at run time is written in quotes, "{name}", or declared above the function'
        declared = f"a size that is known at run time is declared above the function: `{name} = T.int64()`"
        return quoted + f": `{name} = T.int64()`" if graph else declared
    if name in ("cls", "self"):
        return f"`{name}.f` is a function `f` of a class under `@I.ir_module`, and this function stands in none"
    if name == "print":
        return "write `R.print(x, format=...)`" if graph else "a kernel prints nothing: look at its outputs"
    if name == "len" and graph:
        return 'the sizes of a tensor are in its type, such as R.Tensor(("n", 4)): write `n`'
    return None


def call_hint(name: str, text: str, end: int, graph: bool) -> str | None:
    """Return the help for an unknown name that is called as a function; `end` is where it ends in the text."""
    if text[end : end + 1] != "(":
        return None
    return operator_hint(name) if graph else intrinsic_hint(name)


def operator_hint(name: str, *first: str) -> str | None:
    """Return the help that names the operator for a word from elsewhere; `first` are texts of its first arguments."""
    meant = meant_operator(name)
    return None if meant is None else f"write `{call_text(meant, *first)}`"


def intrinsic_hint(name: str, value: str = "") -> str | None:
    """Return the help that names the function of kernels for a word from elsewhere; `value` is the text it is of."""
    from mlcc.ir.intrinsics import INTRINSICS

    word = name.rpartition(".")[2]
    if word in _KERNEL_FORMS:
        form = _KERNEL_FORMS[word]
        return f"write {form}" if " a " in form or form.startswith("a ") else f"write `{form}`"
    known = _KERNEL_WORDS.get(word, word)
    if known is not None and (known in INTRINSICS or known in FUNCTIONS):
        return f"write `T.{known}({value or '...'})`"
    return None


def method_hint(base: str, name: str, called: bool) -> str | None:
    """Return the help for a method or attribute that tensors of graphs do not have; `base` is the tensor's text."""
    if name in ("shape", "size", "ndim") and not called:
        return (
            f'sizes are part of the type: name them there, R.Tensor(("n", 4)), and write `n`; or `R.shape_of({base})`'
        )
    if name == "dtype":
        return 'a dtype is written in quotes, such as "float32"'
    if name in ("numpy", "item", "cpu", "cuda", "detach", "tolist"):
        return "leave it out: a text describes a computation, and the caller has the arrays"
    return operator_hint(name, base)


def index_hint(base: str, items: list[tuple[str, str]], sizes: list[str]) -> str:
    """Return the help for a tensor that is indexed: the operators that select. `items` are kinds and texts of indices:
    `number`, `slice` (start:stop:step), or `other`; `sizes` are the texts of the dimensions, as far as known."""
    if any(kind == "slice" and "-" in text.split(":", 2)[-1] and text.count(":") == 2 for kind, text in items):
        return f"R.flip({base}, axis=...) reverses the order along an axis"
    if all(kind in ("number", "slice") for kind, _ in items):
        return f"write `{_selection(base, items, sizes)}`"
    texts = [text for _, text in items]
    if "None" in texts:
        return f"write `R.expand_dims({base}, axis={texts.index('None')})`"
    if "..." in texts:
        return "there is no `...`: R.strided_slice and R.take name the axes that they select from"
    return "R.where(condition, x1, x2) chooses by a condition, R.take(x, indices, axis=...) by a tensor of indices"


def _selection(base: str, items: list[tuple[str, str]], sizes: list[str]) -> str:
    """Return calls of R.strided_slice and R.take that select what `base[items]` does."""
    parts = [(axis, kind, text) for axis, (kind, text) in enumerate(items)]
    ends = [*sizes, *(str((1 << 63) - 1) for _ in items)]  # an end that lies outside is moved to it
    slices = [(axis, *_bounds(text, ends[axis])) for axis, kind, text in parts if kind == "slice" and text != ":"]
    if slices:
        axes, begin, end, steps = (", ".join(str(s[n]) for s in slices) for n in range(4))
        strides = f", strides=[{steps}]" if any(s[3] != "1" for s in slices) else ""
        base = f"R.strided_slice({base}, axes=[{axes}], begin=[{begin}], end=[{end}]{strides})"
    for axis, kind, text in reversed(parts):
        if kind == "number":
            base = f'R.take({base}, R.const({text}, "int64"), axis={axis})'
    return base


def _bounds(text: str, size: str) -> tuple[str, str, str]:
    start, stop, step = [*(part.strip() for part in text.split(":")), "", ""][:3]
    return start or "0", stop or size, step or "1"

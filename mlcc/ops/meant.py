"""Suggestions of operators for names of other libraries, for messages: `R.relu`, `torch.mul`, `x.view`, `np.dot`.

The last word of the name decides: as an operator's own last word whatever the capitals and underscores, else by the
table of other frameworks' words, else by spelling.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from difflib import get_close_matches

from mlcc.ops.signature import EXPANDED, aliases, names, signature

# words of NumPy, PyTorch, ONNX and TensorFlow that are no word of an operator here
_WORDS = {
    "t": "permute_dims", "absolute": "abs", "amax": "max",
    "amin": "min", "arccos": "acos", "arcsin": "asin", "arctan": "atan",
    "asarray": "astype", "bitwise_left_shift": "left_shift", "bitwise_right_shift": "right_shift", "bmm": "matmul",
    "broadcast": "broadcast_to", "cast": "astype", "cat": "concat", "clamp": "clip",
    "conv_transpose2d": "nn.conv2d_transpose", "conv": "nn.conv2d", "cross_entropy": "nn.cross_entropy_with_logits",
    "dot": "matmul", "expand": "broadcast_to", "fft": "signal.dft", "float": "astype", "fmod": "mod",
    "gather": "gather_elements", "gemm": "matmul", "ge": "greater_equal", "gt": "greater", "half": "astype",
    "index_select": "take", "interpolate": "image.resize2d", "le": "less_equal", "lt": "less",
    "masked_fill": "where", "maxpool": "nn.max_pool2d", "mm": "matmul", "movedim": "permute_dims", "mul": "multiply",
    "ndim": "shape_of", "ne": "not_equal", "neg": "negative", "norm": "nn.layer_norm", "numel": "size",
    "permute": "permute_dims", "pow": "power", "rand": "random.uniform", "randint": "random.integers",
    "randn": "random.normal", "ravel": "flatten", "reduce_max": "max", "reduce_mean": "mean", "reduce_sum": "sum",
    "remainder": "floor_mod", "resize": "image.resize2d", "scaled_dot_product_attention":
    "nn.attention", "scatter": "scatter_elements", "shape": "shape_of", "slice": "strided_slice", "sub": "subtract",
    "swapaxes": "permute_dims", "swish": "nn.silu", "tensordot": "einsum", "to": "astype", "true_divide": "divide",
    "type": "astype", "unsqueeze": "expand_dims", "upsample": "image.resize2d", "var": "variance", "view": "reshape",
}  # fmt: skip

_INTERNAL = ("builtin", "ccl", "dist", "grad", "inspect", "memory", "vm")  # families that nobody means by a word


def meant_operator(name: str) -> str | None:
    """Return the operator that a name from elsewhere most likely means, without prefix, or None."""
    word = _plain(name.rpartition(".")[2])
    found = _by_word().get(word)
    if found is not None:
        return found
    close = get_close_matches(word, _by_word(), 1, cutoff=0.75) if 3 < len(word) < 40 else []
    return _by_word()[close[0]] if close else None


def operator_help(name: str, known: Iterable[str]) -> str | None:
    """Return the help for a name that no operator of `known` has: one spelled alike, or the one that is meant."""
    close = get_close_matches(name, known, 1, cutoff=0.8) if len(name) < 40 else []
    if close:
        return f"did you mean `{close[0]}`?"
    meant = meant_operator(name)
    return None if meant is None else f"write `{call_text(meant)}`"


def call_text(name: str, *first: str) -> str:
    """Return `R.sum(x, axis=..., keepdims=...)`, the call of an operator; `first` are texts of its first arguments.

    >>> call_text("nn.softmax", "h")
    'R.nn.softmax(h, axis=...)'
    """
    sig = signature(name)
    if sig is None:  # an expanded one
        return f"R.{name}({', '.join(first) or '...'})"
    shown = [*first]
    for param in [p for p in sig.params if not p.is_types][len(first) :]:
        if param.required and not param.is_attr:
            shown.append(param.name)
        elif not param.hidden and len(shown) < 6:
            shown.append(f"{param.name}=...")
    return f"R.{name}({', '.join(shown)})"


@functools.cache
def _by_word() -> dict[str, str]:
    known = {_plain(word): name for word, name in _WORDS.items()}
    for alias, name in aliases().items():
        known[_plain(alias.rpartition(".")[2])] = name
    own = [*(n.removeprefix("relax.") for n in names()), *EXPANDED]
    own = [n for n in own if n.partition(".")[0] not in _INTERNAL]
    for name in sorted(own, key=lambda n: -n.count(".")):  # of `nn.x` and `x`, the latter
        known[_plain(name.rpartition(".")[2])] = name
    return known


def _plain(word: str) -> str:
    return word.lower().replace("_", "")

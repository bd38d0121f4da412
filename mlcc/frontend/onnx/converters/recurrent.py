"""Recurrent layers: RNN, GRU and LSTM."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mlcc.frontend.onnx.helpers import constant_extent, one_of, swap_axes
from mlcc.frontend.onnx.table import converts
from mlcc.frontend.onnx.translate import OnnxNode, OnnxTranslator
from mlcc.frontend.problems import Unsupported
from mlcc.ir import relax

DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}

# Defaults of an activation's alpha and beta, by its name in text.
_ALPHAS = {
    "affine": 1.0, "leaky_relu": 0.01, "thresholded_relu": 1.0, "scaled_tanh": 1.0, "hard_sigmoid": 0.2, "elu": 1.0
}  # fmt: skip
_BETAS = {"affine": 0.0, "scaled_tanh": 1.0, "hard_sigmoid": 0.5}
_NAMES = {"sigmoid", "tanh", "relu", "softsign", "softplus", *_ALPHAS}


@converts("RNN", "GRU", since=7)
def _rnn_or_gru(
    t: OnnxTranslator,
    node: OnnxNode,
    x: relax.Expr,
    w: relax.Expr,
    r: relax.Expr,
    b: relax.Expr | None = None,
    lengths: relax.Expr | None = None,
    h: relax.Expr | None = None,
) -> list[relax.Expr]:
    if node.operator == "RNN":
        return _layer(t, node, t.op.nn.rnn, 1, (x, w, r, b), [h], [lengths])
    before = bool(node.attribute("linear_before_reset", 0))
    return _layer(t, node, t.op.nn.gru, 3, (x, w, r, b), [h], [lengths], linear_before_reset=before)


@converts("LSTM", since=7)
def _lstm(
    t: OnnxTranslator,
    node: OnnxNode,
    x: relax.Expr,
    w: relax.Expr,
    r: relax.Expr,
    b: relax.Expr | None = None,
    lengths: relax.Expr | None = None,
    h: relax.Expr | None = None,
    cell: relax.Expr | None = None,
    peepholes: relax.Expr | None = None,
) -> list[relax.Expr]:
    coupled = bool(node.attribute("input_forget", 0))
    extras = [_full_lengths(t, node, x) if lengths is None and peepholes is not None else lengths, peepholes]
    return _layer(t, node, t.op.nn.lstm, 4, (x, w, r, b), [h, cell], extras, input_forget=coupled)


def _full_lengths(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    """Return the lengths of sequences without padding."""
    steps, batch = (t.shape(x)[i] for i in ((1, 0) if node.attribute("layout", 0) else (0, 1)))
    every = t.op.shape_to_tensor(t.shape_expr([steps]))
    return t.emit(t.op.broadcast_to(every, t.shape_expr([batch])))


def _layer(
    t: OnnxTranslator,
    node: OnnxNode,
    layer: Callable[..., relax.Expr],
    gates: int,
    weights: tuple[relax.Expr, relax.Expr, relax.Expr, relax.Expr | None],
    states: Sequence[relax.Expr | None],
    extras: Sequence[relax.Expr | None],
    **options: Any,
) -> list[relax.Expr]:
    """Emit a layer. Return the outputs of all steps, and the final states."""
    x, w, r, b = weights
    direction = one_of(node.attribute("direction", "forward"), list(DIRECTIONS), "direction")
    count, batch_first = DIRECTIONS[direction], bool(node.attribute("layout", 0))
    if batch_first:
        x = swap_axes(t, x, 0, 1)
        states = [None if s is None else swap_axes(t, s, 0, 1) for s in states]
    hidden, dtype = constant_extent(t.shape(r)[2], "the hidden size"), t.dtype(x)
    if constant_extent(t.shape(w)[0], "the number of directions") != count:
        raise Unsupported(f"the weights must have {count} directions")
    bias = t.full([count, 2 * gates * hidden], 0, dtype) if b is None else b
    first = [t.full([count, t.shape(x)[1], hidden], 0, dtype) if s is None else s for s in states]
    given = list(extras)
    while given and given[-1] is None:
        given.pop()
    limit = node.attribute("clip", 0.0) or None
    names = _activations(node, {1: 1, 3: 2, 4: 3}[gates] * count)
    if names is not None:
        options["activations"] = names
    outputs = t.emit(layer(x, w, r, bias, *first, *given, direction=direction, clip=limit, **options))
    every, *ends = (t.emit(outputs[i]) for i in range(1 + len(states)))
    if batch_first:
        every = t.emit(t.op.permute_dims(every, [2, 0, 1, 3]))
        ends = [swap_axes(t, end, 0, 1) for end in ends]
    return [every, *ends]


def _activations(node: OnnxNode, count: int) -> str | None:
    """Return the activations of all directions as text; None for the defaults."""
    names = node.attribute("activations")
    if names is None:
        return None
    if len(names) != count:
        raise Unsupported(f"{count} activations are needed, not {len(names)}")
    alphas, betas = (iter(node.attribute(f"activation_{name}", ())) for name in ("alpha", "beta"))
    return ", ".join(_activation(name, alphas, betas) for name in names)


def _activation(name: str, alphas: Iterator[float], betas: Iterator[float]) -> str:
    """Return an activation as text with its parameters, which it takes from `alphas` and `betas` in order."""
    plain = {n.replace("_", ""): n for n in _NAMES}.get(name.lower())
    if plain is None:
        raise Unsupported(f"activation `{name}` is not supported")
    numbers = [next(given, table[plain]) for given, table in ((alphas, _ALPHAS), (betas, _BETAS)) if plain in table]
    return f"{plain}({', '.join(map(repr, numbers))})" if numbers else plain

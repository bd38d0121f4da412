"""LSTM, GRU and RNN layers of any length, and their cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mlcc.frontend.aten.converters.shapes import permute, simplify_extent, slice_axis, split_axis
from mlcc.frontend.aten.table import converts
from mlcc.frontend.aten.translate import Translator
from mlcc.frontend.emitter import Dim
from mlcc.frontend.problems import Unsupported
from mlcc.ir import construct, relax
from mlcc.relax import op

_LSTM = (0, 3, 1, 2)  # gates i, f, g, o of PyTorch as `R.nn.lstm` has them: i, o, f, g
_GRU = (1, 0, 2)  # r, z, n as z, r, n
_RNN = (0,)

Layer = Callable[..., relax.Call]


@converts("aten.lstm.input")
def _lstm(
    t: Translator, input: relax.Expr, hx: list[relax.Expr], params: list[relax.Expr], has_biases: bool,
    num_layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> list[relax.Expr]:  # fmt: skip
    return _layers(t, op.nn.lstm, _LSTM, input, hx, params, has_biases, num_layers, dropout if train else 0,
                   bidirectional, batch_first)  # fmt: skip


@converts("aten.gru.input")
def _gru(
    t: Translator, input: relax.Expr, hx: relax.Expr, params: list[relax.Expr], has_biases: bool, num_layers: int,
    dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> list[relax.Expr]:  # fmt: skip
    return _layers(t, op.nn.gru, _GRU, input, [hx], params, has_biases, num_layers, dropout if train else 0,
                   bidirectional, batch_first, linear_before_reset=True)  # fmt: skip


def _rnn(activation: str) -> Any:
    def convert(
        t: Translator, input: relax.Expr, hx: relax.Expr, params: list[relax.Expr], has_biases: bool, num_layers: int,
        dropout: float, train: bool, bidirectional: bool, batch_first: bool,
    ) -> list[relax.Expr]:  # fmt: skip
        return _layers(t, op.nn.rnn, _RNN, input, [hx], params, has_biases, num_layers, dropout if train else 0,
                       bidirectional, batch_first, activations=activation)  # fmt: skip

    return convert


for _activation in ("tanh", "relu"):
    converts(f"aten.rnn_{_activation}.input")(_rnn(_activation))


@converts("aten.lstm.data", "aten.gru.data", "aten.rnn_tanh.data", "aten.rnn_relu.data")
def _packed(t: Translator, **arguments: Any) -> None:
    raise Unsupported("packed sequences are not supported", "pass padded sequences to the layer")


def _layers(
    t: Translator, layer: Layer, order: Sequence[int], x: relax.Expr, states: Sequence[relax.Expr],
    params: Sequence[relax.Expr], biased: bool, count: int, dropout: float, both: bool, batch_first: bool,
    **settings: Any,
) -> list[relax.Expr]:  # fmt: skip
    """Emit all layers in sequence. Return the results of every step, then the final states of all layers."""
    if dropout:
        raise Unsupported("dropout is used only in training", "export the model in eval mode")
    directions = 2 if both else 1
    each = 4 if biased else 2
    if len(params) != count * directions * each:
        raise Unsupported("projections of the hidden state are not supported")
    if both:
        settings["direction"] = "bidirectional"
    steps = permute(t, x, [1, 0, 2]) if batch_first else x
    last: list[list[relax.Expr]] = [[] for _ in states]
    for at in range(count):
        mine = params[at * directions * each : (at + 1) * directions * each]
        weights = _weights(t, [mine[d * each : (d + 1) * each] for d in range(directions)], order)
        begin = [slice_axis(t, state, 0, at * directions, (at + 1) * directions) for state in states]
        outputs = t.emit(layer(steps, *weights, *begin, **settings))
        length, _, batch, hidden = t.shape(t.emit(outputs[0]))
        turned = permute(t, t.emit(outputs[0]), [0, 2, 1, 3])
        steps = t.reshape(
            turned, [length, batch, simplify_extent(construct.mul(hidden, construct.const(directions, "int64")))]
        )
        for kept, index in zip(last, range(1, len(states) + 1), strict=True):
            kept.append(t.emit(outputs[index]))
    result = permute(t, steps, [1, 0, 2]) if batch_first else steps
    return [result, *(kept[0] if count == 1 else t.emit(op.concat(kept, 0)) for kept in last)]


def _weights(
    t: Translator, directions: Sequence[Sequence[relax.Expr]], order: Sequence[int]
) -> tuple[relax.Expr, relax.Expr, relax.Expr]:
    """Return the input weights, the recurrent weights, and both biases, with a leading axis of directions."""
    rows: list[list[relax.Expr]] = [[_reorder_gates(t, value, order) for value in values] for values in directions]
    if len(rows[0]) == 2:
        zeros = t.full([t.shape(rows[0][0])[0]], 0, t.dtype(rows[0][0]))
        rows = [[*values, zeros, zeros] for values in rows]
    biases = [t.emit(op.concat(values[2:], 0)) for values in rows]
    return (
        _stacked(t, [values[0] for values in rows]), _stacked(t, [values[1] for values in rows]), _stacked(t, biases),
    )  # fmt: skip


def _reorder_gates(t: Translator, value: relax.Expr, order: Sequence[int]) -> relax.Expr:
    """Reorder the gates in the rows of a weight."""
    if len(order) == 1:
        return value
    shape = t.shape(value)
    each: Dim = simplify_extent(construct.floordiv(shape[0], construct.const(len(order), "int64")))
    gates = t.reshape(value, [len(order), each, *shape[1:]])
    chosen = t.emit(op.take(gates, t.constant(np.array(order, "int64")), 0, "fast"))
    return t.reshape(chosen, shape)


def _stacked(t: Translator, values: Sequence[relax.Expr]) -> relax.Expr:
    return t.emit(op.stack(list(values), 0) if len(values) > 1 else op.expand_dims(values[0], [0]))


# ---------------------------------------------------------------- cells


def _gates(t: Translator, x: relax.Expr, weight: relax.Expr, bias: relax.Expr | None) -> relax.Expr:
    gates = t.emit(op.matmul(x, op.permute_dims(weight)))
    return gates if bias is None else t.emit(op.add(gates, bias))


def _split(t: Translator, gates: relax.Expr, count: int) -> list[relax.Expr]:
    axis = t.ndim(gates) - 1
    each = simplify_extent(construct.floordiv(t.shape(gates)[axis], construct.const(count, "int64")))
    return split_axis(t, gates, axis, [each] * count)


@converts("aten.lstm_cell")
def _lstm_cell(
    t: Translator, input: relax.Expr, hx: list[relax.Expr], w_ih: relax.Expr, w_hh: relax.Expr,
    b_ih: relax.Expr | None = None, b_hh: relax.Expr | None = None,
) -> list[relax.Expr]:  # fmt: skip
    total = t.emit(op.add(_gates(t, input, w_ih, b_ih), _gates(t, hx[0], w_hh, b_hh)))
    i, f, g, o = _split(t, total, 4)
    cell = t.emit(op.add(op.multiply(op.sigmoid(f), hx[1]), op.multiply(op.sigmoid(i), op.tanh(g))))
    return [t.emit(op.multiply(op.sigmoid(o), op.tanh(cell))), cell]


@converts("aten.gru_cell")
def _gru_cell(
    t: Translator, input: relax.Expr, hx: relax.Expr, w_ih: relax.Expr, w_hh: relax.Expr,
    b_ih: relax.Expr | None = None, b_hh: relax.Expr | None = None,
) -> relax.Expr:  # fmt: skip
    mine = _split(t, _gates(t, input, w_ih, b_ih), 3)
    theirs = _split(t, _gates(t, hx, w_hh, b_hh), 3)
    reset, update = (op.sigmoid(op.add(mine[at], theirs[at])) for at in (0, 1))
    new = t.emit(op.tanh(op.add(mine[2], op.multiply(reset, theirs[2]))))
    return op.add(op.multiply(op.subtract(hx, new), update), new)


@converts("aten.rnn_tanh_cell")
def _rnn_tanh_cell(
    t: Translator, input: relax.Expr, hx: relax.Expr, w_ih: relax.Expr, w_hh: relax.Expr,
    b_ih: relax.Expr | None = None, b_hh: relax.Expr | None = None,
) -> relax.Expr:  # fmt: skip
    return op.tanh(op.add(_gates(t, input, w_ih, b_ih), _gates(t, hx, w_hh, b_hh)))


@converts("aten.rnn_relu_cell")
def _rnn_relu_cell(
    t: Translator, input: relax.Expr, hx: relax.Expr, w_ih: relax.Expr, w_hh: relax.Expr,
    b_ih: relax.Expr | None = None, b_hh: relax.Expr | None = None,
) -> relax.Expr:  # fmt: skip
    return op.nn.relu(op.add(_gates(t, input, w_ih, b_ih), _gates(t, hx, w_hh, b_hh)))

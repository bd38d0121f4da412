"""Recurrent layers: RNN, GRU and LSTM, unrolled over the steps of a sequence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from mlcc.frontend.onnx.converters.activation import elu, hard_sigmoid, softplus
from mlcc.frontend.onnx.parts import choice, known, scalars, slice_axis, swap_axes
from mlcc.frontend.onnx.table import converts
from mlcc.frontend.onnx.translate import OnnxNode, OnnxTranslator
from mlcc.frontend.problems import Unsupported
from mlcc.ir import relax

Activation: TypeAlias = Callable[[relax.Expr], relax.Expr]
State: TypeAlias = tuple[relax.Expr, ...]  # what a step hands to the next one; the first is the output

DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}

# (t, x, alpha, beta) -> expression, and what alpha and beta are where the node does not say
_ACTIVATIONS: dict[str, tuple[Callable[..., relax.Expr], float | None, float | None]] = {
    "relu": (lambda t, x, a, b: t.op.nn.relu(x), None, None),
    "tanh": (lambda t, x, a, b: t.op.tanh(x), None, None),
    "sigmoid": (lambda t, x, a, b: t.op.sigmoid(x), None, None),
    "affine": (lambda t, x, a, b: t.op.add(t.op.multiply(x, scalars(t, x)(a)), scalars(t, x)(b)), 1.0, 0.0),
    "leakyrelu": (lambda t, x, a, b: t.op.nn.leakyrelu(x, a), 0.01, None),
    "thresholdedrelu": (
        lambda t, x, a, b: t.op.where(t.op.greater_equal(x, scalars(t, x)(a)), x, scalars(t, x)(0)), 1.0, None
    ),
    "scaledtanh": (
        lambda t, x, a, b: t.op.multiply(t.op.tanh(t.op.multiply(x, scalars(t, x)(b))), scalars(t, x)(a)), 1.0, 1.0
    ),
    "hardsigmoid": (hard_sigmoid, 0.2, 0.5),
    "elu": (lambda t, x, a, b: elu(t, x, a), 1.0, None),
    "softsign": (lambda t, x, a, b: t.op.divide(x, t.op.add(t.op.abs(x), scalars(t, x)(1))), None, None),
    "softplus": (lambda t, x, a, b: softplus(t, x), None, None),
}  # fmt: skip


@dataclass(frozen=True)
class Direction:
    """The weights of one direction: of the input, of the state, both biases added up where they may be."""

    t: OnnxTranslator
    activations: list[Activation]
    hidden: int
    of_input: relax.Expr
    of_state: relax.Expr
    bias_of_input: relax.Expr | None
    bias_of_state: relax.Expr | None
    peepholes: relax.Expr | None = None
    coupled: bool = False
    before_reset: bool = False

    def gate(self, value: relax.Expr, number: int, count: int = 1) -> relax.Expr:
        """One gate, or several neighbours, along the last axis."""
        last = self.t.ndim(value) - 1
        return slice_axis(self.t, value, last, number * self.hidden, (number + count) * self.hidden)

    def product(self, value: relax.Expr, weights: relax.Expr, bias: relax.Expr | None) -> relax.Expr:
        """value @ weights.T + bias"""
        made = self.t.op.matmul(value, self.t.op.permute_dims(weights))
        return self.t.emit(made if bias is None else self.t.op.add(made, bias))


Step: TypeAlias = Callable[[Direction, relax.Expr, State], State]


def _rnn_step(d: Direction, gates: relax.Expr, state: State) -> State:
    (f,) = d.activations
    of_state = d.product(state[0], d.of_state, d.bias_of_state)
    return (d.t.emit(f(d.t.emit(d.t.op.add(gates, of_state)))),)


def _gru_step(d: Direction, gates: relax.Expr, state: State) -> State:
    t, (f, g), (h,) = d.t, d.activations, state
    weights = (slice_axis(t, d.of_state, 0, 0, 2 * d.hidden), slice_axis(t, d.of_state, 0, 2 * d.hidden, 3 * d.hidden))
    bias = d.bias_of_state
    biases = (None, None) if bias is None else (d.gate(bias, 0, 2), d.gate(bias, 2))
    both = t.emit(f(t.emit(t.op.add(d.gate(gates, 0, 2), d.product(h, weights[0], biases[0])))))
    update, reset = d.gate(both, 0), d.gate(both, 1)
    if d.before_reset:
        inner = t.op.multiply(reset, d.product(h, weights[1], biases[1]))
    else:
        inner = d.product(t.emit(t.op.multiply(reset, h)), weights[1], biases[1])
    fresh = t.emit(g(t.emit(t.op.add(d.gate(gates, 2), inner))))
    return (t.emit(t.op.add(fresh, t.op.multiply(update, t.op.subtract(h, fresh)))),)


def _lstm_step(d: Direction, gates: relax.Expr, state: State) -> State:
    t, (f, g, o), (h, cell) = d.t, d.activations, state
    every = t.emit(t.op.add(gates, d.product(h, d.of_state, d.bias_of_state)))

    def peeping(gate: int, peephole: int, at: relax.Expr) -> relax.Expr:
        value = d.gate(every, gate)
        if d.peepholes is None:
            return value
        return t.emit(t.op.add(value, t.op.multiply(at, d.gate(d.peepholes, peephole))))

    input_gate = t.emit(f(peeping(0, 0, cell)))
    forget = t.op.subtract(scalars(t, h)(1), input_gate) if d.coupled else f(peeping(2, 2, cell))
    fresh = t.op.multiply(input_gate, g(d.gate(every, 3)))
    made = t.emit(t.op.add(t.op.multiply(forget, cell), fresh))
    output = f(peeping(1, 1, made))
    return t.emit(t.op.multiply(output, o(made))), made


@converts("RNN", since=7)
def _rnn(
    t: OnnxTranslator,
    node: OnnxNode,
    x: relax.Expr,
    w: relax.Expr,
    r: relax.Expr,
    b: relax.Expr | None = None,
    lengths: relax.Expr | None = None,
    h: relax.Expr | None = None,
) -> list[relax.Expr]:
    return _layer(t, node, _rnn_step, x, w, r, b, lengths, [h], ["Tanh"])


@converts("GRU", since=7)
def _gru(
    t: OnnxTranslator,
    node: OnnxNode,
    x: relax.Expr,
    w: relax.Expr,
    r: relax.Expr,
    b: relax.Expr | None = None,
    lengths: relax.Expr | None = None,
    h: relax.Expr | None = None,
) -> list[relax.Expr]:
    return _layer(t, node, _gru_step, x, w, r, b, lengths, [h], ["Sigmoid", "Tanh"])


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
    given = ["Sigmoid", "Tanh", "Tanh"]
    return _layer(t, node, _lstm_step, x, w, r, b, lengths, [h, cell], given, peepholes)


def _layer(
    t: OnnxTranslator,
    node: OnnxNode,
    step: Step,
    x: relax.Expr,
    w: relax.Expr,
    r: relax.Expr,
    b: relax.Expr | None,
    lengths: relax.Expr | None,
    states: Sequence[relax.Expr | None],
    default: Sequence[str],
    peepholes: relax.Expr | None = None,
) -> list[relax.Expr]:
    """The outputs of all steps, and the last states."""
    backwards = DIRECTIONS[choice(node.attribute("direction", "forward"), list(DIRECTIONS), "direction")]
    batch_first = bool(node.attribute("layout", 0))
    if batch_first:
        x = swap_axes(t, x, 0, 1)
        states = [None if s is None else swap_axes(t, s, 0, 1) for s in states]
    hidden = known(t.shape(r)[2], "the hidden size")
    if known(t.shape(w)[0], "the number of directions") != len(backwards):
        raise Unsupported(f"weights of {len(backwards)} directions are needed")
    activations = _activations(t, node, default, len(backwards))
    outputs, lasts = [], []
    for number, back in enumerate(backwards):
        bias = None if b is None else _of_direction(t, b, number)
        halves = (None, None) if bias is None else tuple(_half(t, bias, i) for i in range(2))
        direction = Direction(
            t, activations[number], hidden, _of_direction(t, w, number), _of_direction(t, r, number), *halves,
            None if peepholes is None else _of_direction(t, peepholes, number),
            bool(node.attribute("input_forget", 0)), bool(node.attribute("linear_before_reset", 0)),
        )  # fmt: skip
        first = tuple(
            t.full([t.shape(x)[1], hidden], 0, t.dtype(x)) if s is None else _of_direction(t, s, number) for s in states
        )
        made, last = _run(direction, step, x, first, lengths, back)
        outputs.append(made)
        lasts.append(last)
    every = t.emit(t.op.stack(outputs, 1))
    ends = [t.emit(t.op.stack([last[i] for last in lasts], 0)) for i in range(len(states))]
    if batch_first:
        every = t.emit(t.op.permute_dims(every, [2, 0, 1, 3]))
        ends = [swap_axes(t, end, 0, 1) for end in ends]
    return [every, *ends]


def _of_direction(t: OnnxTranslator, value: relax.Expr, number: int) -> relax.Expr:
    return t.emit(t.op.squeeze(slice_axis(t, value, 0, number, number + 1), [0]))


def _half(t: OnnxTranslator, bias: relax.Expr, number: int) -> relax.Expr:
    size = known(t.shape(bias)[0], "the number of biases") // 2
    return slice_axis(t, bias, 0, number * size, (number + 1) * size)


def _run(
    d: Direction, step: Step, x: relax.Expr, state: State, lengths: relax.Expr | None, back: bool
) -> tuple[relax.Expr, State]:
    """All steps of a direction: outputs as (steps, batch, hidden), and the last state."""
    t = d.t
    count = known(t.shape(x)[0], "the number of steps")
    turned = _turned(t, x, lengths) if back else x
    gates = d.product(turned, d.of_input, d.bias_of_input)
    made = []
    for at in range(count):
        now = t.emit(t.op.squeeze(slice_axis(t, gates, 0, at, at + 1), [0]))
        new = step(d, now, state)
        if lengths is None:
            made.append(new[0])
        else:
            live = t.emit(t.op.greater(t.op.expand_dims(lengths, [1]), t.scalar(at, t.dtype(lengths))))
            made.append(t.emit(t.op.where(live, new[0], scalars(t, new[0])(0))))
            new = tuple(t.emit(t.op.where(live, n, o)) for n, o in zip(new, state, strict=True))
        state = new
    every = t.emit(t.op.stack(made, 0)) if made else t.full([0, t.shape(x)[1], d.hidden], 0, t.dtype(x))
    return (_turned(t, every, lengths) if back else every), state


def _turned(t: OnnxTranslator, x: relax.Expr, lengths: relax.Expr | None) -> relax.Expr:
    """The steps in reverse order, for each sequence as far as it goes."""
    return t.emit(t.op.flip(x, 0) if lengths is None else t.op.reverse_sequence(x, lengths, 0, 1))


def _activations(t: OnnxTranslator, node: OnnxNode, default: Sequence[str], count: int) -> list[list[Activation]]:
    """The activations of each direction."""
    names = list(node.attribute("activations", list(default) * count))
    if len(names) != len(default) * count:
        raise Unsupported(f"{len(default) * count} activations are needed, not {len(names)}")
    alphas, betas = (iter(node.attribute(f"activation_{name}", ())) for name in ("alpha", "beta"))
    limit = node.attribute("clip", 0.0)
    gates = max(len(default) - 1, 1)  # what the cell's state goes through is not clipped
    made = [
        _activation(t, name, alphas, betas, limit if i % len(default) < gates or len(default) < 3 else 0.0)
        for i, name in enumerate(names)
    ]
    return [made[i : i + len(default)] for i in range(0, len(made), len(default))]


def _activation(
    t: OnnxTranslator, name: str, alphas: Iterator[float], betas: Iterator[float], limit: float
) -> Activation:
    """A function of one tensor; it takes the next of alphas and betas if it has such."""
    if name.lower() not in _ACTIVATIONS:
        raise Unsupported(f"activation `{name}` is not known")
    function, alpha, beta = _ACTIVATIONS[name.lower()]
    alpha = None if alpha is None else next(alphas, alpha)
    beta = None if beta is None else next(betas, beta)

    def apply(x: relax.Expr) -> relax.Expr:
        return function(t, t.op.clip(x, -limit, limit) if limit > 0 else x, alpha, beta)

    return apply

"""Recurrent layers over sequences of any length: LSTM, GRU and RNN with all options of ONNX.

A layer is lowered to one GEMM of all time steps' inputs with the input weights, and a loop over time in one TensorIR
function (`mlcc.ops.recurrent_steps`), which adds the product with the state and computes the gates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlcc.ir import construct, relax, tir
from mlcc.ops import activations
from mlcc.ops.activations import Activation
from mlcc.ops.gather import require_integers
from mlcc.ops.lazy import np
from mlcc.ops.recurrent_steps import Layer, lower_parallel_steps, lower_steps
from mlcc.ops.registry import Emit, Impl, bind_call
from mlcc.ops.shapes import (
    Dims,
    Tensor,
    fail,
    int64,
    known_different,
    product,
    require_float,
    result,
    same_dtype,
    shape_text,
    tensor,
)


@dataclass(frozen=True, slots=True)
class Cell:
    """A kind of recurrent layer: gates, states besides the hidden one, activations, and the names of its operands."""

    name: str
    gates: int
    default: str  # its activations
    has_cell_state: bool = False

    @property
    def states(self) -> tuple[str, ...]:
        return ("h0", "c0") if self.has_cell_state else ("h0",)

    @property
    def extras(self) -> tuple[str, ...]:
        return ("lengths", "peepholes") if self.has_cell_state else ("lengths",)


LSTM = Cell("lstm", 4, "sigmoid, tanh, tanh", True)
GRU = Cell("gru", 3, "sigmoid, tanh")
RNN = Cell("rnn", 1, "tanh")
DIRECTIONS = ("forward", "reverse", "bidirectional")

# ---------------------------------------------------------------- inference


def _activations(call: relax.Call, cell: Cell) -> tuple[Activation, ...]:
    """Return the activations of each direction in turn."""
    count = _directions(call)
    per_direction = len(activations.parse(cell.default))
    try:
        stated = activations.parse(call.attrs["activations"])
    except ValueError as problem:
        fail(call, "E0442", f"`activations`: {problem}")
    if len(stated) not in (per_direction, per_direction * count):
        fail(call, "E0442", f"`activations` must be {per_direction} for each direction, they are {len(stated)}")
    return stated if len(stated) == per_direction * count else stated * count


def _directions(call: relax.Call) -> int:
    """1, or 2 for a bidirectional layer."""
    if call.attrs["direction"] not in DIRECTIONS:
        fail(call, "E0442", f"`direction` must be {', '.join(DIRECTIONS)}, it is `{call.attrs['direction']}`")
    return 2 if call.attrs["direction"] == "bidirectional" else 1


def _require_shape(call: relax.Call, name: str, info: Tensor, wanted: Dims) -> None:
    """Refuse a tensor of another shape."""
    if info.ndim not in (-1, len(wanted)):
        fail(call, "E0445", f"`{name}` must have {len(wanted)} dimensions, it has {info.ndim}")
    if info.dims is not None and any(known_different(a, b) for a, b in zip(info.dims, wanted, strict=True)):
        fail(call, "E0445", f"`{name}` must have shape {shape_text(wanted)}, it has {shape_text(info.dims)}")


def infer_layer(cell: Cell) -> Any:
    """The hidden state of all steps (sequence, directions, batch, hidden), and the last state of each kind."""

    def infer(call: relax.Call) -> relax.StructInfo:
        return _infer(call, cell, tensor(call, 0), 1)

    return infer


def infer_steps(cell: Cell) -> Any:
    """Infer as for the layer; the inputs have already been multiplied by the input weights."""

    def infer(call: relax.Call) -> relax.StructInfo:
        return _infer(call, cell, tensor(call, 0), 0)

    return infer


def _infer(call: relax.Call, cell: Cell, x: Tensor, projected: int) -> relax.StructInfo:
    directions = int64(_directions(call))
    _activations(call, cell)
    names = [*(["w"] if projected else []), "r", "b", *cell.states, *cell.extras]
    infos = dict(zip(names, (tensor(call, i) for i in range(1, len(call.args))), strict=False))
    floats = [i for n, i in infos.items() if n != "lengths"]
    for info in (x, *floats):
        require_float(call, info)
    dtype = same_dtype(call, [*floats, x] if projected else floats)
    if "lengths" in infos:
        require_integers(call, infos["lengths"], "the lengths")
    r = infos["r"]
    if x.ndim not in (-1, 3) or r.ndim not in (-1, 3):
        fail(call, "E0445", f"`x` and `r` must have 3 dimensions, they have {x.ndim} and {r.ndim}")
    if x.dims is None or r.dims is None:
        ends = [result(None, dtype, 3, x.vdevice)] * len(cell.states)
        return relax.TupleStructInfo((result(None, dtype, 4, x.vdevice), *ends))
    sequence, batch, inputs = x.dims
    hidden = r.dims[2]
    gates = construct.mul(hidden, int64(cell.gates))
    wanted = {
        "w": (directions, gates, inputs), "r": (directions, gates, hidden),
        "b": (directions, construct.mul(gates, int64(2))), "h0": (directions, batch, hidden),
        "c0": (directions, batch, hidden), "lengths": (batch,),
        "peepholes": (directions, construct.mul(hidden, int64(3))),
    }  # fmt: skip
    if not projected:
        _require_shape(call, "gates", x, (sequence, batch, construct.mul(directions, gates)))
    for name, info in infos.items():
        _require_shape(call, name, info, wanted[name])
    end = result((directions, batch, hidden), dtype, vdevice=x.vdevice)
    return relax.TupleStructInfo(
        (result((sequence, directions, batch, hidden), dtype, vdevice=x.vdevice), *[end] * len(cell.states))
    )


# ---------------------------------------------------------------- lowering


def expand_layer(cell: Cell) -> Any:
    """Expand a layer to a GEMM of all inputs with the input weights, then the steps."""

    def expand(call: relax.Call, emit: Emit) -> relax.Call:
        x, w, *rest = call.args
        (sequence, batch, inputs), dtype = tensor(call, 0).dims, tensor(call, 0).dtype  # type: ignore[misc]
        directions, gates, _ = tensor(call, 1).dims  # type: ignore[misc]
        assert dtype is not None
        columns = product((directions, gates))
        rows = emit("reshape", x, relax_shape(product((sequence, batch)), inputs))
        weights = emit("permute_dims", emit("reshape", w, relax_shape(columns, inputs)), None)
        products = emit("matmul", rows, weights, "float32" if dtype.bits < 32 else None)
        gates_of_steps = emit("reshape", products, relax_shape(sequence, batch, columns))
        left_out = [None] * (2 + len(cell.states) + len(cell.extras) - len(rest))
        return bind_call(
            f"nn.{cell.name}_steps", (gates_of_steps, *rest, *left_out), dict(call.attrs.items()), call.span
        )

    return expand


def relax_shape(*dims: tir.Expr) -> relax.ShapeExpr:
    return relax.ShapeExpr(dims, relax.ShapeStructInfo(dims, len(dims)))


def layer_of(call: relax.Call, cell: Cell) -> Layer:
    """Return the settings of the recurrent layer that a call computes."""
    return Layer(
        cell.name, cell.gates, _directions(call), call.attrs["direction"] == "reverse", _activations(call, cell),
        call.attrs["clip"], bool(call.attrs.get("linear_before_reset")), bool(call.attrs.get("input_forget")),
    )  # fmt: skip


# ---------------------------------------------------------------- NumPy


def _np_steps(cell: Cell) -> Any:
    """Return the NumPy reference, which computes one direction, batch row and time step after the other."""

    def reference(call: relax.Call, gates: Any, r: Any, b: Any, h0: Any, *rest: Any) -> Any:
        c0 = rest[0] if cell.has_cell_state else h0
        lengths, peepholes = (*rest[cell.has_cell_state :], None, None)[:2]
        sequence, batch, _ = gates.shape
        directions, hidden = len(r), r.shape[2]
        real = np.dtype(gates.dtype)
        layer, width = layer_of(call, cell), cell.gates * hidden
        hidden_states = np.zeros((sequence, directions, batch, hidden), real)
        last_h, last_c = np.array(h0, real), np.array(c0, real)
        peephole_weights = np.zeros((directions, 3 * hidden), real) if peepholes is None else peepholes
        counts = np.full(batch, sequence) if lengths is None else np.clip(lengths.astype(np.int64), 0, sequence)
        for d, n in np.ndindex(directions, batch):
            h, c = last_h[d, n], last_c[d, n]
            for step in range(counts[n]):
                at = counts[n] - 1 - step if layer.backward(d) else step
                inputs = gates[at, n, d * width : (d + 1) * width]
                h, c = _NP_CELLS[cell.name](layer, layer.of(d), inputs, r[d], b[d], h, c, peephole_weights[d])
                hidden_states[at, d, n] = h
            last_h[d, n], last_c[d, n] = h, c
        return (hidden_states, last_h, last_c) if cell.has_cell_state else (hidden_states, last_h)

    return reference


def _np_layer(cell: Cell) -> Any:
    run = _np_steps(cell)

    def reference(call: relax.Call, x: Any, w: Any, *rest: Any) -> Any:
        return run(call, np.reshape(np.einsum("sbi,dgi->sbdg", x, w), (*x.shape[:2], w.shape[0] * w.shape[1])), *rest)

    return reference


def _np_lstm(
    layer: Layer, acts: Sequence[Activation], x: Any, r: Any, b: Any, h: Any, c: Any, holes: Any
) -> tuple[Any, Any]:
    i, o, f, new = np.split(x + r @ h + b[: len(x)] + b[len(x) :], 4)
    pi, po, pf = np.split(holes, 3)
    i = acts[0].numpy(layer.np_clip(i + pi * c))
    f = 1 - i if layer.input_forget else acts[0].numpy(layer.np_clip(f + pf * c))
    c = f * c + i * acts[1].numpy(layer.np_clip(new))
    return acts[0].numpy(layer.np_clip(o + po * c)) * acts[2].numpy(c), c


def _np_gru(
    layer: Layer, acts: Sequence[Activation], x: Any, r: Any, b: Any, h: Any, c: Any, holes: Any
) -> tuple[Any, Any]:
    size = len(h)
    first, second = b[: 3 * size], b[3 * size :]
    z, reset = np.split(x[: 2 * size] + first[: 2 * size] + r[: 2 * size] @ h + second[: 2 * size], 2)
    z, reset = acts[0].numpy(layer.np_clip(z)), acts[0].numpy(layer.np_clip(reset))
    if layer.linear_before_reset:
        past = reset * (r[2 * size :] @ h + second[2 * size :])
    else:
        past = r[2 * size :] @ (reset * h) + second[2 * size :]
    new = acts[1].numpy(layer.np_clip(x[2 * size :] + first[2 * size :] + past))
    state = (1 - z) * new + z * h
    return state, state


def _np_rnn(
    layer: Layer, acts: Sequence[Activation], x: Any, r: Any, b: Any, h: Any, c: Any, holes: Any
) -> tuple[Any, Any]:
    state = acts[0].numpy(layer.np_clip(x + b[: len(x)] + r @ h + b[len(x) :]))
    return state, state


_NP_CELLS = {"lstm": _np_lstm, "gru": _np_gru, "rnn": _np_rnn}

# ---------------------------------------------------------------- the table


def _lower(cell: Cell) -> Any:
    return lambda call, *tensors: lower_steps(layer_of(call, cell), call, *tensors)


def _lower_parallel(cell: Cell) -> Any:
    return lambda call, *tensors: lower_parallel_steps(layer_of(call, cell), call, *tensors)


def _entries(cell: Cell, more: str = "") -> dict[str, Impl]:
    """The entries of a layer and of its steps."""
    operands = f"r, b, {', '.join(cell.states)}, {', '.join(f'{n} = None' for n in cell.extras)}"
    attributes = f'direction: str = "forward", activations: str = "{cell.default}", clip: float? = None{more}'
    return {
        f"nn.{cell.name}": Impl(
            f"x, w, {operands}, {attributes}", infer_layer(cell), _np_layer(cell), expand=expand_layer(cell)
        ),
        f"nn.{cell.name}_steps": Impl(
            f"gates, {operands}, {attributes}",
            infer_steps(cell),
            _np_steps(cell),
            _lower(cell),
            many=_lower_parallel(cell),
        ),
    }


OPS: dict[str, Impl] = {
    **_entries(LSTM, ", input_forget: bool = False"),
    **_entries(GRU, ", linear_before_reset: bool = False"),
    **_entries(RNN),
}

"""The steps of recurrent layers: a loop over time that multiplies the state by its weights and computes the gates.

Each step depends on the state of the previous one, so the loop over time is serial. On CPUs a step is a GEMM of the
whole batch in register tiles of ROWS rows by a panel of packed weights, with tiles of one row by PANELS panels for the
tail, followed by the gates in vectors. On GPUs a thread block computes a row, with its state in shared memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mlcc import te
from mlcc.ir import construct, relax, tir
from mlcc.ir.dtypes import INT64
from mlcc.ops.activations import Activation
from mlcc.ops.lazy import np
from mlcc.ops.topi import float_constant
from mlcc.te import statements as code
from mlcc.te.scalar import Scalar
from mlcc.te.statements import THREADS, BufferElements

LANES = 16  # columns of a vector
PANEL = 32  # columns of a panel of weights
ROWS, PANELS = 4, 4  # a tile is ROWS rows by a panel, or a row by PANELS panels
MOST_SHARED = 1024  # hidden elements up to which the state is kept in shared memory


@dataclass(frozen=True, slots=True)
class Layer:
    """The settings of a recurrent layer: kind, gates, directions, activations of all directions, ONNX's switches."""

    kind: str
    gates: int
    directions: int
    reverse: bool
    activations: tuple[Activation, ...]
    clip: float | None
    linear_before_reset: bool
    input_forget: bool

    def backward(self, direction: int) -> bool:
        """Return True if a direction begins with the last time step."""
        return self.reverse or direction == 1

    def of(self, direction: int) -> tuple[Activation, ...]:
        """The activations of a direction."""
        count = len(self.activations) // self.directions
        return self.activations[direction * count : (direction + 1) * count]

    def clipped(self, x: Scalar) -> Scalar:
        """Return the input of an activation, clamped to [-clip, clip] if the layer has `clip`."""
        if self.clip is None:
            return x
        return te.max(te.min(x, float_constant(self.clip, x.dtype)), float_constant(-self.clip, x.dtype))  # type: ignore[no-any-return]

    def np_clip(self, x: Any) -> Any:
        return x if self.clip is None else np.clip(x, -self.clip, self.clip)


class _Operands:
    """The tensors of a call by name, with the recurrent weights apart."""

    def __init__(self, layer: Layer, gates: te.Tensor, r: te.Tensor, b: te.Tensor, *rest: te.Tensor) -> None:
        names = ["h0", "c0", "lengths", "peepholes"] if layer.kind == "lstm" else ["h0", "lengths"]
        self.real, self.weights = gates.dtype, r
        self.hidden = tir.const_int(r.buffer.shape[2])
        self.tensors = {"gates": gates, "b": b, **dict(zip(names, rest, strict=False))}

    def transposed_weights(self) -> te.Tensor:
        """The recurrent weights (directions, hidden, gates), in the dtype of the computation."""
        r = self.weights
        shape = (r.shape[0], r.shape[2], r.shape[1])
        return te.compute(shape, lambda d, k, g: r(d, g, k).astype(self.real), name="recurrent_weights")  # type: ignore[no-any-return]

    def cells(self, ins: Sequence[tir.Buffer]) -> dict[str, BufferElements]:
        return {name: BufferElements(buffer) for name, buffer in zip(self.tensors, ins, strict=True)}


Each = Callable[[Callable[[Scalar], Any]], Any]  # statements for every hidden element
State = tuple[Callable[[Scalar], Scalar], Callable[[Scalar, Scalar], Any]]  # how an element is loaded and stored


class _RowGates:
    """Emit the gates of one batch row in one direction, for each hidden element, from the `product` of the state with
    the recurrent weights."""

    def __init__(
        self, layer: Layer, direction: int, cells: dict[str, BufferElements], hidden: Scalar,
        state: Callable[[str], State],
        product: Callable[[int, Scalar], Scalar],
    ) -> None:  # fmt: skip
        self.layer, self.direction, self.cells, self.hidden = layer, direction, cells, hidden
        self.acts = layer.of(direction)
        self.state, self.product = state, product

    def gate(self, number: int, at: Scalar, n: Scalar, j: Scalar, recurrent: bool = True) -> Scalar:
        """Return the pre-activation of a gate: input's product, biases and, if `recurrent`, the state's product."""
        real = self.cells["gates"].dtype
        column = self.hidden * number + j
        width = self.hidden * self.layer.gates
        operands = self.cells["gates"][at, n, width * self.direction + column] + self.bias(column).astype(real)
        return operands + self.past(number, j) if recurrent else operands  # type: ignore[no-any-return]

    def past(self, number: int, j: Scalar) -> Scalar:
        """The recurrent term of a gate, with its bias."""
        column = self.hidden * number + j
        bias = self.bias(self.hidden * self.layer.gates + column).astype(self.cells["gates"].dtype)
        return self.product(number, column) + bias  # type: ignore[no-any-return]

    def bias(self, column: Scalar) -> Scalar:
        return self.cells["b"][self.direction, column]

    def active(self, which: int, x: Scalar) -> Scalar:
        return self.acts[which](self.layer.clipped(x))

    def peephole(self, number: int, x: Scalar, c: Scalar, j: Scalar) -> Scalar:
        if "peepholes" not in self.cells:
            return x
        return x + self.cells["peepholes"][self.direction, self.hidden * number + j].astype(x.dtype) * c  # type: ignore[no-any-return]

    def lstm(self, at: Scalar, n: Scalar, j: Scalar) -> Any:
        """Emit LSTM gates (in the order i, o, f, c): the cell state, then the hidden state."""
        get, put = self.state("c")
        old = get(j)
        i = self.active(0, self.peephole(0, self.gate(0, at, n, j), old, j))
        one = te.const(1, i.dtype)
        if self.layer.input_forget:
            f = one - i
        else:
            f = self.active(0, self.peephole(2, self.gate(2, at, n, j), old, j))
        new = self.active(1, self.gate(3, at, n, j))
        now = get(j)
        o = self.active(0, self.peephole(1, self.gate(1, at, n, j), now, j))
        return put(f * old + i * new, j), self.hide(o * self.acts[2](now), at, n, j)

    def hide(self, value: Scalar, at: Scalar, n: Scalar, j: Scalar) -> Any:
        """Store the hidden state, also in the output."""
        get, put = self.state("h")
        return put(value, j), self.cells["every"].set(get(j), at, self.direction, n, j)

    def reset(self, at: Scalar, n: Scalar, j: Scalar) -> Any:
        """Emit the state scaled by the reset gate, the operand of a GRU's second product."""
        _, put = self.state("past")
        get, _ = self.state("h")
        return put(self.active(0, self.gate(1, at, n, j)) * get(j), j)

    def gru(self, at: Scalar, n: Scalar, j: Scalar) -> Any:
        """Emit GRU gates (in the order z, r, h)."""
        get, _ = self.state("h")
        past = self.past(2, j)
        if self.layer.linear_before_reset:
            past = self.active(0, self.gate(1, at, n, j)) * past
        new = self.active(1, self.gate(2, at, n, j, recurrent=False) + past)
        z = self.active(0, self.gate(0, at, n, j))
        return self.hide((te.const(1, z.dtype) - z) * new + z * get(j), at, n, j)

    def rnn(self, at: Scalar, n: Scalar, j: Scalar) -> Any:
        return self.hide(self.active(0, self.gate(0, at, n, j)), at, n, j)


def _two_products(layer: Layer) -> bool:
    """Return True for a GRU with the reset gate before the last gate's product, which needs two products a step."""
    return layer.kind == "gru" and not layer.linear_before_reset


# ---------------------------------------------------------------- CPU


def _lanes(extent: Scalar, known: int | None, body: Callable[[Scalar], Any]) -> Any:
    """Emit `body` for every index below the extent, in vectors of LANES with a scalar tail."""
    if known is None or known < LANES:
        return code.loop(extent, body, "j")
    whole = known // LANES
    main = code.loop(whole, lambda o: _vector(lambda i: body(o * LANES + i)), "o")
    rest = code.loop(known % LANES, lambda i: body(i + whole * LANES), "j")
    return (main, rest) if known % LANES else main


def _vector(body: Callable[[Scalar], Any]) -> tir.For:
    """Emit `body` as a vectorized loop of LANES iterations."""
    var = tir.Var("lane", INT64)
    zero, extent = construct.const(0, INT64), construct.const(LANES, INT64)
    return tir.For(var, zero, extent, tir.ForKind.VECTORIZED, code.flatten_statements(body(Scalar(var))))


class _RecurrentProduct:
    """The GEMM of a state (batch, hidden) with the weights of some gates, into scratch memory.

    The weights are packed into panels of PANEL columns, zero-padded, so that a tile reads memory contiguously; if the
    hidden size is symbolic, they are only transposed.
    """

    def __init__(self, operands: _Operands, batch: Scalar, first: int, gates: int) -> None:
        r, real, self.known = operands.weights, operands.real, operands.hidden
        self.hidden, self.batch, self.tile = r.shape[2], batch, None
        self.first, count = self.hidden * first, self.hidden * gates
        if self.known is None:
            self.weights = operands.transposed_weights()
            self.count = count
            self.acc = code.scratch(f"acc_{first}", (batch, count), real)
            return
        known = self.known
        self.panels = -(-known * gates // PANEL)

        def packed(d: Scalar, panel: Scalar, k: Scalar, lane: Scalar) -> Scalar:
            column = panel * PANEL + lane
            value = r(d, column + known * first, k).astype(real)
            return value if known * gates % PANEL == 0 else te.if_then_else(column < known * gates, value, 0)

        shape = (r.shape[0], self.panels, known, PANEL)
        self.weights = te.compute(shape, packed, name="recurrent_weights_packed")
        self.acc = code.scratch(f"acc_{first}", (batch, self.panels * PANEL), real)
        self.tile = code.scratch(f"tile_{first}", (max(ROWS, PANELS) * PANEL,), real, "local")

    @property
    def buffers(self) -> tuple[tir.Buffer, ...]:
        return tuple(c.buffer for c in (self.acc, self.tile) if c is not None)

    def value(self, n: Scalar, column: Scalar) -> Scalar:
        return self.acc[n, column - self.first]

    def multiply(self, source: BufferElements, weights: BufferElements, direction: int) -> Any:
        """Emit the product for all rows of the batch."""
        if self.known is None:
            return code.loop(self.batch, lambda n: self._untiled(source, weights, direction, n), "n")
        blocks, several = self.batch // ROWS, self.panels // PANELS

        def block(o: Scalar) -> Any:
            return self._panel_loop(self.panels, lambda p: self._tile(source, weights, direction, o * ROWS, p, ROWS, 1))

        def row(o: Scalar) -> Any:
            n = blocks * ROWS + o
            wide = self._panel_loop(several, lambda p: self._tile(source, weights, direction, n, p * PANELS, 1, PANELS))
            rest = self.panels - several * PANELS
            narrow = self._panel_loop(
                rest, lambda p: self._tile(source, weights, direction, n, p + several * PANELS, 1, 1)
            )
            return wide, narrow

        return code.loop(blocks, block, "o"), code.loop(self.batch - blocks * ROWS, row, "n")

    def _panel_loop(self, count: int, body: Callable[[Scalar], Any]) -> Any:
        return code.loop(count, body, "panel") if count else ()

    def _untiled(self, source: BufferElements, weights: BufferElements, direction: int, n: Scalar) -> Any:
        def add(k: Scalar) -> Any:
            def one(g: Scalar) -> Any:
                return self.acc.set(self.acc[n, g] + source[n, k] * weights[direction, k, self.first + g], n, g)

            return code.loop(self.count, one, "g")

        clear = code.loop(self.count, lambda g: self.acc.set(te.const(0, self.acc.dtype), n, g), "g")
        return clear, code.loop(self.hidden, add, "k")

    def _tile(
        self,
        source: BufferElements,
        weights: BufferElements,
        direction: int,
        n: Scalar,
        panel: Scalar,
        rows: int,
        panels: int,
    ) -> Any:
        """Emit a register tile of some rows by some panels, accumulated by rank-1 updates."""
        assert self.tile is not None
        tile, acc = self.tile, self.acc
        parts = [(r, p, v) for r in range(rows) for p in range(panels) for v in range(PANEL // LANES)]

        def each(body: Callable[[int, int, Scalar, Scalar], Any]) -> list[Any]:
            """Emit `body(row, panel, column, index in the tile)` for all columns, in vectors of LANES."""

            def part(r: int, p: int, v: int) -> tir.For:
                return _vector(lambda i: body(r, p, i + v * LANES, i + ((r * panels + p) * PANEL + v * LANES)))

            return [part(*numbers) for numbers in parts]

        def add(k: Scalar) -> Any:
            def term(r: int, p: int, column: Scalar, at: Scalar) -> Any:
                return tile.set(tile[at] + source[n + r, k] * weights[direction, panel + p, k, column], at)

            return each(term)

        clear = each(lambda r, p, column, at: tile.set(te.const(0, acc.dtype), at))
        store = each(lambda r, p, column, at: acc.set(tile[at], n + r, (panel + p) * PANEL + column))
        return clear, code.loop(self.known or 0, add, "k"), store


def lower_steps(layer: Layer, call: relax.Call, *tensors: te.Tensor) -> Any:
    """Lower the steps for CPUs."""
    operands = _Operands(layer, *tensors)
    sequence, batch, _ = operands.tensors["gates"].shape
    hidden = operands.weights.shape[2]
    names = ["h", *(["c"] if layer.kind == "lstm" else []), *(["past"] if _two_products(layer) else [])]
    state_cells = {name: code.scratch(f"state_{name}", (batch, hidden), operands.real) for name in names}
    split = layer.gates - _two_products(layer)  # gates of the first product
    products = [_RecurrentProduct(operands, batch, 0, split)]
    products += [_RecurrentProduct(operands, batch, split, 1)] if _two_products(layer) else []
    infos = call.struct_info.fields  # type: ignore[union-attr]

    def body(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> Any:
        weights = [BufferElements(b) for b in ins[: len(products)]]
        cells = operands.cells(ins[len(products) :]) | {"every": BufferElements(outs[0])}
        last = dict(zip("hc", (BufferElements(b) for b in outs[1:]), strict=False))

        def each(fn: Callable[[Scalar], Any]) -> Any:
            return _lanes(hidden, operands.hidden, fn)

        def rows(fn: Callable[[Scalar], Any]) -> Any:
            return code.loop(batch, fn, "n")

        def begin(d: int, n: Scalar) -> Any:
            def load(name: str) -> Any:
                return each(lambda j: state_cells[name].set(cells[f"{name}0"][d, n, j], n, j))

            loads = [load(name) for name in last]
            if "lengths" not in cells or "past" not in state_cells:
                return loads
            return loads, each(
                lambda j: state_cells["past"].set(te.const(0, operands.real), n, j)
            )  # read for rows without any step

        def end(d: int, n: Scalar) -> Any:
            def store(name: str) -> Any:
                return each(lambda j: last[name].set(state_cells[name][n, j], d, n, j))

            return [store(name) for name in last]

        def gate(d: int, step: Scalar, n: Scalar, which: str) -> Any:
            def state(name: str) -> State:
                return lambda j: state_cells[name][n, j], lambda value, j: state_cells[name].set(value, n, j)

            row = _RowGates(
                layer, d, cells, hidden, state, lambda which, column: products[which >= split].value(n, column)
            )
            return _at_time_step(
                layer, d, cells, sequence, step, n, lambda at: each(lambda j: getattr(row, which)(at, n, j))
            )

        def one(d: int, step: Scalar) -> Any:
            parts = [products[0].multiply(state_cells["h"], weights[0], d)]
            if _two_products(layer):
                parts.append(rows(lambda n: gate(d, step, n, "reset")))
                parts.append(products[1].multiply(state_cells["past"], weights[1], d))
            parts.append(rows(lambda n: gate(d, step, n, layer.kind)))
            silent = rows(lambda n: _zero_after_end(d, cells, step, n, each)) if "lengths" in cells else ()
            return parts, silent

        def direction(d: int) -> Any:
            every_step = code.loop(sequence, lambda t: one(d, t), "t")
            return rows(lambda n: begin(d, n)), every_step, rows(lambda n: end(d, n))

        return [direction(d) for d in range(layer.directions)]

    scratch = (*(c.buffer for c in state_cells.values()), *(b for p in products for b in p.buffers))
    return _extern(layer, [*(p.weights for p in products), *operands.tensors.values()], infos, body, scratch)


def _extern(layer: Layer, tensors: Sequence[te.Tensor], infos: Any, body: Any, scratch: Any) -> Any:
    dims, dtypes = [i.dims for i in infos], [i.dtype for i in infos]
    return te.extern(dims, tensors, body, f"T_{layer.kind}_steps", dtypes, scratch=scratch)


def _length(cells: dict[str, BufferElements], sequence: Scalar, n: Scalar) -> Scalar:
    """The number of time steps of a batch row."""
    if "lengths" not in cells:
        return sequence
    return te.max(te.min(cells["lengths"][n].astype("int64"), sequence), te.const(0, "int64"))  # type: ignore[no-any-return]


def _at_time_step(
    layer: Layer, d: int, cells: dict[str, BufferElements], sequence: Scalar, step: Scalar, n: Scalar,
    body: Callable[[Scalar], Any],
) -> Any:  # fmt: skip
    """Emit `body` for the time index of a step, guarded by the length of the row."""
    length = _length(cells, sequence, n)
    stmt = body(length - 1 - step if layer.backward(d) else step)
    return code.if_then(step < length, stmt) if "lengths" in cells else stmt


def _zero_after_end(d: int, cells: dict[str, BufferElements], step: Scalar, n: Scalar, each: Each) -> Any:
    """Emit zeros for the steps after the end of a batch row."""
    every = cells["every"]
    zero = te.const(0, every.dtype)
    length = _length(cells, every.shape[0], n)
    return code.if_then(step >= length, each(lambda j: every.set(zero, step, d, n, j)))


# ---------------------------------------------------------------- GPU


def lower_parallel_steps(layer: Layer, call: relax.Call, *tensors: te.Tensor) -> Any:
    """Lower the steps for GPUs; None if the state does not fit shared memory."""
    operands = _Operands(layer, *tensors)
    if operands.hidden is None or operands.hidden > MOST_SHARED:
        return None
    transposed, known = operands.transposed_weights(), operands.hidden
    sequence, batch, _ = operands.tensors["gates"].shape
    hidden = operands.weights.shape[2]
    names = ["h", *(["c"] if layer.kind == "lstm" else []), *(["past"] if _two_products(layer) else [])]
    sizes = {**dict.fromkeys(names, known), "acc": known * layer.gates}
    state_cells_by_direction = [  # each direction is a kernel with its own shared memory
        {name: code.scratch(f"{name}_{d}", (size,), operands.real, "shared") for name, size in sizes.items()}
        for d in range(layer.directions)
    ]
    totals = [code.scratch(f"total_{d}", (1,), operands.real, "local") for d in range(layer.directions)]
    infos = call.struct_info.fields  # type: ignore[union-attr]

    def threads(count: int, fn: Callable[[Scalar], Any]) -> Any:
        def one(t: Scalar) -> Any:
            if count <= THREADS:
                return code.if_then(t < count, fn(t))
            rounds = -(-count // THREADS)
            return code.loop(rounds, lambda o: code.if_then(o * THREADS + t < count, fn(o * THREADS + t)), "o")

        return code.thread_bound_loop(THREADS, "threadIdx.x", one)

    def body(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> Any:
        weights, cells = BufferElements(ins[0]), operands.cells(ins[1:]) | {"every": BufferElements(outs[0])}
        last = dict(zip("hc", (BufferElements(b) for b in outs[1:]), strict=False))

        def multiply(d: int, source: BufferElements, first: int, count: int) -> Any:
            total, acc = totals[d], state_cells_by_direction[d]["acc"]

            def column(g: Scalar) -> Any:
                at = g + first * known

                def add(k: Scalar) -> Any:
                    return total.set(total[0] + source[k] * weights[d, k, at], 0)

                return total.set(0, 0), code.loop(known, add, "k"), acc.set(total[0], at)

            return threads(count * known, column)

        def one(d: int, n: Scalar, step: Scalar) -> Any:
            state_cells = state_cells_by_direction[d]

            def state(name: str) -> State:
                return lambda j: state_cells[name][j], lambda value, j: state_cells[name].set(value, j)

            row = _RowGates(layer, d, cells, hidden, state, lambda _, column: state_cells["acc"][column])
            length = _length(cells, sequence, n)
            at = length - 1 - step if layer.backward(d) else step
            parts = [multiply(d, state_cells["h"], 0, layer.gates - _two_products(layer))]
            if _two_products(layer):
                parts.append(threads(known, lambda j: row.reset(at, n, j)))
                parts.append(multiply(d, state_cells["past"], 2, 1))
            return parts, threads(known, lambda j: getattr(row, layer.kind)(at, n, j))

        def direction(d: int, n: Scalar) -> Any:
            length, state_cells = _length(cells, sequence, n), state_cells_by_direction[d]
            every, zero = cells["every"], te.const(0, cells["every"].dtype)

            def silent(t: Scalar) -> Any:
                return threads(known, lambda j: every.set(zero, length + t, d, n, j))

            rest = code.loop(sequence - length, silent, "t") if "lengths" in cells else ()

            def load(name: str) -> Any:
                return threads(known, lambda j: state_cells[name].set(cells[f"{name}0"][d, n, j], j))

            def store(name: str) -> Any:
                return threads(known, lambda j: last[name].set(state_cells[name][j], d, n, j))

            every_step = code.loop(length, lambda t: one(d, n, t), "t")
            return [load(name) for name in last], every_step, [store(name) for name in last], rest

        def kernel(d: int) -> Any:
            return code.thread_bound_loop(batch, "blockIdx.x", lambda n: direction(d, n))

        return [kernel(d) for d in range(layer.directions)]

    scratch = (
        *(c.buffer for state_cells in state_cells_by_direction for c in state_cells.values()),
        *(c.buffer for c in totals),
    )
    return _extern(layer, [transposed, *operands.tensors.values()], infos, body, scratch)

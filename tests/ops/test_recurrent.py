"""LSTM, GRU and RNN: equations written out here, sequences of any length, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.errors import CompileError
from mlcc.interp import run_function
from mlcc.ops import activations

GATES = {"lstm": 4, "gru": 3, "rnn": 1}


def layer(kind: str, hidden: Any = 5, directions: int = 1, more: str = "", **attrs: Any) -> mlcc.IRModule:
    """A layer of symbolic time, batch and inputs; `more` are its last operands, with their types."""
    gates, twice = (
        f'"{n} * {hidden}"' if isinstance(hidden, str) else n * hidden for n in (GATES[kind], 2 * GATES[kind])
    )
    size = f'"{hidden}"' if isinstance(hidden, str) else hidden
    given = f'x: R.Tensor(("s", "b", "i"), "float32"), w: R.Tensor(({directions}, {gates}, "i"), "float32"), '
    given += (
        f'r: R.Tensor(({directions}, {gates}, {size}), "float32"), v: R.Tensor(({directions}, {twice}), "float32"), '
    )
    given += f'h0: R.Tensor(({directions}, "b", {size}), "float32")'
    names = ["x", "w", "r", "v", "h0"]
    if kind == "lstm":
        given, names = given + f', c0: R.Tensor(({directions}, "b", {size}), "float32")', [*names, "c0"]
    if more:
        given, names = f"{given}, {more}", [*names, *(p.partition(":")[0].strip() for p in more.split("R.Tensor")[:-1])]
        names = [n.rpartition(",")[2].strip() for n in names]
    keyed = "".join(f", {k}={v!r}" for k, v in attrs.items())
    return mlcc.parse(f"""
@I.ir_module
class Module:
    @R.function
    def main({given}):
        with R.dataflow():
            gv = R.nn.{kind}({", ".join(names)}{keyed})
            R.output(gv)
        return gv
""")


def operands(kind: str, steps: int, batch: int, hidden: int = 5, directions: int = 1) -> list[np.ndarray]:
    rng = np.random.default_rng(steps + 10 * batch)
    gates = GATES[kind] * hidden
    shapes = [(steps, batch, 3), (directions, gates, 3), (directions, gates, hidden), (directions, 2 * gates)]
    shapes += [(directions, batch, hidden)] * (1 + (kind == "lstm"))
    return [rng.uniform(-1, 1, s).astype("float32") for s in shapes]


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def one_direction(kind: str, x: Any, w: Any, r: Any, v: Any, h: Any, c: Any = None) -> tuple[Any, ...]:
    """All rows of the batch at once, from the first step on, by the equations."""
    hidden, made = h.shape[1], []
    first, second = np.split(v, 2)

    def part(m: Any, gate: int) -> Any:
        return m[gate * hidden : (gate + 1) * hidden]

    for now in x:

        def gate(n: int, state: Any, now: Any = now) -> Any:
            return now @ part(w, n).T + part(first, n) + state @ part(r, n).T + part(second, n)

        if kind == "rnn":
            h = np.tanh(gate(0, h))
        elif kind == "gru":
            z, reset = sigmoid(gate(0, h)), sigmoid(gate(1, h))
            h = (1 - z) * np.tanh(gate(2, reset * h)) + z * h
        else:
            i, o, f = (sigmoid(gate(n, h)) for n in range(3))
            c = f * c + i * np.tanh(gate(3, h))
            h = o * np.tanh(c)
        made.append(h)
    every = np.stack(made) if made else np.zeros((0, *h.shape), "float32")
    return (every, h) if c is None else (every, h, c)


@pytest.mark.parametrize("kind", GATES)
def test_layers_match_their_equations(kind: str) -> None:
    """One object for every length and batch, none of both included."""
    mod = layer(kind)
    run = mlcc.load(mlcc.build(mod))["main"]
    for steps, batch in (1, 1), (5, 1), (3, 4), (7, 9), (0, 2), (2, 0):
        given = operands(kind, steps, batch)
        x, *rest = given
        want = one_direction(kind, x, *(a[0] for a in rest))
        for made in run(*given), run_function(mod, "main", given):
            np.testing.assert_allclose(made[0][:, 0], want[0], atol=2e-6)
            for a, b in zip(made[1:], want[1:], strict=True):
                np.testing.assert_allclose(a[0], b, atol=2e-6)


@pytest.mark.parametrize("kind", GATES)
def test_wide_states_match_their_equations(kind: str) -> None:
    """Panels that are not full, rows that are left over, several panels at once."""
    run = mlcc.load(mlcc.build(layer(kind, 50)))["main"]
    for batch in (1, 6):
        given = operands(kind, 3, batch, 50)
        want = one_direction(kind, given[0], *(a[0] for a in given[1:]))
        np.testing.assert_allclose(run(*given)[0][:, 0], want[0], atol=1e-5)


@pytest.mark.parametrize("kind", GATES)
def test_symbolic_hidden_sizes_match_their_equations(kind: str) -> None:
    run = mlcc.load(mlcc.build(layer(kind, "n")))["main"]
    given = operands(kind, 4, 3, 6)
    want = one_direction(kind, given[0], *(a[0] for a in given[1:]))
    np.testing.assert_allclose(run(*given)[0][:, 0], want[0], atol=2e-6)


@pytest.mark.parametrize("kind", GATES)
def test_directions_and_lengths_match_their_equations(kind: str) -> None:
    """The second direction runs from a row's own end; what lies behind it is 0."""
    lengths = np.array([4, 0, 6, 9], "int32")
    mod = layer(kind, directions=2, more='n: R.Tensor(("b",), "int32")', direction="bidirectional")
    given = operands(kind, 6, 4, directions=2)
    for made in mlcc.load(mlcc.build(mod))["main"](*given, lengths), run_function(mod, "main", [*given, lengths]):
        for row, length in enumerate(np.minimum(lengths, 6)):
            x, w, r, v, *states = given
            for d in (0, 1):
                own = x[:length, row : row + 1]
                start = [s[d, row : row + 1] for s in states]
                want = one_direction(kind, own[::-1] if d else own, w[d], r[d], v[d], *start)
                np.testing.assert_allclose(made[0][:length, d, row], want[0][:: -1 if d else 1, 0], atol=2e-6)
                assert not made[0][length:, d, row].any()
                for a, b in zip(made[1:], want[1:], strict=True):
                    np.testing.assert_allclose(a[d, row], b[0], atol=2e-6)


@pytest.mark.parametrize("kind", GATES)
def test_emulated_layers_match_the_interpreter(kind: str) -> None:
    mod = layer(kind, directions=2, more='n: R.Tensor(("b",), "int32")', direction="bidirectional")
    given = [*operands(kind, 4, 3, directions=2), np.array([4, 0, 2], "int32")]
    made = mlcc.load(mlcc.build(mod, "cuda{arch=sm_90}"), emulate=True)["main"](*given)
    for a, b in zip(made, run_function(mod, "main", given), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6)


def test_optional_attributes_match_the_equations() -> None:
    """One step of each, from a state that is known."""
    more = 'n: R.Tensor(("b",), "int32"), p: R.Tensor((1, 15), "float32")'
    mod = layer("lstm", more=more, input_forget=True, clip=0.5)
    given = operands("lstm", 1, 2)
    x, w, r, v, h, c = (a[0] for a in given)
    p = np.linspace(-1, 1, 15, dtype="float32")
    i, o, _, new = np.split(x @ w.T + h @ r.T + v[:20] + v[20:], 4, 1)
    i = sigmoid(np.clip(i + p[:5] * c, -0.5, 0.5))
    state = (1 - i) * c + i * np.tanh(np.clip(new, -0.5, 0.5))
    want = sigmoid(np.clip(o + p[5:10] * state, -0.5, 0.5)) * np.tanh(state)
    made = mlcc.load(mlcc.build(mod))["main"](*given, np.array([1, 1], "int32"), p[None])
    np.testing.assert_allclose(made[0][0, 0], want, atol=1e-6)
    given = operands("gru", 1, 2)
    x, w, r, v, h = (a[0] for a in given)
    past, now = h @ r.T + v[15:], x @ w.T + v[:15]
    z, reset = sigmoid(now + past)[:, :5], sigmoid(now + past)[:, 5:10]
    want = (1 - z) * np.tanh(now[:, 10:] + reset * past[:, 10:]) + z * h
    made = mlcc.load(mlcc.build(layer("gru", linear_before_reset=True)))["main"](*given)
    np.testing.assert_allclose(made[1][0], want, atol=1e-6)


X = np.linspace(-3, 3, 25, dtype="float32")
KNOWN = {
    "relu": np.maximum(X, 0), "tanh": np.tanh(X), "sigmoid": sigmoid(X), "affine(2, 0.5)": 2 * X + 0.5,
    "leaky_relu(0.1)": np.where(X < 0, 0.1 * X, X), "thresholded_relu(0.7)": np.where(X >= 0.7, X, 0),
    "scaled_tanh(2, 0.5)": 2 * np.tanh(0.5 * X), "hard_sigmoid": np.clip(0.2 * X + 0.5, 0, 1),
    "elu(0.5)": np.where(X < 0, 0.5 * (np.exp(X) - 1), X), "softsign": X / (1 + abs(X)),
    "softplus": np.log1p(np.exp(X)),
}  # fmt: skip


def test_activations_match_known_values() -> None:
    assert {name.partition("(")[0] for name in KNOWN} == set(activations.NAMES)
    zero = [np.zeros(s, "float32") for s in ((1, 1, 25), (1, 25), (1, 50), (1, 1, 25))]
    for name, want in KNOWN.items():
        run = mlcc.load(mlcc.build(layer("rnn", 25, activations=name), opt_level=0))["main"]
        made = run(
            X.reshape(1, 1, 25), np.eye(25, dtype="float32")[None], np.zeros((1, 25, 25), "float32"), zero[2], zero[3]
        )
        np.testing.assert_allclose(made[0].ravel(), want, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    "kind, attrs, message",
    [
        ("rnn", {"activations": "swish"}, "`swish` is not one of sigmoid, tanh"),
        ("rnn", {"activations": "relu(1)"}, "takes 0 numbers"),
        ("lstm", {"activations": "tanh"}, "must be 3 for each direction"),
        ("gru", {"direction": "both"}, "`direction` must be forward"),
        ("gru", {"direction": "bidirectional"}, r"`w` must have shape \(2, 15, i\)"),
    ],
)
def test_wrong_layers_are_refused(kind: str, attrs: dict[str, str], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        layer(kind, **attrs)


def test_an_operand_left_out_before_one_that_is_given() -> None:
    with pytest.raises(CompileError, match="E0441.*`lengths` is omitted although `peepholes` after it is given"):
        mlcc.relax.op.nn.lstm(*_tensors(6), peepholes=_tensors(1)[0])


def _tensors(count: int) -> list[Any]:
    info = mlcc.relax.TensorStructInfo(None, mlcc.ir.dtypes.FLOAT32, 3)
    return [mlcc.relax.Var(f"t{i}", info) for i in range(count)]

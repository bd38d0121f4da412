"""Arguments of `run` and `bench`: single arrays, other names, random arrays, and messages where some are missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.cli.test_cli import Tool, f32

ROOT = Path(__file__).resolve().parents[2]

LAYER = """
@R.function
def main(x: R.Tensor(("n", 4), "float32"), layer1_weight: R.Tensor((4, 3), "float32")):
    with R.dataflow():
        y = R.matmul(x, layer1_weight)
        R.output(y)
    return y
"""
TWO = """
@T.prim_func
def spectrum(yr: T.Buffer((8,), "float32"), x: T.Buffer((8,), "float32"), yi: T.Buffer((8,), "float32"), k: T.int32):
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            yr[vi] = x[vi] * T.cast(k, "float32")
            yi[vi] = x[vi] + T.float32(1)
"""
ALL_KINDS = """
@R.function
def main(
    t: R.Tuple(R.Tensor(("n",), "float32"), R.Tensor(("n * 2",), "bfloat16")), i: R.Tensor(("k", 1), "int64"),
    b: R.Tensor((3,), "bool"), e: R.Tensor(("n",), "float8_e4m3fn"), h: R.Tensor((2, "n // 2"), "float16"),
    s: R.Prim(value="n"), sh: R.Shape(["k", 5]),
):
    a = R.take(t[0], i, axis=0)
    c = R.sum(R.astype(t[1], "float32"))
    d = R.sum(R.astype(b, "float32"))
    f = R.sum(R.astype(e, "float32"))
    g = R.sum(R.astype(h, "float32"))
    return (a, c, d, f, g)
"""


@pytest.fixture
def mlcc(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tool:
    monkeypatch.chdir(tmp_path)
    tool = Tool(tmp_path, capfd)
    for name, text in (("layer.mlc", LAYER), ("two.mlc", TWO), ("kinds.mlc", ALL_KINDS)):
        tool.file(name, text)
    return tool


X, W = f32(2, 4), f32(4, 3)


def product(tool: Tool, *options: str) -> np.ndarray:
    tool("run", "layer.mlc", *options, "--out", "y.npz")
    return np.asarray(np.load("y.npz")["out"])


# ---------------------------------------------------------------- single arrays, other names


def test_arrays_of_npy_files_and_of_other_names(mlcc: Tool) -> None:
    np.save("x.npy", X)
    np.save("image.npy", np.asfortranarray(X))
    np.save("layer1_weight.npy", W)
    np.savez("state.npz", **{"layer1.weight": W, "layer1.steps": np.array(3)})
    np.savez("pair.npz", X, W)
    np.savez("one.npz", anything=X)
    Path("folder").mkdir()
    for name in ("x.npy", "layer1_weight.npy"):
        (Path("folder") / name).write_bytes(Path(name).read_bytes())
    for options in (
        ("--in", "x.npy", "--in", "layer1_weight.npy"),
        ("--in", "x=image.npy", "--in", "layer1.weight=layer1_weight.npy"),
        ("--in", "image.npy", "--params", "state.npz"),  # the only one that lacks an array
        ("--in", "x=one.npz", "--params", "state.npz"),
        ("--in", "x=pair.npz:arr_0", "--in", "layer1_weight=pair.npz:arr_1"),
        ("--in", "x.npy", "--in", "state.npz:layer1.weight"),
        ("--in", "x.npy", "--in", "state.npz", "--ignore-extra"),
        ("--in", "folder"),
    ):
        np.testing.assert_allclose(product(mlcc, *options), X @ W, rtol=1e-5)


def test_names_of_files_that_look_like_something_else(mlcc: Tool) -> None:
    """A file is meant where there is one, whatever its name."""
    mlcc.npz("x=a:b.npz", x=X, layer1_weight=W)
    np.testing.assert_allclose(product(mlcc, "--in", "x=a:b.npz"), X @ W, rtol=1e-5)
    np.save("w:1.npy", W)
    np.testing.assert_allclose(
        product(mlcc, "--in", "x=x=a:b.npz:x", "--in", "layer1_weight=w:1.npy"), X @ W, rtol=1e-5
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--in", "x=pair.npz"), "pair.npz has 2 arrays, none of which is `x`"),
        (("--in", "x=pair.npz:arr0"), "pair.npz has no array `arr0`\n  help: did you mean `arr_0`?"),
        (("--in", "x=pair.npz", "--in", "no.npy"), "say which: x=pair.npz:ARRAY; it has arr_0, arr_1"),
        (("--in", "pair.npz"), "give the arrays names: numpy.savez(path, x=x, layer1_weight=layer1_weight)"),
        (("--in", "image.npy"), "say which it is for: --in x=FILE"),
        (("--in", "X.npz"), "did you mean `x`?"),
        (("--in", "extra.npz"), "`main` has no parameter `steps`"),
        (("--in", "extra.npz"), "help: its parameters are x, layer1_weight. --ignore-extra"),
        (("--in", "cut.npy", "--params", "w.npz"), "cut.npy: its header says that it has 32 bytes of elements"),
        (("--in", "text.npy"), "text.npy is not an .npz, .npy or .safetensors file"),
        (("--in", "x=objects.npy", "--in", "w.npz"), "holds Python objects, which are never loaded"),
        (("--in", "x=none.npy"), "cannot read none.npy"),
    ],
)  # fmt: skip
def test_what_does_not_fit(mlcc: Tool, options: tuple[str, ...], said: str) -> None:
    np.savez("pair.npz", X, W)
    np.save("image.npy", X)
    mlcc.npz("w.npz", layer1_weight=W)
    mlcc.npz("X.npz", X=X, layer1_weight=W)
    mlcc.npz("extra.npz", x=X, layer1_weight=W, steps=np.array(3))
    mlcc.file("cut.npy", Path("image.npy").read_bytes()[:-4])
    mlcc.file("text.npy", "1, 2, 3")
    np.save("objects.npy", np.array([None]), allow_pickle=True)
    mlcc("run", "layer.mlc", *options, code=1)
    assert said in mlcc.err


def test_an_output_is_no_input_by_another_name(mlcc: Tool) -> None:
    np.savez("pair.npz", X, W)
    before = Path("pair.npz").read_bytes()
    mlcc("run", "layer.mlc", "--in", "x=pair.npz:arr_0", "--params", "pair.npz", "--out", "pair.npz", code=1)
    assert "E0010" in mlcc.err and Path("pair.npz").read_bytes() == before


def test_results_as_npy(mlcc: Tool) -> None:
    mlcc.npz("in.npz", x=X, layer1_weight=W)
    mlcc("run", "layer.mlc", "--in", "in.npz", "--out", "y.npy")
    np.testing.assert_allclose(np.load("y.npy"), X @ W, rtol=1e-5)
    np.save("reference.npy", X @ W)
    mlcc("run", "layer.mlc", "--in", "in.npz", "--expect", "reference.npy")
    np.save("reference.npy", X @ W + np.eye(2, 3, 1, dtype=np.float32))
    mlcc("run", "layer.mlc", "--in", "in.npz", "--expect", "reference.npy", code=3)
    assert "2 of 6 elements differ" in mlcc.err
    mlcc("run", "two.mlc", "--random", "--out", "y.npy", code=1)
    assert "y.npy holds one array, and `spectrum` has 2 results" in mlcc.err


# ---------------------------------------------------------------- functions and their results


def test_the_only_function_and_what_it_writes(mlcc: Tool) -> None:
    """Outputs may stand anywhere among the parameters; results have their names."""
    x = f32(8)
    mlcc.npz("in.npz", x=x, k=np.array(3, np.int32))
    mlcc("run", "two.mlc", "--in", "in.npz", "--out", "y.npz")
    found = np.load("y.npz")
    assert found.files == ["yr", "yi"]
    np.testing.assert_allclose(found["yr"], x * 3)
    np.testing.assert_allclose(found["yi"], x + 1)
    mlcc("run", "two.mlc", "--in", "in.npz", "--expect", "y.npz")
    mlcc.npz("blind.npz", out0=x * 3, out1=x + 1)
    mlcc("run", "two.mlc", "--in", "in.npz", "--expect", "blind.npz")
    mlcc.npz("wrong.npz", yr=x * 3, yi=x)
    mlcc("run", "two.mlc", "--in", "in.npz", "--expect", "wrong.npz", code=3)
    assert mlcc.err.startswith("yi: 8 of 8 elements differ")
    assert mlcc("run", "two.mlc", "--in", "in.npz").startswith("yr: float32[8]\n")
    assert "median" in mlcc("bench", "two.mlc", "--in", "in.npz", "--repeat", "2", "--number", "1")


def test_several_functions_need_a_name(mlcc: Tool) -> None:
    mlcc.file("both.mlc", LAYER.replace("main", "layer") + TWO)
    mlcc("run", "both.mlc", "--random", code=1)
    assert "there are 2 public functions, and none is `main`" in mlcc.err
    assert "name one with --func: layer, spectrum" in mlcc.err
    mlcc("run", "both.mlc", "--random", "--func", "spectrum")
    mlcc("run", "both.mlc", "--random", "--func", "spectrun", code=1)
    assert "did you mean `spectrum`?" in mlcc.err


# ---------------------------------------------------------------- random arrays


def test_random_arrays(mlcc: Tool) -> None:
    """The same ones each time; what is given stays as it is, and gives the symbols in its shape their values."""
    first = mlcc("run", "layer.mlc", "--random", "--size", "n=5")
    assert first.startswith("out: float32[5, 3]") and mlcc("run", "layer.mlc", "--random", "--size", "n=5") == first
    mlcc.npz("w.npz", layer1_weight=np.eye(4, 3, dtype=np.float32))
    mlcc("run", "layer.mlc", "--random", "--size", "n=64", "--in", "w.npz", "--out", "y.npy")
    x = np.load("y.npy")  # the random x, but for its last column
    assert x.shape == (64, 3) and 0 <= x.min() < 0.1 and 0.9 < x.max() < 1 and 0.4 < x.mean() < 0.6
    np.save("x.npy", np.zeros((7, 4), np.float32))
    mlcc("run", "layer.mlc", "--random", "--in", "x.npy", "--out", "y.npy")
    assert np.load("y.npy").shape == (7, 3) and not np.load("y.npy").any()
    listed = json.loads(mlcc("bench", "layer.mlc", "two.mlc", "--random", "--size", "n=4", "--repeat", "2", "--json"))
    assert [run["file"] for run in listed] == ["layer.mlc", "two.mlc"]


def test_random_values_of_all_kinds(mlcc: Tool) -> None:
    mlcc("run", "kinds.mlc", "--random", "--size", "n=6,k=3", "--out", "y.npz", "--warnings", "off")
    y = np.load("y.npz")
    assert y["out0"].shape == (3, 1)
    sums = {name: float(y[name]) for name in ("out1", "out2", "out3", "out4")}
    for (name, found), count in zip(sums.items(), (12, 3, 6, 6), strict=True):
        assert 0 <= found <= count, (name, found)
    assert sums["out1"] > 0 and sums["out4"] > 0


def test_outputs_whose_shapes_no_input_says(mlcc: Tool) -> None:
    mlcc.file(
        "fill.mlc",
        """
@T.prim_func
def fill(b: T.handle):
    n = T.int64()
    B = T.match_buffer(b, (n,), "float32")
    for i in range(n):
        B[i] = T.float32(2)
""",
    )
    mlcc("run", "fill.mlc", "--random", "--size", "n=3", "--out", "y.npy")
    assert np.load("y.npy").tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--random",), 1, "error[E0017]: the size of `n` in shapes of `main` is not known\n  help: pass --size n=32"),
        (("--random", "--size", "m=3"), 1, "no shape of `main` has `m`\n  help: its shapes have n"),
        (("--random", "--size", "n"), 1, "`n` does not name a size\n  help: write --size n=32"),
        (("--random", "--size", "n=-1"), 1, "`n=-1` does not name a size"),
        (("--size", "n=3"), 2, "--size says what --random makes"),
    ],
)
def test_sizes_that_do_not_fit(mlcc: Tool, options: tuple[str, ...], code: int, said: str) -> None:
    mlcc("run", "layer.mlc", *options, code=code)
    assert said in mlcc.err


# ---------------------------------------------------------------- missing arrays


@pytest.mark.parametrize("text", ["layer.mlc", "two.mlc", "kinds.mlc"])
def test_the_line_that_makes_missing_arrays(mlcc: Tool, text: str) -> None:
    """A shell runs the line of the message as it stands, and what it makes is what the function takes."""
    mlcc("run", text, "--warnings", "off", code=1)
    line = mlcc.err.rstrip().splitlines()[-1]
    assert line.startswith("python3 -c ")
    subprocess.run(line.replace("python3", sys.executable, 1), shell=True, check=True, timeout=60)
    mlcc("run", text, "--warnings", "off", "--in", "inputs.npz")


def test_missing_arrays_are_named_with_their_types(mlcc: Tool) -> None:
    np.save("x.npy", X)
    mlcc("run", "layer.mlc", "--in", "x.npy", code=1)
    assert mlcc.err.startswith("error[E0004]: no array for parameter `layer1_weight` of `main`, float32(4, 3)\n")
    assert "--random;" in mlcc.err and "layer1_weight=" in mlcc.err and "x=" not in mlcc.err
    mlcc("run", "two.mlc", code=1)
    assert "`x` of `spectrum`, float32(8,)" in mlcc.err and "`k` of `spectrum`, a number, int32" in mlcc.err
    mlcc("bench", "layer.mlc", code=1)
    assert "no array for parameter `x` of `main`, float32(n, 4)" in mlcc.err and "--random --size n=32" in mlcc.err


def test_the_examples_of_the_page(mlcc: Tool) -> None:
    """The commands of docs/command-line.md on arrays, run one after the other."""
    page = (ROOT / "docs" / "command-line.md").read_text().partition("## Arrays")[2]
    lines = page.partition("```sh\n")[2].partition("```")[0].splitlines()
    mlcc.file("model.mlc", LAYER.replace("layer1_weight", "w"))
    np.save("x.npy", X)
    np.save("image.npy", X)
    mlcc.npz("weights.npz", w=W)
    np.savez("all.npz", **{"encoder.w": W, "w": W, "encoder.b": W})
    assert len(lines) > 6
    for line in lines:
        command, *words = line.split("#")[0].split()
        assert command == "mlcc"
        mlcc(*words)
    np.testing.assert_allclose(np.load("y.npy"), X @ W, rtol=1e-5)


def test_bind_params_may_ignore_extra_arrays(mlcc: Tool) -> None:
    """A state_dict with counters: refused by name, or bound without them on request."""
    np.savez("state.npz", **{"layer1.weight": W, "num_batches_tracked": np.array(3)})
    np.save("x.npy", X)
    mlcc("passes", "layer.mlc", "-p", "bind-params{params=state.npz}", code=1)
    assert "no parameter `num_batches_tracked`" in mlcc.err and "ignore-extra=true leaves out" in mlcc.err
    mlcc("passes", "layer.mlc", "-p", "bind-params{params=state.npz ignore-extra=true}", "-o", "bound.mlc")
    mlcc("run", "bound.mlc", "--in", "x.npy", "--out", "y.npy")
    np.testing.assert_allclose(np.load("y.npy"), X @ W, rtol=1e-5)


def test_what_is_read_and_written_gets_an_array(mlcc: Tool) -> None:
    """A buffer that a kernel adds to: needed where it is no result at the end, and random like an input."""
    mlcc.file(
        "add.mlc",
        """
@T.prim_func
def add(C: T.Buffer((8,), "float32"), A: T.Buffer((8,), "float32")):
    for i in range(8):
        C[i] = C[i] + A[i]
""",
    )
    a = f32(8)
    np.save("A.npy", a)
    mlcc("run", "add.mlc", "--in", "A.npy", code=1)
    assert "no array for parameter `C` of `add`, float32(8,)" in mlcc.err
    mlcc("run", "add.mlc", "--in", "A.npy", "--random", "--out", "C.npy")
    c = np.random.default_rng(0).random(8).astype(np.float32)
    np.testing.assert_array_equal(np.load("C.npy"), c + a)

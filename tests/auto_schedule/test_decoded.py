"""Products with weights that are decoded where they are used: by the rules, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.lang.passes import bind_params
from mlcc.machine.cpu_tables import CpuFacts
from mlcc.machine.target import Target
from mlcc.passes.auto_schedule.apply_rules import schedule_module

GROUP = 32
CODED = {  # the parameters of a text, and what the matrix is made of
    "int4": (
        'q: R.Tensor(({half}, {n}), "uint8"), s: R.Tensor(({groups}, {n}), "float16")',
        'R.dequantize(R.unpack_bits(q, axis=0, bits=4, out_dtype="int8"), s, R.const(0, "int8"), axis=0)',
    ),
    "uint4": (
        'q: R.Tensor(({half}, {n}), "uint8"), s: R.Tensor(({groups}, {n}), "float32"), '
        'z: R.Tensor(({groups}, {n}), "uint8")',
        "R.dequantize(R.unpack_bits(q, axis=0, bits=4), s, z, axis=0)",
    ),
    "int8": (
        'q: R.Tensor(({k}, {n}), "int8"), s: R.Tensor(({groups}, {n}), "float16")',
        'R.dequantize(q, s, R.const(0, "int8"), axis=0)',
    ),
    "channels": (
        'q: R.Tensor(({k}, {n}), "int8"), s: R.Tensor(({n},), "float32")',
        'R.dequantize(q, s, R.const(0, "int8"), axis=1)',
    ),
    "float16": ('q: R.Tensor(({k}, {n}), "float16")', 'R.astype(q, "float32")'),
    "bfloat16": ('q: R.Tensor(({k}, {n}), "bfloat16")', 'R.astype(q, "float32")'),
    "turned": ('q: R.Tensor(({n}, {k}), "float16")', 'R.permute_dims(R.astype(q, "float32"))'),
}


def _text(kind: str, rows: str, k: int, n: int, bias: bool = False) -> str:
    params, matrix = CODED[kind]
    params = params.format(k=k, n=n, half=k // 2, groups=k // GROUP)
    symbol = "" if rows.isdigit() else "        m = T.int64()\n"
    shape = rows if rows.isdigit() else f'"{rows}"'
    given = f', c: R.Tensor(({n},), "float32")' if bias else ""
    product = f"R.matmul(x, {matrix})"
    return (
        "@I.ir_module\nclass Module:\n    @R.function\n"
        f'    def main(x: R.Tensor((1, {shape}, {k}), "float32"), {params}{given}):\n{symbol}'
        f"        with R.dataflow():\n            y = {f'R.add({product}, c)' if bias else product}\n"
        "            R.output(y)\n        return y\n"
    )


def _weights(kind: str, k: int, n: int) -> tuple[list[np.ndarray], np.ndarray]:
    """What is passed, and the matrix that it says."""
    rng = np.random.default_rng(7)
    if kind in ("float16", "turned"):
        matrix = rng.normal(size=(k, n)).astype("float16")
        return [np.ascontiguousarray(matrix.T) if kind == "turned" else matrix], matrix.astype("float32")
    if kind == "bfloat16":
        bits = (rng.normal(size=(k, n)).astype("float32").view("uint32") >> 16).astype("uint16")
        return [bits], (bits.astype("uint32") << 16).view("float32")
    if kind == "channels":
        q, s = rng.integers(-128, 128, (k, n)).astype("int8"), rng.random(n).astype("float32")
        return [q, s], q * s
    scale = rng.random((k // GROUP, n)).astype("float32" if kind == "uint4" else "float16")
    each = np.repeat(scale.astype("float32"), GROUP, 0)
    if kind == "int8":
        q = rng.integers(-128, 128, (k, n)).astype("int8")
        return [q, scale], q * each
    values = rng.integers(0, 16, (k, n))
    packed = (values[::2] | values[1::2] << 4).astype("uint8")
    if kind == "int4":
        return [packed, scale], np.where(values > 7, values - 16, values) * each
    zero = rng.integers(0, 16, (k // GROUP, n)).astype("uint8")
    return [packed, scale, zero], (values - np.repeat(zero.astype("int64"), GROUP, 0)) * each


@pytest.mark.parametrize("kind", CODED)
def test_products_match_numpy(kind: str) -> None:
    k, n = 256, 192
    main = mlcc.load(mlcc.build(mlcc.parse(_text(kind, "m", k, n, bias=True)), "llvm{cpu=native}"))["main"]
    weights, matrix = _weights(kind, k, n)
    bias = np.arange(n, dtype="float32")
    for rows in (0, 1, 3, 17):
        x = np.random.default_rng(rows).normal(size=(1, rows, k)).astype("float32")
        expected = x.astype("float64") @ matrix + bias
        np.testing.assert_allclose(main(x, *weights, bias), expected, rtol=1e-5, atol=1e-5 * k * 16)


@pytest.mark.parametrize("kind", [kind for kind in CODED if kind != "turned"])
@pytest.mark.parametrize(("k", "n"), [(256, 192), (32, 16), (96, 48), (992, 80)])
def test_constant_weights_match_numpy(kind: str, k: int, n: int) -> None:
    """In panels, whose bytes of several elements lie in words."""
    weights, matrix = _weights(kind, k, n)
    for rows in ("m", "1", "5"):
        module = mlcc.parse(_text(kind, rows, k, n, bias=True))
        names = [p.name for p in module["main"].params][1:]  # type: ignore[attr-defined]
        bias = np.arange(n, dtype="float32")
        given = dict(zip(names, [*weights, bias], strict=True))
        module = bind_params("main", given)(module)
        main = mlcc.load(mlcc.build(module, "llvm{cpu=native}"))["main"]
        for count in (0, 1, 3, 17) if rows == "m" else (int(rows),):
            x = np.random.default_rng(count).normal(size=(1, count, k)).astype("float32")
            expected = x.astype("float64") @ matrix + bias
            np.testing.assert_allclose(main(x), expected, rtol=1e-5, atol=1e-5 * k * 16)


@pytest.mark.parametrize("matrix", ["R.dequantize(q, s, z, axis=1)", "R.permute_dims(R.dequantize(q, s, z, axis=0))"])
@pytest.mark.parametrize(("scales", "zeros"), [(80, "same"), (80, "many"), (0, "one"), (0, "none")])
def test_constant_weights_stay_encoded(matrix: str, scales: int, zeros: str) -> None:
    """With a scale for each column, or for all, and either operand layout; not for many rows."""
    rng = np.random.default_rng(3)
    q = rng.integers(-128, 128, (80, 1000) if "permute" in matrix else (1000, 80)).astype("int8")
    shape = (scales,) if scales else ()
    s = rng.random(shape).astype("float32")
    z = {"same": np.full(80, 3), "many": rng.integers(-9, 9, 80), "one": np.array(-4), "none": np.array(0)}[zeros]
    x = rng.normal(size=(2, 1000)).astype("float32")
    decoded = (q.T if "permute" in matrix else q).astype("float64")
    expected = x @ ((decoded - z) * s.astype("float64"))
    for rows, stays in (("m", True), ("2", True), ("64", False)):
        size = f'"{rows}"' if rows == "m" else rows
        symbol = "        m = T.int64()\n" if rows == "m" else ""
        sizes = {
            name: ", ".join(map(str, a.shape)) + "," * (a.ndim == 1) for name, a in zip("qsz", (q, s, z), strict=True)
        }
        module = mlcc.parse(
            "@I.ir_module\nclass Module:\n    @R.function\n"
            f'    def main(x: R.Tensor(({size}, 1000), "float32"), q: R.Tensor(({sizes["q"]}), "int8"), '
            f's: R.Tensor(({sizes["s"]}), "float32"), z: R.Tensor(({sizes["z"]}), "int8")):\n{symbol}'
            f"        with R.dataflow():\n            y = R.matmul(x, {matrix})\n"
            "            R.output(y)\n        return y\n"
        )
        module = bind_params("main", {"q": q, "s": s, "z": z.astype("int8")})(module)
        given, wanted = (x, expected) if rows != "64" else (np.repeat(x, 32, 0), np.repeat(expected, 32, 0))
        for cpu, name in (("x86-64-v3", "dequantize"), ("znver4", "fixed_point")):
            lowered = mlcc.run_passes(module, "O2", target=f"llvm{{cpu={cpu}}}")
            assert any(name in function for function in lowered.functions) == stays
            found = mlcc.load(mlcc.build(module, f"llvm{{cpu={'native' if cpu == 'znver4' else cpu}}}"))["main"](given)
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_constant_halves_stay_encoded(kind: str) -> None:
    """For few rows, or an unknown number; in floats for many."""
    weights, matrix = _weights(kind, 1000, 80)
    for rows, stays in (("m", True), ("4", True), ("64", False)):
        module = bind_params("main", {"q": weights[0]})(mlcc.parse(_text(kind, rows, 1000, 80)))
        lowered = mlcc.run_passes(module, "O2", target="llvm{cpu=znver4}")
        assert any("cast" in name for name in lowered.functions) == stays
        count = 3 if rows == "m" else int(rows)
        x = np.random.default_rng(count).normal(size=(1, count, 1000)).astype("float32")
        main = mlcc.load(mlcc.build(module, "llvm{cpu=native}"))["main"]
        np.testing.assert_allclose(main(x), x.astype("float64") @ matrix, rtol=1e-4, atol=1e-3)


def _answers(text: str, pipeline: str = "dequantize=true") -> dict[str, Any]:
    before = f"normalize,lower-to-tir{{accurate=true}},annotate-op-pattern,fuse{{{pipeline}}},fuse-tir"
    facts = CpuFacts.of(Target.parse("llvm{cpu=znver4}"))
    return {a.name: a for a in schedule_module(mlcc.run_passes(mlcc.parse(text), before), facts)}


@pytest.mark.parametrize("kind", CODED)
@pytest.mark.parametrize("rows", ["m", "1"])
def test_the_matrix_is_never_in_memory(kind: str, rows: str) -> None:
    (answer,) = _answers(_text(kind, rows, 1024, 512, bias=True)).values()
    assert answer.rule == ("dots" if kind == "turned" else "decoded"), answer.passed
    assert not answer.broken
    large = [b for b in answer.func.root.alloc_buffers if len(b.shape) == 2 and b.shape[0].value == 1024]
    assert len(large) == (kind != "turned")  # of which a few rows at a time are left where it is lowered


def test_many_rows_are_worth_a_decoded_matrix() -> None:
    found = _answers(_text("int8", "64", 1024, 512))
    assert len(found) == 2 and {a.rule for a in found.values()} == {"elementwise", "matmul"}


def test_sizes_that_do_not_fit_are_computed_all_the_same() -> None:
    for k, n in ((32, 10), (96, 7), (64, 1)):
        weights, matrix = _weights("int4", k, n)
        main = mlcc.load(mlcc.build(mlcc.parse(_text("int4", "m", k, n))))["main"]
        x = np.ones((1, 2, k), "float32")
        np.testing.assert_allclose(main(x, *weights), x @ matrix, rtol=1e-5, atol=1e-4)

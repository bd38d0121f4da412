"""The rules for tensor cores: what they take, and that their kernels, emulated with all checks, give what NumPy gives
in float64, within the roundings of the types."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

import mlcc
from mlcc import backends
from mlcc.ir import tir
from mlcc.machine.gpu_tables import GpuFacts
from mlcc.passes.auto_schedule.gpu.tensor_tiles import GemmSizes, choose
from mlcc.targets.cuda import ptxas
from tests.auto_schedule.kernels import chosen, graph, lowered, scheduled
from tests.targets.build import from_bfloat16, to_bfloat16

GPU = "cuda{arch=sm_90}"
SMALL = "cuda{arch=sm_90 shared-bytes=16384}"  # a device with room for small tiles alone
ENCODER = Path(__file__).parents[2] / "samples" / "transformer" / "encoder.mlc"
EPSILON = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "int32": 0.0}


def params(dtype: str, **shapes: str) -> str:
    return ", ".join(f'{name}: R.Tensor({shape}, "{dtype}")' for name, shape in shapes.items())


def agree(
    text: str, want: Callable[..., np.ndarray], rule: str = "gpu-tensor-cores", sizes: Mapping[str, int] | None = None,
    target: str = GPU, terms: int = 64,
) -> None:  # fmt: skip
    """The kernels of a graph, one of them of `rule`, emulated: against `want` in float64. `terms` products are summed
    up, and no step of them is rounded but to float32."""
    mod = lowered(text)
    found = chosen(mod, target)
    assert rule in {a.rule for a in found.values()}, [(a.rule, a.passed) for a in found.values()]
    made = mod.copy()
    for one in found.values():
        if one.func is not None:
            made.update_func(one.name, one.func)
    dtypes = [str(p.struct_info.dtype) for p in mod["main"].params]
    shapes = [[tir.const_int(n) or (sizes or {})[n.name] for n in p.struct_info.dims] for p in mod["main"].params]
    rng = np.random.default_rng(0)
    given = [rng.integers(-16, 17, s) / (8 if "float" in d else 1) for s, d in zip(shapes, dtypes, strict=True)]
    stored = [
        to_bfloat16(a.astype("float32")) if d == "bfloat16" else a.astype(d) for a, d in zip(given, dtypes, strict=True)
    ]
    got = np.asarray(mlcc.load(mlcc.build(made, target, pipeline="lower-to-tir"), emulate=True)["main"](*stored))
    result = str(mod["main"].ret_struct_info.dtype)
    have = (from_bfloat16(got) if result == "bfloat16" else got).astype("float64")
    expected = want(*given)
    assert have.shape == expected.shape
    room = 1.01 * EPSILON[result] + terms * EPSILON["float32"] * (result != "int32")
    np.testing.assert_allclose(have, expected, rtol=0, atol=room * np.abs(expected).max())


def product(dtype: str, m: object, n: object, k: object, out: str = "") -> str:
    given = f', out_dtype="{out}"' if out else ""
    return graph(params(dtype, x=f"({m}, {k})", w=f"({k}, {n})"), f"y = R.matmul(x, w{given})", result="y")


PRODUCTS: dict[str, tuple[str, object, object, object, str]] = {
    "primes": ("float16", 17, 31, 13, ""),
    "whole tiles": ("float16", 32, 64, 128, ""),
    "rows by eight": ("float16", 16, 24, 72, "float32"),
    "rows by two": ("bfloat16", 18, 34, 50, ""),
    "bfloat16": ("bfloat16", 64, 48, 40, "float32"),
    "bytes": ("int8", 16, 16, 32, "int32"),
    "bytes of primes": ("int8", 17, 31, 37, "int32"),
    "one column of tiles": ("float16", 300, 16, 16, ""),
    "words": ("float32", 32, 64, 128, ""),
    "words of primes": ("float32", 17, 31, 13, ""),
}
TF32 = "cuda{arch=sm_90 tf32=true}"


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_match_numpy(name: str, all_cases: bool) -> None:
    if all_cases or name in ("rows by eight", "words of primes"):
        agree(product(*PRODUCTS[name]), np.matmul, terms=300, target=TF32 if "words" in name else GPU)


def test_float32_is_rounded_to_tf32_on_request_only() -> None:
    """Within the stated bound: 2**-10 of the sum of the factors' magnitudes, since each factor is off by 2**-11."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((33, 300), np.float32), rng.standard_normal((300, 40), np.float32)
    text = product("float32", 33, 40, 300)
    exact = x.astype("float64") @ w.astype("float64")
    bound = 1.01 * 2.0**-10 * (np.abs(x) @ np.abs(w))
    errors = {}
    for target in (GPU, TF32):
        (found,) = chosen(lowered(text), target).values()
        got = mlcc.load(mlcc.build(mlcc.parse(text), target), emulate=True)["main"](x, w)
        errors[found.rule] = np.abs(np.asarray(got) - exact)
    assert list(errors) == ["gpu-matmul", "gpu-tensor-cores"]
    assert (errors["gpu-tensor-cores"] <= bound).all()
    assert errors["gpu-matmul"].max() < 2.0**-12 < errors["gpu-tensor-cores"].max()


@pytest.mark.parametrize(("m", "n", "k"), [('"m"', 48, '"k"'), ('"m"', '"n"', 32), ("32", '"n"', '"k"')])
def test_sizes_that_are_not_known(m: object, n: object, k: object, all_cases: bool) -> None:
    if all_cases:
        agree(product("float16", m, n, k), np.matmul, sizes={"m": 37, "n": 19, "k": 50}, target=SMALL)


def rows_of_batches() -> tuple[str, Callable[..., np.ndarray]]:
    """Rows of two axes of unknown sizes, and an epilogue that reads something before the product."""
    given = params("float16", x='("b", "n", 24)', w="(24, 24)", v="(24,)")
    text = graph(given, "y = R.matmul(x, w)", "z = R.add(y, v)", "o = R.add(x, z)", result="o")
    return text, lambda x, w, v: x + (x @ w + v)


def test_rows_of_two_unknown_axes(all_cases: bool) -> None:
    text, want = rows_of_batches()
    if all_cases:
        agree(text, want, sizes={"b": 2, "n": 19}, target=SMALL)
    (found,) = chosen(lowered(text), GPU).values()
    assert found.rule == "gpu-tensor-cores", found.passed


def kernels(mod: mlcc.IRModule) -> dict[str, str | None]:
    """The rules that take the functions of a module as it is compiled."""
    made = mlcc.run_passes(mod, backends.get("cuda").level_pipeline(2).removesuffix(",auto-schedule"), target=GPU)
    return {name: one.rule for name, one in chosen(made, GPU).items()}


def test_a_linear_layer_is_one_kernel() -> None:
    """Weights of (out, in) lie along the depth: nothing is transposed."""
    given = params("float16", x="(64, 32)", w="(48, 32)", b="(48,)")
    assert list(kernels(mlcc.parse(graph(given, "y = R.linear(x, w, b)", result="y"))).values()) == ["gpu-tensor-cores"]


def test_float16_encoder_matches_its_reference(all_cases: bool) -> None:
    """The block of a transformer for any batch and length."""
    text = ENCODER.read_text()
    half = mlcc.parse(text.replace("float32", "float16").replace("-1e9", "-6e4"))
    found = kernels(half)
    assert [r for n, r in found.items() if "matmul" in n] == ["gpu-tensor-cores"] * 4
    if not all_cases:
        return
    rng = np.random.default_rng(0)
    given = []
    for p in half["main"].params:
        shape = [tir.const_int(n) or {"b": 2, "n": 7}[n.name] for n in p.struct_info.dims]
        bits = str(p.struct_info.dtype) == "bool"
        given.append(rng.random(shape) < 0.8 if bits else (rng.standard_normal(shape) * 0.3).astype("float16"))
    want = mlcc.load(mlcc.build(mlcc.parse(text), "llvm{cpu=native}"))["main"](
        *(a if a.dtype == bool else a.astype("float32") for a in given)
    )
    cpu = mlcc.load(mlcc.build(half, "llvm{cpu=native}", opt_level=3))["main"](*given).astype("float32")
    got = mlcc.load(mlcc.build(half, GPU), emulate=True)["main"](*given).astype("float32")
    room = np.abs(cpu - want).max()
    assert np.abs(got - want).max() <= 2 * room and np.abs(got - cpu).max() <= 2 * room


OTHERS: dict[str, tuple[str, list[str], Callable[..., np.ndarray]]] = {
    "batches, transposed": (
        params("bfloat16", x="(2, 3, 16, 24)", w="(2, 3, 16, 24)"),
        ["t = R.permute_dims(w, axes=[0, 1, 3, 2])", "y = R.matmul(x, t)"],
        lambda x, w: x @ w.swapaxes(2, 3),
    ),
    "rows transposed": (
        params("float16", x="(48, 24)", w="(48, 40)"),
        ["t = R.permute_dims(x)", "y = R.matmul(t, w)"],
        lambda x, w: x.T @ w,
    ),
    "epilogue": (
        params("float16", x="(24, 32)", w="(32, 40)", b="(40,)", r="(24, 40)"),
        ["p = R.matmul(x, w)", "q = R.add(p, b)", "s = R.nn.relu(q)", "y = R.add(s, r)"],
        lambda x, w, b, r: np.maximum(x @ w + b, 0) + r,
    ),
    "gelu": (
        params("float16", x="(24, 32)", w="(32, 40)"),
        ["p = R.matmul(x, w)", "s = R.divide(p, R.const(16, \"float16\"))", "y = R.nn.silu(s)"],
        lambda x, w: x @ w / 16 / (1 + np.exp(-(x @ w) / 16)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_operators_around_products_agree(name: str, all_cases: bool) -> None:
    given, lines, want = OTHERS[name]
    if all_cases or name == "batches, transposed":
        agree(graph(given, *lines, result="y"), want)


def windows(x: np.ndarray, w: np.ndarray, stride: int) -> np.ndarray:
    """A convolution of NCHW and OIHW, padded by one."""
    x = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    seen = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))[:, :, ::stride, ::stride]
    return np.einsum("nchwrs,fcrs->nfhw", seen, w)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("stride", [1, 2])
def test_convolutions_match_numpy(layout: str, stride: int, all_cases: bool) -> None:
    if not all_cases:
        return
    options = f"padding=[1, 1, 1, 1], strides=[{stride}, {stride}]"
    if layout == "NCHW":
        shapes = params("float16", x="(2, 8, 7, 9)", w="(16, 8, 3, 3)")
        text = graph(shapes, f"z = R.nn.conv2d(x, w, {options})", "y = R.nn.relu(z)", result="y")
        agree(text, lambda x, w: np.maximum(windows(x, w, stride), 0), "gpu-tensor-conv", terms=72)
        return
    shapes = params("float16", x="(1, 9, 7, 8)", w="(16, 3, 3, 8)")
    text = graph(shapes, f'y = R.nn.conv2d(x, w, {options}, data_layout="NHWC", kernel_layout="OHWI")', result="y")

    def want(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return windows(x.transpose(0, 3, 1, 2), w.transpose(0, 3, 1, 2), stride).transpose(0, 2, 3, 1)

    agree(text, want, "gpu-tensor-conv", terms=72)


def test_a_convolution_of_one_step() -> None:
    """Its depth, 2 x 8, is that of one product; windows end beyond the image, and so do rows of the tile."""
    shapes = params("float16", x="(1, 4, 5, 8)", w="(16, 1, 2, 8)")
    options = 'padding=[0, 0, 0, 1], data_layout="NHWC", kernel_layout="OHWI"'
    text = graph(shapes, f"y = R.nn.conv2d(x, w, {options})", result="y")

    def want(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        wide = np.pad(x, ((0, 0), (0, 0), (0, 1), (0, 0)))
        return sum(np.einsum("nhwc,fc->nhwf", wide[:, :, s : s + 5], w[:, 0, s]) for s in range(2))

    agree(text, want, "gpu-tensor-conv", terms=16)


@pytest.mark.parametrize(
    ("arch", "step"), [("sm_80", (64, 16, 8)), ("sm_90", (64, 16, 6)), ("sm_120", (32, 12, 6))]
)  # tiles of 128 x 128, 128 x 256 and 128 x 64
def test_the_code_of_a_large_product(arch: str, step: tuple[int, int, int], all_cases: bool) -> None:
    """In a step of depth products of all fragments with one another, loads of 16 bytes, and one barrier."""
    if not all_cases and arch != "sm_90":
        return
    given = params("float16", x="(1024, 4096)", w="(4096, 8192)", b="(8192,)")
    text = graph(given, "y = R.matmul(x, w)", "z = R.add(y, b)", "o = R.nn.relu(z)", result="o")
    made = mlcc.build(mlcc.parse(text), f"cuda{{arch={arch}}}").emit("ptx").decode()
    loop = made.split("cp.async.wait_group")[1]
    assert (loop.count("mma.sync"), loop.count("ldmatrix"), loop.count("cp.async.cg")) == step
    assert loop.count("bar.sync") == 1 and "ld.global" not in loop and "ld.shared" not in loop
    assert not re.search(r"st\.global\.[buf]16", made)
    if ptxas.find_ptxas() is not None:
        (facts,) = ptxas.assemble(made, arch).values()
        assert facts.stack == facts.spill_stores == facts.spill_loads == 0


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_90a"])
@pytest.mark.parametrize(
    ("dtype", "m", "n", "k"),
    [("float16", 64, 64, 4096), ("float16", 37, 56, 3000), ("bfloat16", 64, 128, 2048), ("float32", 33, 40, 2049)],
)
def test_long_reductions_of_few_tiles_are_split(arch: str, dtype: str, m: int, n: int, k: int) -> None:
    """Blocks compute partial products in float32, and a second kernel adds them up, with the epilogue."""
    given = params(dtype, x=f"({m}, {k})", w=f"({k}, {n})")
    lines = ('y = R.matmul(x, w, out_dtype="float32")', "o = R.nn.relu(y)")
    options = " tf32=true" if dtype == "float32" else ""
    text, target = graph(given, *lines, result="o"), f"cuda{{arch={arch}{options}}}"
    (found,) = chosen(lowered(text), target).values()
    assert found.rule == "gpu-tensor-cores" and " parts, added up by a second kernel" in " ".join(found.choices)
    agree(text, lambda x, w: np.maximum(x @ w, 0), target=target, terms=k)
    assert len(mlcc.build(mlcc.parse(text), target).launch.kernels) == 2


def test_the_script_replays() -> None:
    scheduled(lowered(product("float16", 33, 48, 64)), GPU)


def test_unsuitable_products_are_left_to_other_rules() -> None:
    half = lowered(product("float16", 64, 64, 64))
    (found,) = chosen(half, "cuda{arch=sm_75}").values()
    assert found.rule == "gpu-matmul" and "no asynchronous copies" in dict(found.passed)["gpu-tensor-cores"]
    (found,) = chosen(lowered(product("float32", 64, 64, 64)), GPU).values()
    assert "option `tf32`" in dict(found.passed)["gpu-tensor-cores"]
    (found,) = chosen(lowered(product("float64", 64, 64, 64)), GPU).values()
    assert "no product of these types" in dict(found.passed)["gpu-tensor-cores"]


def test_tiles_fit_the_device() -> None:
    """Large ones where each multiprocessor gets one, others where not; never more than a device has room for."""
    facts = GpuFacts.of(GPU)
    large, small = (choose(facts, GemmSizes(m, 4096, 4096, 1, 2), 16) for m in (4096, 64))
    assert large is not None and large.tile.rows * large.tile.columns == 128 * 256 and large.stages >= 3
    assert small is not None and 4096 // small.tile.columns * (64 // small.tile.rows) >= 0.9 * facts.sm_count // 2
    tight = choose(GpuFacts.of("cuda{arch=sm_86 shared-bytes=8192}"), GemmSizes(512, 512, 512, 1, 2), 16)
    assert tight is not None and tight.tile.rows * tight.tile.columns <= 32 * 32
    assert choose(GpuFacts.of("cuda{arch=sm_86 shared-bytes=1024}"), GemmSizes(512, 512, 512, 1, 2), 16) is None


def test_a_known_operand_beside_rows_of_unknown_number_is_copied_by_sixteen_bytes() -> None:
    """Its columns are counted in 64 bits, as everything is then; rows of 1000 halves begin at multiples of 16 bytes."""
    text = mlcc.build(mlcc.parse(product("float16", '"n"', 1000, 129)), GPU).code.text
    assert "cp.async.cg.shared.global" in text

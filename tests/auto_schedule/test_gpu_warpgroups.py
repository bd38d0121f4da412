"""The rule for products of warpgroups: what it takes, and that its kernels, emulated with all checks, give what NumPy
gives in float64, within the roundings of the types."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import mlcc
from mlcc.machine.gpu_tables import GpuFacts
from mlcc.passes.auto_schedule.gpu.tensor_tiles import GemmSizes
from mlcc.passes.auto_schedule.gpu.warpgroup_tiles import choose
from mlcc.targets.cuda import ptxas
from tests.auto_schedule.kernels import chosen, graph, lowered, scheduled
from tests.auto_schedule.products import Product
from tests.auto_schedule.test_gpu_tensor_cores import agree, params, product, windows

HOPPER = "cuda{arch=sm_90a}"
ONE = "cuda{arch=sm_90a sm-count=1}"  # a device that small products keep busy
RULE = "gpu-wgmma"

# A and B along the sum or across, with and without batches; tiles of one warpgroup, of two, and of several pieces
FORMS = {
    "mk,kn->mn": {"m": 120, "n": 64, "k": 120}, "mk,nk->mn": {"m": 128, "n": 64, "k": 64},
    "km,kn->mn": {"m": 128, "n": 128, "k": 64}, "km,nk->mn": {"m": 128, "n": 64, "k": 120},
    "bmk,bkn->bmn": {"b": 3, "m": 64, "n": 64, "k": 128},
    "bmhk,bnhk->bhmn": {"b": 1, "h": 2, "m": 64, "n": 72, "k": 64},
    "bhmk,bnhk->bmhn": {"b": 2, "h": 1, "m": 64, "n": 64, "k": 64}, "mk,nk->nm": {"m": 64, "n": 80, "k": 64},
    "mkl,kln->mn": {"m": 64, "k": 2, "l": 64, "n": 64}, "bsk,nk->bsn": {"b": 5, "s": 24, "k": 64, "n": 64},
    "bmk,nk->bnm": {"b": 2, "m": 64, "k": 64, "n": 64},
}  # fmt: skip


JOINED = ("mkl,kln->mn", "bsk,nk->bsn")  # what has several axes of one part: no boxes


def emulated(mod: mlcc.IRModule, arrays: list[np.ndarray], bulk: bool) -> None:
    """Carry out `main` with arrays as the rule schedules it, `bulk`: with bulk copies, else by asynchronous ones."""
    (found,) = chosen(mod, ONE).values()
    assert found.rule == RULE and found.func is not None, found.passed
    mod.update_func(found.name, found.func)
    made = mlcc.build(mod, ONE, pipeline="lower-to-tir")
    assert ("cp.async.bulk.tensor" in made.emit("ptx").decode()) == bulk
    mlcc.load(made, emulate=True, check=True)["main"](*arrays)


@pytest.mark.parametrize("form", FORMS)
def test_products_in_all_layouts_match_numpy(form: str, all_cases: bool) -> None:
    if not all_cases and form not in ("km,nk->mn", "bmhk,bnhk->bhmn", "bsk,nk->bsn"):
        return
    one = Product(form, FORMS[form], dtype="float16", out="float32", epilogue="" if "b" in form else "residual")
    arrays = one.arrays({})
    emulated(mlcc.parse(one.text()), arrays, form not in JOINED)
    (want,) = one.expected(arrays)[-1:]
    np.testing.assert_allclose(arrays[-1], want, rtol=0, atol=1e-5 * np.abs(want).max())


TF32 = "cuda{arch=sm_90a sm-count=1 tf32=true}"


@pytest.mark.parametrize(
    ("form", "sizes"), [*FORMS.items(), ("mk,kn->mn", {"m": 64, "n": 128, "k": 64})], ids=lambda x: str(x)
)
def test_float32_is_rounded_as_it_is_copied(form: str, sizes: dict[str, int], all_cases: bool) -> None:
    """Within the bound of docs/targets.md for tf32, and to nearest; operands across the sum are transposed, as squares
    where tiles are whole, else by single elements."""
    if not all_cases and form not in ("mk,kn->mn", "km,nk->mn"):
        return
    one = Product(form, sizes, dtype="float32", out="float32")
    arrays = one.arrays({})
    (found,) = chosen(mod := mlcc.parse(one.text()), TF32).values()
    assert found.rule == RULE and found.func is not None, found.passed
    mod.update_func(found.name, found.func)
    mlcc.load(mlcc.build(mod, TF32, pipeline="lower-to-tir"), emulate=True, check=True)["main"](*arrays)
    (want,) = one.expected(arrays)[-1:]
    nearest = [((a.view("uint32") + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view("float32") for a in arrays[:2]]
    (rounded,) = one.expected([*nearest, *arrays[2:]])[-1:]
    size = one.expected([*map(np.abs, arrays[:2]), *arrays[2:]])[-1]
    assert (np.abs(arrays[-1] - want) <= 1.01 * 2.0**-10 * size).all()
    np.testing.assert_allclose(arrays[-1], rounded, rtol=0, atol=1e-5 * np.abs(want).max())
    assert (np.abs(rounded - want) > 4e-5 * np.abs(want).max()).any()


def test_tf32_is_asked_for() -> None:
    text = product("float32", 4096, 4096, 4096)
    (plain,) = chosen(lowered(text), HOPPER).values()
    assert plain.rule == "gpu-matmul" and "option `tf32`" in dict(plain.passed)[RULE]
    made = mlcc.build(mlcc.parse(text), "cuda{arch=sm_90a tf32=true}").emit("ptx").decode()
    assert "wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32.tf32" in made and "cvt.rna" not in made
    assert "st.shared.v4" in made and "ld.global.nc.v4" in made and "ld.global.nc.b32" not in made
    found = ptxas.find_ptxas()
    if found is not None and ptxas.version(found) >= (12, 8):
        (facts,) = ptxas.assemble(made, "sm_90a").values()
        assert (facts.spill_stores, facts.serialized) == (0, "")


def test_convolutions_in_tf32() -> None:
    shapes = params("float32", x="(1, 8, 8, 64)", w="(64, 3, 3, 64)")
    options = 'padding=[1, 1, 1, 1], data_layout="NHWC", kernel_layout="OHWI"'
    text = graph(shapes, f"y = R.nn.conv2d(x, w, {options})", result="y")
    mod = mlcc.parse(text)
    (found,) = chosen(lowered(text), TF32).values()
    assert found.rule == "gpu-wgmma-conv", found.passed
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-4, 5, s).astype("float32") for s in ((1, 8, 8, 64), (64, 3, 3, 64)))
    got = mlcc.load(mlcc.build(mod, TF32), emulate=True)["main"](x, w)
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows_of = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    np.testing.assert_array_equal(got, np.einsum("nhwcij,oijc->nhwo", windows_of, w))


OTHERS: dict[str, tuple[str, list[str], Callable[..., np.ndarray]]] = {
    "bfloat16": (params("bfloat16", x="(72, 80)", w="(80, 136)"), ["y = R.matmul(x, w)"], lambda x, w: x @ w),
    "float32": (
        params("bfloat16", x="(64, 192)", w="(192, 256)"),
        ['y = R.matmul(x, w, out_dtype="float32")'],
        lambda x, w: x @ w,
    ),
    "epilogue": (
        params("float16", x="(80, 64)", w="(64, 72)", b="(72,)", r="(80, 72)"),
        ["p = R.matmul(x, w)", "q = R.add(p, b)", "s = R.nn.relu(q)", "y = R.add(s, r)"],
        lambda x, w, b, r: np.maximum(x @ w + b, 0) + r,
    ),
    "long sums": (params("float16", x="(64, 520)", w="(520, 64)"), ["y = R.matmul(x, w)"], lambda x, w: x @ w),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_operators_around_products_agree(name: str, all_cases: bool) -> None:
    given, lines, want = OTHERS[name]
    if all_cases or name == "epilogue":
        agree(graph(given, *lines, result="y"), want, RULE, target=ONE, terms=600)


def test_rows_of_two_unknown_axes(all_cases: bool) -> None:
    """Tiles lie along the inner one, and end where it does."""
    given = params("float16", x='("b", "n", 64)', w="(64, 128)", v="(128,)")
    text = graph(given, "y = R.matmul(x, w)", "z = R.add(y, v)", result="z")
    (found,) = chosen(lowered(text), HOPPER).values()
    assert found.rule == RULE, found.passed
    if all_cases:
        agree(text, lambda x, w, v: x @ w + v, RULE, sizes={"b": 2, "n": 67}, target=HOPPER)


WINDOWS = """
@T.prim_func
def main(A: T.Buffer((130, 64), "float16"), B: T.Buffer((130, 64), "float16"), C: T.Buffer((128, 128), "float32")):
    for i, j, k in T.grid(128, 128, 64):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + T.Cast("float32", A[vi + 2, vk]) * T.Cast("float32", B[vj + 1, vk])
"""


def test_operands_read_from_somewhere_on() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, (130, 64)).astype("float16") for _ in range(2))
    got = np.zeros((128, 128), "float32")
    emulated(mlcc.parse(WINDOWS), [a, b, got], bulk=False)
    np.testing.assert_array_equal(got, a[2:].astype("float32") @ b[1:129].astype("float32").T)


@pytest.mark.parametrize("stride", [1, 2])
def test_convolutions_match_numpy(stride: int, all_cases: bool) -> None:
    """Read at windows, 64 channels at a time, with zeros around the image."""
    shapes = params("float16", x=f"(1, {8 * stride - 2}, {8 * stride - 1}, 64)", w="(64, 1, 2, 64)")
    options = f'padding=[1, 1, 1, 1], strides=[{stride}, {stride}], data_layout="NHWC", kernel_layout="OHWI"'
    text = graph(shapes, f"y = R.nn.conv2d(x, w, {options})", "z = R.nn.relu(y)", result="z")

    def want(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        made = windows(x.transpose(0, 3, 1, 2), w.transpose(0, 3, 1, 2), stride)
        return np.maximum(made.transpose(0, 2, 3, 1), 0)

    if all_cases or stride == 1:
        agree(text, want, "gpu-wgmma-conv", target=ONE, terms=128)


def test_the_code_of_a_large_product() -> None:
    """Tiles of 128 x 256 in two warpgroups: no spills, and no product waits for another."""
    text = graph(params("bfloat16", x="(8192, 8192)", w="(8192, 8192)"), "y = R.matmul(x, w)", result="y")
    made = mlcc.build(mlcc.parse(text), HOPPER, opt_level=3).emit("ptx").decode()
    assert "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16" in made and "cp.async.bulk.tensor" in made
    assert "mma.sync" not in made
    found = ptxas.find_ptxas()
    if found is None or ptxas.version(found) < (12, 8):
        return
    (facts,) = ptxas.assemble(made, "sm_90a").values()
    assert (facts.stack, facts.spill_stores, facts.spill_loads, facts.serialized) == (0, 0, 0, "")


def test_the_script_replays() -> None:
    scheduled(lowered(product("float16", 64, 128, 64)), ONE)


@pytest.mark.parametrize(
    ("sizes", "target", "why"),
    [
        ((4096, 4096, 4096), "cuda{arch=sm_90}", "no warpgroup instructions"),
        ((4096, 4096, 4100), HOPPER, "cannot be copied 16 bytes"),
        ((48, 4096, 4096), HOPPER, "too few rows"),
        ((256, 256, 4096), HOPPER, "are estimated to be faster"),
        (("64", '"n"', "64"), HOPPER, "may be unaligned"),
    ],
)
def test_unsuitable_products_are_left_to_other_rules(
    sizes: tuple[object, object, object], target: str, why: str
) -> None:
    (found,) = chosen(lowered(product("float16", *sizes)), target).values()
    assert found.rule == "gpu-tensor-cores" and why in dict(found.passed)[RULE]


def test_tiles_fit_the_device() -> None:
    """The largest where all multiprocessors are busy; never more than a device has room for."""
    facts = GpuFacts.of(HOPPER)
    large = choose(facts, GemmSizes(8192, 8192, 8192, 1, 2))
    assert large is not None and (large.tile.rows, large.tile.columns, large.stages) == (128, 256, 4)
    tight = choose(GpuFacts.of("cuda{arch=sm_90a shared-bytes=40960}"), GemmSizes(8192, 8192, 8192, 1, 2))
    assert tight is not None and tight.stages * tight.tile.step_bytes <= 40960
    assert choose(GpuFacts.of("cuda{arch=sm_90a shared-bytes=8192}"), GemmSizes(512, 512, 512, 1, 2)) is None

"""Rules for GPUs: which takes what, and that what it makes computes what the kernel computed, emulated with all checks
(races, memory out of bounds)."""

from __future__ import annotations

import re

import numpy as np
import pytest

import mlcc
from mlcc.errors import CompileError
from mlcc.ir import tir
from mlcc.ir.dtypes import FLOAT32, FLOAT64, INT32
from mlcc.ir.node import walk
from mlcc.machine.gpu_rates import GpuRates
from mlcc.machine.gpu_tables import GpuFacts
from mlcc.passes.auto_schedule.gpu.simt_tiles import product_seconds
from mlcc.passes.auto_schedule.gpu.split_k import rate_parts, splittable_sizes
from mlcc.passes.auto_schedule.kernel import AnyKernel
from mlcc.passes.auto_schedule.products import only_product
from mlcc.runtime.loader import load
from mlcc.targets.cuda import ptxas
from mlcc.targets.emulate.report import MeasuringDevice
from tests.auto_schedule.kernels import arguments, chosen, graph, lowered, scheduled
from tests.lower import lower_gpu

GPU = "cuda{arch=sm_90}"


def agree(text: str, sizes: dict[str, int] | None = None, **rules: str) -> mlcc.IRModule:
    """Schedules the kernels of a graph, checks which rule took them, and runs the result; gives it."""
    mod = lowered(text)
    found = {a.name: a.rule for a in chosen(mod, GPU).values()}
    assert sorted(map(str, found.values())) == sorted(rules.values()), found
    made = scheduled(mod, GPU)
    args = arguments(mod, sizes=sizes)
    have = mlcc.load(mlcc.build(made, GPU, pipeline="lower-to-tir"), emulate=True)["main"](*args)
    want = mlcc.load(mlcc.build(mod, "llvm{cpu=native}", opt_level=1, pipeline="lower-to-tir"))["main"](*args)
    np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-4)
    return made


def threads(mod: mlcc.IRModule) -> set[str]:
    """The thread axes that the functions of a module bind."""
    return {
        str(n.thread)
        for f in mod.functions.values()
        if isinstance(f, tir.PrimFunc)
        for n in walk(f)
        if isinstance(n, tir.For) and n.thread
    }


def floats(**shapes: str) -> str:
    """Parameters of float32."""
    return ", ".join(f'{name}: R.Tensor({shape}, "float32")' for name, shape in shapes.items())


def product(m: object, n: object, k: object) -> str:
    params = floats(x=f"({m}, {k})", w=f"({k}, {n})", b=f"({n},)")
    return graph(params, "y = R.matmul(x, w)", "z = R.add(y, b)", "o = R.nn.relu(z)", result="o")


@pytest.mark.parametrize(("m", "n", "k"), [(64, 64, 32), (101, 67, 53), (16, 17, 1), (300, 131, 20)])
def test_products_agree_when_emulated(m: int, n: int, k: int) -> None:
    made = agree(product(m, n, k), rule="gpu-matmul")
    assert {"blockIdx.x", "threadIdx.x", "threadIdx.y"} <= threads(made)


@pytest.mark.parametrize(
    ("device", "m", "n", "k"),
    [
        ("sm_75", 64, 64, 4096), ("sm_80", 37, 53, 3000), ("sm_90", 17, 16, 2003), ("sm_80", 64, 32, 1024),
        ("sm_80 sm-count=6", 200, 130, 1003), ("sm_90 sm-count=13", 160, 96, 2048),
        ("sm_75 sm-count=6", 160, 160, 1024),
    ],
)  # fmt: skip
def test_reductions_are_split_to_fill_the_device(device: str, m: int, n: int, k: int) -> None:
    """Of a few tiles, or of as many as leave the last wave half empty: blocks compute partial products, and a second
    kernel adds them up, with the epilogue."""
    text, target = product(m, n, k), f"cuda{{arch={device}}}"
    (found,) = chosen(lowered(text), target).values()
    assert found.rule == "gpu-matmul" and " parts, added up by a second kernel" in " ".join(found.choices)
    artifact = mlcc.build(mlcc.parse(text), target)
    assert [kernel.name for kernel in artifact.launch.kernels] == [
        f"fused_matmul_add_relu_kernel{i}" for i in ("", "_1")
    ]
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(shape).astype("float32") for shape in ((m, k), (k, n), (n,)))
    run = mlcc.load(artifact, emulate=True)["main"]
    have = run(x, w, b)
    np.testing.assert_allclose(have, np.maximum(x.astype("float64") @ w + b, 0), rtol=0, atol=1e-6 * k)
    assert np.array_equal(have, run(x, w, b)), "the order of additions is fixed"


def test_a_split_product_reads_its_operands_as_they_are_in_memory() -> None:
    """Neighbouring threads copy neighbouring elements: no more sectors than the bytes fill, but for the edges."""
    for transposed in (False, True):
        w = "R.permute_dims(w)" if transposed else "w"
        shape = "(64, 8192)" if transposed else "(8192, 64)"
        text = graph(floats(x="(64, 8192)", w=shape), f"t = {w}", "y = R.matmul(x, t)", result="y")
        artifact = mlcc.build(mlcc.parse(text), GPU)
        device = MeasuringDevice(artifact.launch.kernels, GpuFacts.of(GPU), blocks=2)
        rng = np.random.default_rng(0)
        given = [rng.standard_normal(s).astype("float32") for s in ((64, 8192), (64, 8192)[:: 1 if transposed else -1])]
        load(artifact, device=device)["main"](*given)
        first = next(iter(device.report.kernels.values()))
        sectors, least = first.total("global")
        assert sectors <= 1.1 * least, transposed


@pytest.mark.parametrize(("m", "n", "k"), [(4096, 4096, 4096), (64, 64, 200), (2048, 2048, 512)])
def test_other_reductions_are_not_split(m: int, n: int, k: int) -> None:
    """There are tiles enough, or the reduction is short."""
    (found,) = chosen(lowered(product(m, n, k)), "cuda{arch=sm_80}").values()
    assert found.rule == "gpu-matmul" and " parts" not in " ".join(found.choices)


@pytest.mark.parametrize(
    ("tiles", "depth", "parts"),
    [(5, 65536, 4), (4, 65536, 1), (1, 65536, 4), (3, 65536, 4), (5, 1024, 1), (7, 65536, 4), (4001, 65536, 1)],
)
def test_parts_of_reductions(tiles: int, depth: int, parts: int) -> None:
    """On four multiprocessors, a tile of which takes a nanosecond for each step; few results are added up."""

    def time(depth: int, batches: int) -> float:
        return -(-tiles * batches // 4) * depth * 1e-9

    facts = GpuFacts.of("cuda{arch=sm_80}")
    rated = rate_parts(facts, 1000, depth, 1, 4, time)
    seconds = {count: taken for taken, count in rated}
    assert rated[0][1] == parts and sorted(seconds) == list(range(1, min(64, depth // 128) + 1))
    assert rated[0][0] <= 1.1 * min(seconds.values()) and seconds[1] == time(depth, 1)
    assert parts == 1 or rated[0][0] < seconds[1] / 1.1


@pytest.mark.parametrize(
    ("m", "n", "reduced", "dtype", "sizes"),
    [
        (64, 48, (512,), "float32", (64, 48, 512, 3)),
        (64, 48, (512,), "float64", (64, 48, 512, 3)),
        (64, 48, (512,), "float16", None),
        (15, 64, (512,), "float32", None),
        (64, 15, (512,), "float32", None),
        ("m", 64, (512,), "float32", None),
        (64, 64, (16, 32), "float32", None),
    ],
)
def test_which_reductions_may_be_split(
    m: object, n: int, reduced: tuple[int, ...], dtype: str, sizes: tuple[int, ...] | None
) -> None:
    along = ", ".join(map(str, reduced))
    axes = ", ".join(f"k{at}" for at in range(len(reduced)))
    rows = f'"{m}"' if isinstance(m, str) else m
    text = f"""
@T.prim_func
def main(A: T.Buffer((3, {rows}, {along}), "{dtype}"), B: T.Buffer((3, {along}, {n}), "{dtype}"),
         C: T.Buffer((3, {rows}, {n}), "{dtype}")):
    for b, i, j, {axes} in T.grid(3, {m}, {n}, {along}):
        with T.block("product"):
            vb, vi, vj, {", ".join(f"v{at}" for at in range(len(reduced)))} = T.axis.remap("SSS{"R" * len(reduced)}", [b, i, j, {axes}])
            with T.init():
                C[vb, vi, vj] = T.{dtype}(0)
            C[vb, vi, vj] = C[vb, vi, vj] + A[vb, vi, {axes.replace("k", "v")}] * B[vb, {axes.replace("k", "v")}, vj]
"""  # noqa: E501
    func = mlcc.parse(text)["main"]
    assert isinstance(func, tir.PrimFunc)
    _, found = only_product(AnyKernel.of(func, "main", GpuFacts.of(GPU)))
    assert splittable_sizes(found) == sizes


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_90"])
def test_products_take_the_time_of_their_type(arch: str) -> None:
    facts = GpuFacts.of(f"cuda{{arch={arch}}}")
    lanes = GpuRates.of(facts).lanes
    step = {}
    for dtype in (FLOAT32, FLOAT64, INT32):
        short, long = (product_seconds(facts, 512, 512, 8, dtype, depth, 2) for depth in (1000, 2000))
        step[str(dtype)] = (long - short) * lanes[str(dtype)]
    assert step["float64"] == pytest.approx(step["float32"]) == pytest.approx(step["int32"])
    assert lanes["float64"] < lanes["float32"]


def test_large_products_have_pieces_of_threads() -> None:
    mod = scheduled(lowered(product(4096, 4096, 4096)), GPU)
    assert {"vthread.x", "vthread.y"} <= threads(mod)
    func = mod["fused_matmul_add_relu"]
    assert isinstance(func, tir.PrimFunc)
    (kernel,) = lower_gpu("f", func).kernels
    made = [n.buffer for s in kernel.body for n in walk(s) if isinstance(n, tir.AllocBuffer)]
    sizes = {b.scope: sum(tir.const_int(x.shape[0]) or 0 for x in made if x.scope == b.scope) for b in made}
    assert sizes == {"shared": 4 * (128 * 8 + (7 * (128 + 4) + 128)), "local": 8 * 16}


def test_the_code_of_a_large_product() -> None:
    """Per thread and step over depth 128 products for each element of depth, operands by four from shared memory, while
    those of later steps are copied; one barrier."""
    text = mlcc.build(mlcc.parse(product(4096, 4096, 4096)), GPU).emit("ptx").decode()
    assert text.count("fma.rn.f32") == 8 * 128 and text.count("bar.sync") == 1
    assert len(re.findall(r"ld\.shared\.v4", text)) == 8 * 6 and not re.search(r"ld\.shared\.[bf]32", text)
    assert [text.count(f"cp.async.{kind}.shared") for kind in ("ca", "cg")] == [4 * 8, 4 * 2]
    assert len(re.findall(r"st\.global\.v4", text)) == 32 and ".local" not in text
    if ptxas.find_ptxas() is not None:
        (facts,) = ptxas.assemble(text, "sm_90").values()
        assert facts.spill_stores == facts.spill_loads == 0
        assert 2 * 128 * facts.registers <= 65536  # two blocks at once


def test_sizes_that_vectors_divide_and_tiles_do_not() -> None:
    """Padding says for whole vectors whether they are copied and stored."""
    text = mlcc.build(mlcc.parse(product(1000, 1000, 40)), GPU).emit("ptx").decode()
    assert "cp.async.cg.shared.global" in text
    assert "st.global.v4" in text and "st.global.b32" not in text


@pytest.mark.parametrize(
    ("x", "w"),
    [
        ("(1, 64)", "(64, 96)"), ("(3, 70)", "(70, 37)"), ("(15, 33)", "(33, 20)"), ('(2, "n")', '("n", 40)'),
        ("(2, 1, 30)", "(2, 30, 64)"),
    ],
)  # fmt: skip
def test_few_rows_times_a_matrix(x: str, w: str) -> None:
    """Threads along the columns, groups of them along what is summed up over."""
    text = graph(floats(x=x, w=w), "y = R.matmul(x, w)", "o = R.nn.relu(y)", result="o")
    made = agree(text, {"n": 45}, rule="gpu-gemv-columns")
    assert {"blockIdx.x", "threadIdx.x", "threadIdx.y"} == threads(made)


@pytest.mark.parametrize(("rows", "ahead"), [(1, 4), (8, 2)])
def test_a_matrix_comes_in_whole_vectors(rows: int, ahead: int) -> None:
    text = graph(floats(x=f"({rows}, 4096)", w="(4096, 4096)"), "y = R.matmul(x, w)", result="y")
    code = mlcc.build(mlcc.parse(text), GPU).emit("ptx").decode()
    assert code.count("ld.global.nc.v4") >= ahead and code.count("bar.sync") == 1
    assert code.count("fma.rn.f32") >= 16 and ".local" not in code
    if ptxas.find_ptxas() is not None:
        (facts,) = ptxas.assemble(code, "sm_90").values()
        assert facts.spill_stores == facts.spill_loads == 0


def test_products_of_sizes_that_are_not_known() -> None:
    text = product('"m"', 96, '"k"')
    agree(text, {"m": 37, "k": 21}, rule="gpu-matmul")


@pytest.mark.parametrize("transposed", [False, True])
def test_batched_products_agree_when_emulated(transposed: bool) -> None:
    other = "(3, 40, 48)" if transposed else "(3, 48, 40)"
    lines = ["t = R.permute_dims(w, axes=[0, 2, 1])", "y = R.matmul(x, t)"] if transposed else ["y = R.matmul(x, w)"]
    text = graph(floats(x="(3, 33, 48)", w=other), *lines, result="y")
    agree(text, **{"a": "gpu-matmul", **({"b": "gpu-transposes"} if transposed else {})})


@pytest.mark.parametrize(
    ("data", "weight", "options"),
    [
        ("(2, 3, 14, 14)", "(20, 3, 3, 3)", "padding=[1, 1, 1, 1]"),
        ("(1, 4, 15, 13)", "(16, 4, 3, 3)", "strides=[2, 2], dilation=[2, 2], padding=[2, 2, 2, 2]"),
        ('("n", 5, 7, 7)', "(18, 5, 3, 3)", "padding=[1, 1, 1, 1]"),
        ("(1, 20, 9, 9)", "(16, 20, 1, 1)", "strides=[2, 2]"),
        ("(1, 9, 9, 5)", "(24, 3, 2, 5)", 'data_layout="NHWC", kernel_layout="OHWI"'),
    ],
)
def test_convolutions_agree_when_emulated(data: str, weight: str, options: str) -> None:
    text = graph(floats(x=data, w=weight), f"y = R.nn.conv2d(x, w, {options})", "o = R.nn.relu(y)", result="o")
    made = agree(text, {"n": 2}, rule="gpu-conv")
    stages = {n.name for f in made.functions.values() for n in walk(f) if isinstance(n, tir.Block)}
    assert len(stages - {"root"}) == 5  # two fetches, the sums and their start, and what stores them


@pytest.mark.parametrize(
    ("shape", "line", "rule"),
    [
        ("(40, 70)", "R.sum(x, axis=[1])", "gpu-rows"),
        ("(40, 70)", "R.sum(x, axis=[0])", "gpu-fallback"),
        ("(40, 70)", "R.max(x)", "gpu-fallback"),
        ("(700, 1000)", "R.sum(x)", "gpu-fallback"),
        ("(40, 9)", "R.mean(x, axis=[1])", "gpu-rows"),
        ("(0, 9)", "R.sum(x, axis=[1])", "None"),
        ("(3, 0)", "R.collapse_sum_to(x, R.shape([3, 1]))", "None"),
        ("(3, 70)", "R.argmax(x, axis=1)", "gpu-rows"),
    ],
)
def test_reductions_agree_when_emulated(shape: str, line: str, rule: str) -> None:
    agree(graph(floats(x=shape), f"y = {line}", result="y"), rule=rule)


@pytest.mark.parametrize("shape", ["(33, 70)", "(32, 64)", "(40, 3, 50)"])
def test_transposes_agree_when_emulated(shape: str) -> None:
    made = agree(graph(floats(x=shape), "t = R.permute_dims(x)", "y = R.exp(t)", result="y"), rule="gpu-transposes")
    assert {"blockIdx.x", "threadIdx.x", "threadIdx.y"} == threads(made)


@pytest.mark.parametrize("shape", ["(1,)", "(0, 3)", "(7, 11)", "(512, 1024)", '("n", 12)'])
def test_elementwise_kernels_agree_when_emulated(shape: str) -> None:
    agree(graph(floats(x=shape), "y = R.tanh(x)", "z = R.add(x, y)", result="z"), {"n": 5}, rule="gpu-elementwise")


def test_reductions_whose_combiner_threads_do_not_know() -> None:
    """A disjunction of bools: by one thread for each result."""
    text = graph('x: R.Tensor((3, 5, 64), "bool")', "y = R.collapse_sum_to(x, R.shape([]))", result="y")
    agree(text, rule="gpu-fallback")


def test_more_shared_memory_than_a_block_gets() -> None:
    text = """
@T.prim_func
def f(A: T.Buffer((128, 512), "float32"), B: T.Buffer((128, 512), "float32")):
    tx = T.launch_thread("threadIdx.x", 128)
    S = T.alloc_buffer((128, 512), "float32", scope="shared")
    for i in range(512):
        S[tx, i] = A[tx, i]
    for i in range(512):
        B[tx, i] = S[127 - tx, i]
"""
    with pytest.raises(CompileError, match="262144 bytes of shared memory"):
        mlcc.build(mlcc.parse(text), GPU)

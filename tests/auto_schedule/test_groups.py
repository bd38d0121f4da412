"""Products of bytes, added up in groups: every layout, sign and CPU, with exact results."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

import mlcc
from mlcc.interp import run_prim_func
from mlcc.ir import tir
from mlcc.machine import host
from mlcc.machine.cpu import features_of
from mlcc.machine.cpu_tables import CpuFacts
from mlcc.machine.target import Target
from mlcc.passes.lowering.options import LowerOptions
from tests.auto_schedule.kernels import chosen, graph, lowered, scheduled
from tests.auto_schedule.products import EPILOGUES, FORMS, Product
from tests.auto_schedule.test_conv import LAYOUTS
from tests.auto_schedule.test_matmul import made, small
from tests.lower import lower_func

SIGNS = [(a, b) for a in ("int8", "uint8") for b in ("int8", "uint8")]
X86 = "llvm{{triple=x86_64-linux-gnu cpu={}}}"
ARM = "llvm{{triple=aarch64-linux-gnu cpu={}}}"
CPUS = {name: X86.format(name) for name in ("x86-64", "x86-64-v3", "alderlake", "sierraforest", "x86-64-v4", "znver4")}
CPUS |= {name: ARM.format(name) for name in ("generic", "cortex-a76", "neoverse-n2")}
BFLOAT16_CPUS = {name: X86.format(name) for name in ("cooperlake", "sapphirerapids", "znver5")}


def runnable(cpu: str) -> bool:
    target = Target.parse(CPUS[cpu]).resolved()
    facts = features_of(target.triple, target.cpu, ())
    ours = host.triple().partition("-")[0] == target.triple.partition("-")[0]
    return ours and {f"+{f}" for f in facts} <= set(host.cpu_features())


@pytest.mark.parametrize("cpu", CPUS)
def test_lowering_for_every_cpu_keeps_results(cpu: str) -> None:
    """In the interpreter, lowered with what the CPU has: what is flipped, widened, padded and put side by side."""
    rng = random.Random(cpu)
    facts = small(CPUS[cpu])
    done = []
    for number in range(6):
        form = rng.choice([f for f in FORMS if len(set(f)) < 8])
        letters = sorted(set(form) - set(",->"))
        sizes: dict[str, int | str] = {x: rng.choice((1, 2, 3, 5, 7)) for x in letters}
        sizes |= {x: rng.choice((19, 25, 31)) for x in "mn" if x in letters and len(letters) < 5}
        a, b = rng.choice(SIGNS)
        product = Product(form, sizes, a, "int32", rng.choice(EPILOGUES), unit=rng.random() < 0.2, other=b)
        found = made(product, facts)
        assert found.func is not None
        done.append("products at a time" in "".join(found.choices))
        arrays = product.arrays({}, number)
        run_prim_func(lower_func(found.func, {}, LowerOptions(dots=facts.dots)), arrays)
        for got, want in zip(arrays[::-1], product.expected(product.arrays({}, number))[::-1], strict=False):
            np.testing.assert_array_equal(got, want)
    assert any(done) == (cpu != "generic")


@pytest.mark.parametrize("cpu", [c for c in CPUS if runnable(c)])
def test_compiled_products_match_numpy(cpu: str) -> None:
    turn = len(cpu) % 2
    for number, (form, (a, b)) in enumerate(zip(("mk,kn->mn", "mk,nk->mn"), SIGNS[2 * turn :], strict=False)):
        sizes = ((33, 45, 70), (64, 64, 96))[(number + turn) % 2]
        product = Product(form, dict(zip("mkn", sizes, strict=True)), a, "int32", EPILOGUES[number], other=b)
        mod = scheduled(mlcc.parse(product.text()), CPUS[cpu])
        exe = mlcc.load(mlcc.build(mod, target=CPUS[cpu], pipeline="lower-to-tir"))
        arrays = product.arrays({}, number)
        exe["main"](*arrays)
        np.testing.assert_array_equal(arrays[-1], product.expected(product.arrays({}, number))[-1])


@pytest.mark.parametrize(
    ("cpu", "a", "b", "instruction"),
    [
        ("x86-64", "float32", "float32", r"\tmulps\t.*xmm"),
        ("x86-64-v3", "float32", "float32", r"\tvfmadd\w+ps\t.*ymm"),
        ("generic", "float32", "float32", r"\tfmla\tv\d+\.4s"),
        ("neoverse-n2", "float32", "float32", r"\tfmla\tv\d+\.4s"),
        ("x86-64-v3", "float16", "float16", r"\tvfmadd\w+ps\t.*ymm"),
        ("generic", "bfloat16", "bfloat16", r"\tfmla\tv\d+\.4s"),
        ("x86-64", "int8", "int8", r"\tpmaddwd\t.*xmm"),
        ("x86-64-v3", "int8", "uint8", r"\tvpmaddwd\t.*ymm"),
        ("alderlake", "uint8", "int8", r"\tvpdpbusd\t.*ymm"),
        ("sierraforest", "int8", "int8", r"\tvpdpbssd\t.*ymm"),
        ("znver4", "int8", "int8", r"\tvpdpbusd\t.*zmm"),
        ("znver4", "bfloat16", "bfloat16", r"\tvdpbf16ps\t.*zmm"),
        ("cooperlake", "bfloat16", "bfloat16", r"\tvdpbf16ps\t.*zmm"),
        ("sapphirerapids", "bfloat16", "bfloat16", r"\tvdpbf16ps\t.*zmm"),
        ("znver5", "bfloat16", "bfloat16", r"\tvdpbf16ps\t.*zmm"),
        ("x86-64-v3", "bfloat16", "bfloat16", r"\tvfmadd\w+ps\t.*ymm"),
        ("cortex-a76", "int8", "int8", r"\tsdot\tv\d+\.4s"),
        ("cortex-a76", "uint8", "int8", r"\tsdot\tv\d+\.4s"),
        ("neoverse-n2", "uint8", "int8", r"\tusdot\tv\d+\.4s"),
    ],
)
@pytest.mark.parametrize("form", ["mk,kn->mn", "mk,nk->mn"])
def test_tiles_are_registers(cpu: str, a: str, b: str, instruction: str, form: str) -> None:
    """The loop over the depth does the products of the tile, and stores nothing."""
    product = Product(form, {"m": 96, "k": 128, "n": 192}, a, "int32" if "int8" in a else "float32", other=b)
    target = (CPUS | BFLOAT16_CPUS)[cpu]
    found = made(product, CpuFacts.of(target))
    assert found.rule == "matmul" and found.func is not None
    rows, vectors = map(int, re.findall(r"(\d+) rows and (\d+) vectors", found.choices[0])[0])
    module = mlcc.IRModule({"main": found.func})
    asm = mlcc.build(module, target=target, pipeline="lower-to-tir").emit("asm").decode()
    bodies = [b for part in re.split(r"^\.L\w+:", asm, flags=re.M) for b in re.split(r"\n\t(?:j\w+|b\.\w+)\t", part)]
    counts = {b: len(re.findall(instruction, b)) for b in bodies}  # sums of columns are made by such products as well
    inner = max((b for b in bodies if counts[b] % (rows * vectors) == 0), key=counts.__getitem__)
    assert counts[inner] > 0
    stores = r"\tv?mov(?:aps|ups|dqa|dqu|dqa64|dqu64|dqu32|dqa32)\t%[xyz]mm\d+, .*\(|\tst[rp]\t.*\bq\d+"
    assert not re.search(stores, inner)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("cpu", ["znver4", "x86-64-v3", "cortex-a76"])
def test_compiled_convolutions_match_numpy(layout: str, cpu: str) -> None:
    for number, (channels, window, stride, pad, dtype) in enumerate((
        ((5, 19), (3, 2), 1, 1, "int8"), ((8, 16), (3, 3), 2, 1, "uint8"), ((3, 33), (2, 2), 1, 0, "int8"),
    )):  # fmt: skip
        extents = {"N": 2, "C": channels[0], "H": 6, "W": 9 if layout == "NHWC" else 18}
        weights = {"O": channels[1], "I": channels[0], "H": window[0], "W": window[1]}
        shapes = [tuple(table[x] for x in order) for table, order in
                  ((extents, layout), (weights, LAYOUTS[2][layout]))]  # fmt: skip
        line = (f'y = R.nn.conv2d(x, w, strides={stride}, padding={pad}, data_layout="{layout}", '
                f'kernel_layout="{LAYOUTS[2][layout]}", out_dtype="int32")')  # fmt: skip
        params = f'x: R.Tensor({shapes[0]}, "{dtype}"), w: R.Tensor({shapes[1]}, "int8")'
        mod = lowered(graph(params, line, result="y"))
        (found,) = chosen(mod, CPUS[cpu]).values()
        kernel = found.func
        assert kernel is not None and found.rule == "conv" and "products at a time" in found.choices[0]
        rng = np.random.default_rng(number)
        given = [rng.integers(np.iinfo(d).min, np.iinfo(d).max + 1, s).astype(d)
                 for s, d in zip(shapes, (dtype, "int8"), strict=True)]  # fmt: skip
        out = [np.zeros([int(tir.const_int(n) or 0) for n in kernel.buffers[-1].shape], "int32") for _ in range(2)]  # type: ignore[union-attr]
        run_prim_func(kernel, [*given, out[0]])
        before = next(f for f in mod.functions.values() if isinstance(f, tir.PrimFunc))
        run_prim_func(before, [*given, out[1]])
        np.testing.assert_array_equal(*out)


@pytest.mark.parametrize("sizes", [(0, 5, 7), (1, 1, 1), (37, 18, 50), (16, 0, 16)])
def test_sizes_that_are_not_known(sizes: tuple[int, int, int]) -> None:
    product = Product("mk,kn->mn", {"m": "rows", "k": "deep", "n": "wide"}, "int8", "int32", "bias")
    known = dict(zip(("rows", "deep", "wide"), sizes, strict=True))
    found = made(product, CpuFacts.of(CPUS["znver4"]))
    assert "sums of 4 products" in found.choices[0] and found.func is not None
    arrays = product.arrays(known, 1)
    run_prim_func(found.func, arrays)
    np.testing.assert_array_equal(arrays[-1], product.expected(product.arrays(known, 1))[-1])


def test_what_follows_stays_with_the_sums() -> None:
    """A quantized layer is one kernel: what a flipped operand adds goes off before the bias."""
    mod = mlcc.parse(graph(
        'x: R.Tensor((20, 40), "int8"), w: R.Tensor((40, 24), "int8"), b: R.Tensor((24,), "int32")',
        'y = R.matmul(x, w, out_dtype="int32")', "z = R.add(y, b)", 'f = R.astype(z, "float32")',
        'g = R.multiply(f, R.const(0.01, "float32"))', "h = R.clip(R.round(g), -128, 127)", 'q = R.astype(h, "int8")',
        result="q",
    ))  # fmt: skip
    made_of = mlcc.run_passes(mod, "O3", target=CPUS["znver4"])
    kernels = [f for f in made_of.functions.values() if isinstance(f, tir.PrimFunc)]
    assert len(kernels) == 1
    (kernel,) = kernels
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-128, 128, s).astype("int8") for s in ((20, 40), (40, 24)))
    b, out = rng.integers(-99, 99, 24).astype("int32"), np.zeros((20, 24), "int8")
    run_prim_func(kernel, [x, w, b, out])
    sums = x.astype("int32") @ w.astype("int32") + b
    wanted = np.clip(np.rint(sums.astype("float32") * np.float32(0.01)), -128, 127).astype("int8")
    np.testing.assert_array_equal(out, wanted)
    assert "uint8" in mlcc.script(kernel) and "w_sums" in mlcc.script(kernel)


def test_few_rows_copy_nothing() -> None:
    product = Product("mk,nk->mn", {"m": 2, "k": 300, "n": 40}, "int8", "int32")
    for cpu, number in (("znver4", 4), ("x86-64-v3", 2), ("cortex-a76", 4), ("generic", 0)):
        found = made(product, CpuFacts.of(CPUS[cpu]))
        assert found.rule == "dots" and found.func is not None
        assert (f"sums of {number} products" in found.choices[0]) == bool(number)
        assert "B_global" not in mlcc.script(found.func) and "B_uint8" not in mlcc.script(found.func)
        arrays = product.arrays({}, 3)
        run_prim_func(found.func, arrays)
        np.testing.assert_array_equal(arrays[-1], product.expected(product.arrays({}, 3))[-1])

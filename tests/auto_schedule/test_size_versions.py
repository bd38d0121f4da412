"""The pass `version-sizes`: kernels of an unknown size in versions for ranges of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlcc
from mlcc.backends import cpu_facts
from mlcc.interp import run_function
from mlcc.ir import tir
from mlcc.ir.module import IRModule
from mlcc.ir.node import find
from mlcc.ir.visit import used_vars
from mlcc.machine.target import Target
from mlcc.passes.auto_schedule.tiles import TYPICAL_SIZES, tiles, typical_sizes
from mlcc.passes.auto_schedule.version_sizes import versioned_functions
from mlcc.passes.graph.bind_params import bind
from mlcc.verify import check
from tests.auto_schedule.kernels import graph, lowered

AVX512, AVX2 = "llvm{cpu=znver4}", "llvm{cpu=znver2}"
SIZES = (0, 1, 2, 3, 4, 5, 8, 13, 15, 16, 17, 23, 24, 31, 127, 128, 131, 500)


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True, initial=-np.inf))
    return e / e.sum(-1, keepdims=True)


# by name: parameters, lines, and the same in NumPy; `n` is unknown
KERNELS: dict[str, tuple[dict[str, tuple[int | str, ...]], list[str], Callable[..., Any]]] = {
    "product": ({"x": ("n", 48), "w": (48, 80)}, ["y = R.matmul(x, w)"], lambda x, w: x @ w),
    "rectified": (
        {"x": ("n", 33), "w": (33, 70)}, ["h = R.matmul(x, w)", "y = R.nn.relu(h)"], lambda x, w: np.maximum(x @ w, 0),
    ),
    "transposed": (
        {"x": ("n", 64), "w": (37, 64), "b": (37,)},
        ["t = R.permute_dims(w)", "h = R.matmul(x, t)", "y = R.add(h, b)"], lambda x, w, b: x @ w.T + b,
    ),
    "scores": (
        {"x": (2, "n", 40), "w": (2, "n", 40)}, ["t = R.permute_dims(w, axes=[0, 2, 1])", "y = R.matmul(x, t)"],
        lambda x, w: x @ w.transpose(0, 2, 1),
    ),
    "keys": (
        {"x": (2, 3, 40), "w": (2, "n", 40)}, ["t = R.permute_dims(w, axes=[0, 2, 1])", "y = R.matmul(x, t)"],
        lambda x, w: x @ w.transpose(0, 2, 1),
    ),
    "softmax": ({"x": (5, "n")}, ["y = R.nn.softmax(x)"], softmax),
    "sum": ({"x": (3, "n")}, ["y = R.sum(x, axis=[1])"], lambda x: x.sum(1)),
    "norm": (
        {"x": (3, "n"), "g": ("n",)}, ["y = R.nn.rms_norm(x, g, axes=[-1])"],
        lambda x, g: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * g,
    ),
    "attention": (
        {"q": (1, "n", 2, 16), "k": (1, "n", 2, 16), "v": (1, "n", 2, 16)}, ["y = R.nn.attention(q, k, v)"],
        lambda q, k, v: np.einsum("bhqk,bkhd->bqhd", softmax(np.einsum("bqhd,bkhd->bhqk", q, k) / 4), v),
    ),
}  # fmt: skip


def text(name: str) -> str:
    shapes, lines, _ = KERNELS[name]
    params = ", ".join(
        f"{param}: R.Tensor(({', '.join(repr(n) if isinstance(n, int) else chr(34) + n + chr(34) for n in shape)},), "
        '"float32")'
        for param, shape in shapes.items()
    )
    return graph(params, *lines, result="y")


def arguments(name: str, size: int) -> list[Any]:
    rng = np.random.default_rng(size)
    shapes = KERNELS[name][0].values()
    return [rng.normal(size=[size if n == "n" else n for n in shape]).astype("float32") for shape in shapes]


def versioned(name: str, target: str) -> IRModule:
    made = mlcc.run_passes(lowered(text(name)), "version-sizes", target=target)
    check(made)
    return made


@cache
def built(name: str) -> Any:
    return mlcc.load(mlcc.build(mlcc.parse(text(name)), target="llvm{cpu=native}"))["main"]


def assert_right(name: str, size: int, result: Any) -> None:
    given = arguments(name, size)
    if size == 0 and name in ("norm", "softmax"):
        return  # nothing, of rows of nothing
    want = KERNELS[name][2](*(a.astype("float64") for a in given))
    np.testing.assert_allclose(result, want, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_has_versions(name: str) -> None:
    found = versioned_functions(lowered(text(name)), Target.parse(AVX512))
    assert found and all("versions, by the size `n`" in outcome.why for outcome in found)
    for outcome in found:
        assert outcome.broken is None and outcome.func is not None
        assert 2 <= sum(choice.startswith("n ") for choice in outcome.choices) <= 4
        (branch, *_) = find(outcome.func.body, tir.IfThenElse)
        assert isinstance(branch.condition, (tir.EQ, tir.LT))


@pytest.mark.parametrize("name", KERNELS)
def test_compiled_versions_are_right_at_the_ends_of_their_ranges(name: str) -> None:
    for size in SIZES:
        assert_right(name, size, built(name)(*arguments(name, size)))


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from([*KERNELS]), size=st.integers(0, 300))
def test_compiled_versions_are_right_for_any_size(name: str, size: int) -> None:
    assert_right(name, size, built(name)(*arguments(name, size)))


@pytest.mark.parametrize("target", [AVX512, AVX2, "llvm{cpu=x86-64}"])
@pytest.mark.parametrize("name", KERNELS)
def test_versions_are_right_in_the_interpreter(name: str, target: str) -> None:
    made = versioned(name, target)
    again = mlcc.parse(mlcc.script(made))
    mlcc.assert_structural_equal(made, again)
    for size in (1, 2, 9):
        assert_right(name, size, run_function(made, "main", arguments(name, size)))


def test_a_tile_suits_the_widths_of_its_version() -> None:
    """Of 24 columns and more, two vectors need half the loads of one and waste few lanes; of a single one, many."""
    facts = cpu_facts(Target.parse(AVX512))
    assert facts is not None
    sizes = typical_sizes(24, None)
    any_width, wide = (tiles(facts, None, None, 16, heights=sizes, widths=w)[0] for w in (TYPICAL_SIZES, sizes))
    assert (any_width.vectors, wide.vectors) == (1, 2)


def test_the_size_of_a_version_is_a_number() -> None:
    """Where one size is left it is known, as in a kernel compiled for it: memory is indexed without it."""
    made = mlcc.run_passes(mlcc.parse(text("softmax")), "O2,lower", target=AVX512)
    (func,) = (f for f in made.functions.values() if isinstance(f, tir.PrimFunc))
    branch = next(iter(find(func.body, tir.IfThenElse)))
    assert isinstance(branch.condition, tir.EQ) and isinstance(branch.condition.lhs, tir.Var)
    size = branch.condition.lhs
    loads = [*find(branch.then_body, tir.BufferLoad)]
    assert loads and not any(size in used_vars(load.indices) for load in loads)
    small = branch.else_body[0] if branch.else_body else None  # the temporary of a short row has a bound
    assert isinstance(small, tir.IfThenElse)
    assert all(tir.const_int(a.buffer.shape[0]) is not None for a in find(small.then_body, tir.AllocBuffer))


@pytest.mark.parametrize("shape", [(8, 64), (1, 1)])
def test_known_sizes_have_no_versions(shape: tuple[int, int]) -> None:
    mod = lowered(graph(f'x: R.Tensor({shape}, "float32")', "y = R.nn.softmax(x)", result="y"))
    assert mlcc.run_passes(mod, "version-sizes", target=AVX512).functions == mod.functions


def test_constant_weights_have_one_version() -> None:
    """They are packed when they are compiled, in one way for all sizes."""
    source = graph(
        'x: R.Tensor(("n", 64), "float32")', 'w = R.ones(R.shape([64, 96]), "float32")', "y = R.matmul(x, w)",
        result="y",
    )  # fmt: skip
    before_schedules = mlcc.run_passes(
        mlcc.parse(source), "fold-constants{created=65536},lower-to-tir,annotate-op-pattern,fuse,fuse-tir"
    )
    assert not versioned_functions(before_schedules, Target.parse(AVX512))


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_constant_weights_that_are_decoded_have_one_version(dtype: str) -> None:
    """Encoded weights are packed when they are compiled, too: no call copies them."""
    decoded = 'R.astype(w, "float32")' if dtype == "float16" else 'R.dequantize(w, s, R.const(0, "int8"), axis=0)'
    params = f'x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 96), "{dtype}"), s: R.Tensor((2, 96), "float32")'
    mod = mlcc.parse(graph(params, f"y = R.matmul(x, {decoded})", result="y"))
    bound = {"w": np.ones((64, 96), dtype), "s": np.ones((2, 96), "float32")}
    mod.functions["main"] = bind(mod["main"], bound, "main", mod, False)
    before = "normalize,lower-to-tir{accurate=true},annotate-op-pattern,fuse{dequantize=true},fuse-tir"
    assert not versioned_functions(mlcc.run_passes(mod, before), Target.parse("llvm{cpu=x86-64-v3}"))


def test_a_report_names_the_ranges() -> None:
    from mlcc.passes.auto_schedule.auto_pass import WhySchedule

    lines: list[str] = []
    target = Target.parse(AVX512)
    mlcc.run_passes(mlcc.parse(text("product")), "O2", target=AVX512, observers=[WhySchedule(lines.append, target)])
    report = "\n".join(lines)
    assert "3 versions, by the size `n` of a call" in report
    assert "n == 1: rule matvec" in report and "n <= 3: rule matmul" in report and "n >= 4: rule matmul" in report

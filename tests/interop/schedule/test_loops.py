"""The loop primitives against TVM's: each case is done on both sides, which both refuse or make the same program."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

tvm = pytest.importorskip("tvm")

import mlcc  # noqa: E402
from mlcc.ir.equal import assert_structural_equal  # noqa: E402
from tests.interop.harness import from_tvm  # noqa: E402
from tests.interop.schedule.agree import read  # noqa: E402

read = functools.cache(read)
Case = Callable[[Any], Any]


def both(text: str, case: Case, stricter: bool = False) -> bool:
    """Do `case` on both sides and compare; was it accepted? `stricter`: mlcc refuses what TVM accepts."""
    module, mirrored = read(text)
    theirs, ours = tvm.s_tir.Schedule(module), mlcc.Schedule(mirrored)
    try:
        case(theirs)
        accepted = True
    except Exception:
        accepted = False
    try:
        case(ours)
        agreed = True
    except mlcc.CompileError:
        agreed = False
    assert agreed == (accepted and not stricter), f"TVM {'accepts' if accepted else 'refuses'}, mlcc does not"
    if agreed:
        assert_structural_equal(ours.mod, from_tvm(theirs.mod))
    return agreed


def nest(extents: list[Any], kinds: str = "", dtype: str = "int32") -> str:
    """One block over a nest of these extents; a str is a symbolic one."""
    kinds = kinds or "S" * len(extents)
    names = "ijkl"[: len(extents)]
    wide = {"int32": "{}", "int64": "T.int64({})"}[dtype]
    dims = [e if isinstance(e, str) else wide.format(e) for e in extents]
    symbols = [e for e in dict.fromkeys(extents) if isinstance(e, str)]
    spatial = [n for n, k in zip(range(len(extents)), kinds, strict=True) if k == "S"]
    out = f"B[{', '.join('v' + names[n] for n in spatial) or '()'}]"
    lines = [
        "@T.prim_func(s_tir=True)",
        "def main(a: T.handle, b: T.handle):",
        *(f"    {s} = T.{dtype}()" for s in symbols),
        f"    A = T.match_buffer(a, ({', '.join(dims)},))",
        f"    B = T.match_buffer(b, ({''.join(dims[n] + ', ' for n in spatial)}))",
        f"    for {', '.join(names)} in T.grid({', '.join(dims)}):",
        '        with T.sblock("B"):',
        *(f"            v{x} = T.axis.{ {'S': 'spatial', 'R': 'reduce'}[k] }({d}, {x})"
          for x, k, d in zip(names, kinds, dims, strict=True)),
        *(["            with T.init():", f"                {out} = T.float32(0)"] if "R" in kinds else []),
        f"            {out} = " + (f"{out} + " if "R" in kinds else "") + f"A[{', '.join('v' + x for x in names)}]",
    ]  # fmt: skip
    return "\n".join(lines)


# ---------------------------------------------------------------- split

FACTORS: list[list[int | None]] = [
    [None, 4], [4, None], [2, None, 3], [None], [1, None], [None, 1], [None, 1, 1], [4, 4], [3, 5], [13], [1, 13],
    [2, 2, 2, 2], [None, None], [0, None], [-1, 4], [4, 0], [None, 32], [32, None], [None, 7],
]  # fmt: skip


@pytest.mark.parametrize("extent", [1, 2, 3, 7, 8, 12, 13, 16, "n"])
@pytest.mark.parametrize("preserve", [True, False])
def test_split_agrees(extent: int | str, preserve: bool) -> None:
    for dtype in ("int32", "int64"):
        text = nest([extent, 3], dtype=dtype)
        for factors in FACTORS:
            both(text, lambda s, f=factors: s.split(s.get_loops("B")[0], f, preserve_unit_iters=preserve))


@pytest.mark.parametrize("extent", ["n * 4", "n + 3", "T.max(n, 1)", "n * 4 + 2"])
def test_split_of_symbolic_extents_agrees(extent: str) -> None:
    text = nest(["n"]).replace("T.grid(n)", f"range({extent})").replace("spatial(n, i)", f"spatial({extent}, i)")
    text = text.replace("(a, (n,)", f"(a, ({extent},)").replace("(b, (n, )", f"(b, ({extent}, )")
    for factors in FACTORS:
        both(text, lambda s, f=factors: s.split(s.get_loops("B")[0], f))


def test_disable_predication_agrees() -> None:
    for extent in (8, 7, "n"):
        for factors in FACTORS:
            overshoots = extent == 7 and None in factors and sum(f is None for f in factors) == 1 and not (
                {1, 7} >= {f for f in factors if f}
            ) or (isinstance(extent, int) and None not in factors)  # fmt: skip
            if factors in ([0, None], [-1, 4], [4, 0]):
                overshoots = False
            text = nest([extent])
            if not overshoots:
                _either(text, lambda s, f=factors: s.split(s.get_loops("B")[0], f, disable_predication=True))


def _either(text: str, case: Case) -> None:
    """mlcc may refuse what TVM accepts, where iterations beyond the extent would run."""
    module, mirrored = read(text)
    ours = mlcc.Schedule(mirrored)
    try:
        case(ours)
    except mlcc.CompileError as exc:
        if "exceed the extent" in str(exc):
            return
    both(text, case)


def test_split_after_split_and_fuse() -> None:
    rng = random.Random(5)
    for _ in range(60):
        extents = [rng.choice((1, 3, 4, 6, 7, 8, "n")) for _ in range(rng.choice((1, 2, 3)))]
        steps = [(rng.choice(("split", "split", "fuse", "reorder")), rng.random(), rng.choice((2, 3, 4, 5)),
                  rng.random() < 0.3) for _ in range(4)]  # fmt: skip

        def case(s: Any, steps: list[Any] = steps) -> None:
            for name, where, size, flag in steps:
                loops = list(s.get_loops("B"))
                at = int(where * len(loops))
                if name == "split":
                    s.split(loops[at], [None, size], preserve_unit_iters=flag)
                elif name == "fuse":
                    s.fuse(*loops[at : at + 2], preserve_unit_iters=flag)
                else:
                    s.reorder(*loops[at:], *loops[:at])

        both(nest(extents, "SSR"[: len(extents)]), case)


# ---------------------------------------------------------------- fuse and reorder

DEPENDENT = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32")):
    for i in range(8):
        for j in range(i + 1):
            with T.sblock("B"):
                vi = T.axis.spatial(8, i)
                vj = T.axis.spatial(8, j)
                B[vi, vj] = A[vi, vj]
"""

BRANCHES = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
    for i in range(8):
        for j in range(8):
            with T.sblock("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj]
        for j in range(8):
            with T.sblock("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = A[vi, vj]
"""

OPAQUE = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32")):
    for i in range(8):
        with T.sblock("O"):
            T.reads(A[i, 0:8])
            T.writes(B[i, 0:8])
            for j in range(8):
                with T.sblock("B"):
                    vi = T.axis.spatial(8, i)
                    vj = T.axis.spatial(8, j)
                    B[vi, vj] = A[vi, vj]
"""

CARRIED = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32")):
    for i, j in T.grid(8, 8):
        with T.sblock("B"):
            vi = T.axis.{kind}(8, i)
            vj = T.axis.spatial(8, j)
            B[vi, vj] = A[vi, vj]
"""

STARTS_AT_2 = nest([8]).replace("for i in T.grid(8)", "for i in range(2, 8)")


def permutations() -> Iterator[tuple[int, ...]]:
    for size in (2, 3, 4):
        yield from itertools.permutations(range(4), size)


def test_reorder_of_a_nest_agrees() -> None:
    text = nest([4, 3, 5, 2], "SSRR")
    for order in permutations():
        both(text, lambda s, o=order: s.reorder(*(s.get_loops("B")[n] for n in o)))
    both(text, lambda s: s.reorder(s.get_loops("B")[0], s.get_loops("B")[0]))
    both(text, lambda s: s.reorder(s.get_loops("B")[0]))


def test_fuse_of_a_nest_agrees() -> None:
    for extents in ([4, 3, 5, 2], [1, 3, 1, 2], ["n", 4, "m", 3], ["n", 1, 1, 1]):
        text = nest(extents, "SSRR")
        for (a, b), flag in itertools.product(itertools.combinations(range(5), 2), (True, False)):
            both(text, lambda s, a=a, b=b, f=flag: s.fuse(*list(s.get_loops("B"))[a:b], preserve_unit_iters=f))
        both(text, lambda s: s.fuse(s.get_loops("B")[0], s.get_loops("B")[2]))
        both(text, lambda s: s.fuse(s.get_loops("B")[1], s.get_loops("B")[0]))
        both(text, lambda s: s.fuse(s.get_loops("B")[1], s.get_loops("B")[1]))


@pytest.mark.parametrize("text", [
    DEPENDENT, BRANCHES, CARRIED.format(kind="opaque"), CARRIED.format(kind="scan"), CARRIED.format(kind="spatial"),
])  # fmt: skip
def test_fuse_and_reorder_agree(text: str) -> None:
    for name in ("fuse", "reorder"):
        both(text, lambda s, n=name: getattr(s, n)(*s.get_loops("B")))
        both(text, lambda s, n=name: getattr(s, n)(*reversed(s.get_loops("B"))))
        both(text, lambda s, n=name: getattr(s, n)(s.get_loops("B")[1], s.get_loops("B")[1]))
    for name in ("parallel", "vectorize", "unroll"):
        for n in (0, 1):
            stricter = name == "vectorize" and n == 1 and text is DEPENDENT  # vectors have a constant length
            both(text, lambda s, n=n, name=name: getattr(s, name)(s.get_loops("B")[n]), stricter)


def test_loops_in_several_blocks_and_branches() -> None:
    for name in ("fuse", "reorder"):
        both(BRANCHES, lambda s, n=name: getattr(s, n)(s.get_loops("B")[1], s.get_loops("C")[1]))
        both(OPAQUE, lambda s, n=name: getattr(s, n)(s.get_loops("O")[0], s.get_loops("B")[0]))
    both(OPAQUE, lambda s: s.split(s.get_loops("O")[0], [None, 3]))
    both(OPAQUE, lambda s: s.split(s.get_loops("B")[0], [None, 3]))


@pytest.mark.parametrize("mark", [
    lambda s, x: s.annotate(x, "key", 1), lambda s, x: s.bind(x, "threadIdx.x"), lambda s, x: s.parallel(x),
    lambda s, x: s.unroll(x), lambda s, x: s.vectorize(x),
])  # fmt: skip
def test_loops_that_carry_more(mark: Any) -> None:
    text = nest([4, 8])
    for step in (lambda s, x: s.split(x, [None, 2]), lambda s, x: s.loop_partition(x, [2]), lambda s, x: s.fuse(x),
                 lambda s, x: s.fuse(x, s.get_loops("B")[1]), lambda s, x: s.reorder(s.get_loops("B")[1], x),
                 lambda s, x: s.add_unit_loop(x), lambda s, x: s.parallel(x), lambda s, x: s.unroll(x)):  # fmt: skip

        def case(s: Any, step: Any = step) -> None:
            loop = s.get_loops("B")[0]
            mark(s, loop)
            step(s, loop)

        both(text, case)


def test_a_loop_that_does_not_start_at_0() -> None:
    both(STARTS_AT_2, lambda s: s.split(s.get_loops("B")[0], [None, 2]))
    both(STARTS_AT_2, lambda s: s.fuse(s.get_loops("B")[0]))


# ---------------------------------------------------------------- loop_partition and merge


def test_loop_partition_agrees() -> None:
    lists: list[list[int | None]] = [
        [2], [2, 3], [None, 2], [2, None], [2, None, 3], [7], [8], [None], [1, 1, 1], [None, None], [0], [-1, None],
        [6, 2],
    ]  # fmt: skip
    for factors in lists:
        for n in (0, 1):
            both(nest([8, 5]), lambda s, f=factors, n=n: s.loop_partition(s.get_loops("B")[n], f))
        both(nest([8, 5], "SR"), lambda s, f=factors: s.loop_partition(s.get_loops("B")[0], f))
    both(nest(["n", 5]), lambda s: s.loop_partition(s.get_loops("B")[0], [2]))
    both(nest([8, 5], "SR"), lambda s: s.loop_partition(s.get_loops("B")[1], [2]), stricter=True)


def test_loop_partition_of_wide_regions_and_nested_blocks() -> None:
    for n in (0, 1):
        both(WIDE_REGION, lambda s, n=n: s.loop_partition(s.get_loops("B")[n], [3]))
        both(IN_OPAQUE, lambda s, n=n: s.loop_partition(s.get_loops("outer")[n], [3]))

    def twice(s: Any) -> None:
        s.loop_partition(s.get_loops("B")[0], [3])
        s.loop_partition(s.get_loops("B_i1")[1], [2])

    both(WIDE_REGION, twice)
    both(nest([8, 5]), twice)


def test_rfactor_of_a_loop_of_one_iteration() -> None:
    text = nest([8, 6], "SR").replace("for i, j in T.grid(8, 6)", "for i, j, u in T.grid(8, 6, 1)")
    for axis in (0, 1):
        assert both(text, lambda s, a=axis: s.rfactor(s.get_loops("B")[2], a))


WIDE_REGION = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((8, 6), "float32"), B: T.Buffer((8, 6), "float32")):
    for i, j in T.grid(8, 6):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.reads(A[0:8, 0:6])
            T.writes(B[0:8, 0:6])
            B[vi, vj] = A[vi, vj] + T.float32(1)
"""

IN_OPAQUE = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((8, 6), "float32"), B: T.Buffer((8, 6), "float32")):
    for i, j in T.grid(8, 6):
        with T.sblock("outer"):
            T.reads(A[i, j])
            T.writes(B[i, j])
            with T.sblock("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(A[vi, vj])
                T.writes(B[vi, vj])
                B[vi, vj] = A[vi, vj] + T.float32(1)
"""


TWO = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((8, 6), "float32"), B: T.Buffer((8, 6), "float32"), C: T.Buffer((8, 6), "float32")):
    for i, j in T.grid(8, 6):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj]
    for i, j in T.grid(8, 6):
        with T.sblock("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = {value}
"""


def test_merge_agrees() -> None:
    for value, stricter in (("A[vi, vj]", False), ("B[vi, vj]", False), ("B[vi, 5 - vj]", True)):
        text = TWO.format(value=value)
        both(text, lambda s: s.merge(s.get_loops("B")[0], s.get_loops("C")[0]))
        both(text, lambda s: s.merge(s.get_loops("B")[1], s.get_loops("C")[1]), stricter)
        both(text, lambda s: s.merge(s.get_loops("C")[1], s.get_loops("B")[1]), "B" in value)
        both(text, lambda s: s.merge(s.get_loops("B")[0], s.get_loops("C")[1]))
        both(text, lambda s: s.merge(s.get_loops("B")[0], s.get_loops("B")[1]))
    both(BRANCHES, lambda s: s.merge(s.get_loops("B")[1], s.get_loops("C")[1]))


# ---------------------------------------------------------------- kinds, axes, unit loops


def test_kinds_of_loops_agree() -> None:
    axes = ("blockIdx.x", "threadIdx.x", "threadIdx.z", "vthread.y", "vthread", "threadIdx", "nonsense")
    for kinds in ("SS", "SR"):
        text = nest([4, 8], kinds)
        for n in (0, 1):
            for name in ("parallel", "vectorize", "unroll"):
                both(text, lambda s, n=n, name=name: getattr(s, name)(s.get_loops("B")[n]))
            for axis in axes:
                both(text, lambda s, n=n, axis=axis: s.bind(s.get_loops("B")[n], axis))


def test_axes_of_blocks_and_unit_loops() -> None:
    text = nest([4, 8, 3], "SSR")
    for order in ([2, 1, 0], [1, 0, 2], [0, 1, 2], [0, 1], [0, 0, 1], [0, 1, 3], [-1, 0, 1]):
        both(text, lambda s, o=order: s.reorder_block_iter_var(s.get_sblock("B"), o))
    for n in (0, 1, 2):
        both(text, lambda s, n=n: s.add_unit_loop(s.get_loops("B")[n]))
    for name in ("B", "root"):
        both(text, lambda s, name=name: s.add_unit_loop(s.get_sblock(name)))

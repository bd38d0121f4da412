"""The rule for products: every layout, dtype and epilogue, at sizes that tiles do not divide."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest

import mlcc
from mlcc.interp import run_prim_func
from mlcc.ir import tir
from mlcc.ir.module import IRModule
from mlcc.ir.node import walk
from mlcc.machine.cpu_tables import CpuFacts
from mlcc.passes.auto_schedule import matmul
from mlcc.passes.auto_schedule.apply_rules import RuleOutcome, schedule_function
from mlcc.passes.auto_schedule.tiles import best_tile, tiles
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.parallel import select_parallel_loops
from mlcc.verify import check
from tests.auto_schedule.kernels import NATIVE, graph, lowered, scheduled
from tests.auto_schedule.products import EPILOGUES, FORMS, Product
from tests.lower import lower_func

X86 = "llvm{triple=x86_64-linux-gnu}"
DTYPES = (("float32", "float32"), ("float64", "float64"), ("float16", "float32"), ("int8", "int32"))


@pytest.fixture(autouse=True)
def panels_for_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that small matrices have them."""
    monkeypatch.setattr(matmul, "MIN_PANEL_REUSE_ROW_MAJOR", 24)


class EagerCpu(CpuFacts):
    """A CPU on which everything is worth the trouble."""

    @property
    def parallel_operations(self) -> int:
        return 16


def small(target: str = X86, cores: int = 1) -> CpuFacts:
    """Tiny caches, so that little matrices are treated as large ones."""
    facts = CpuFacts.of(target)
    fields = {f.name: getattr(facts, f.name) for f in dataclasses.fields(CpuFacts)}
    return EagerCpu(**{**fields, "l1_bytes": 512, "l2_bytes": 1024, "cores": cores})


def made(product: Product, facts: CpuFacts | None = None) -> RuleOutcome:
    """What the rules make of a product, well-formed."""
    found = schedule_function(mlcc.parse(product.text())["main"], "main", facts or small())
    assert found.broken is None and found.func is not None
    check(IRModule({"main": found.func}))
    return found


def assert_right(product: Product, arrays: list[np.ndarray], seed: int, known: dict[str, int] | None = None) -> None:
    """`arrays`, made with `seed` and filled since, hold the results."""
    wanted = product.expected(product.arrays(known or {}, seed))
    tolerance = 1e-9 if product.out == "float64" else 1e-4
    for got, want in zip(arrays[-len(wanted) :], wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("form", FORMS)
def test_products_in_every_layout_keep_results(form: str) -> None:
    """In the interpreter: what tiles, panels and padding compute."""
    rng = random.Random(form)
    for number in range(3):
        letters = sorted(set(form) - set(",->"))
        sizes: dict[str, int | str] = {x: rng.choice((1, 2, 3, 5, 7)) for x in letters}
        sizes |= {x: rng.choice((9, 25, 31)) for x in "mn" if x in letters and len(letters) < 4}
        product = Product(form, sizes, *rng.choice(DTYPES), rng.choice(EPILOGUES), unit=rng.random() < 0.2)
        found = made(product)
        assert found.func is not None
        arrays = product.arrays({}, number)
        run_prim_func(found.func, arrays)
        assert_right(product, arrays, number)


@pytest.mark.parametrize("form", ["bmk,bkn->bmn", "bmk,bnk->bmn", "bkm,bkn->bmn", "bmhk,bnhk->bhmn"])
def test_batches_have_their_panels_where_they_use_them(form: str) -> None:
    sizes: dict[str, int | str] = {"b": 5, "h": 3, "m": 33, "n": 45, "k": 5}
    product = Product(form, {x: n for x, n in sizes.items() if x in form}, epilogue="bias")
    found = made(product)
    assert "for each matrix of the batch" in found.choices[0] and "compute_at" in str(found.trace)
    assert found.func is not None
    arrays = product.arrays({}, 2)
    run_prim_func(found.func, arrays)
    assert_right(product, arrays, 2)


@pytest.mark.parametrize(
    ("form", "sizes"),
    [
        ("mk,nk->mn", {"m": 127, "n": 97, "k": 19}),
        ("mk,nk->mn", {"m": 33, "n": 45, "k": 5}),
        ("mk,kn->mn", {"m": 31, "n": 53, "k": 7}),
        ("mk,kn->mn", {"m": 40, "n": 97, "k": 11}),
    ],
)
@pytest.mark.parametrize("epilogue", ["", "bias"])
def test_each_task_packs_the_panel_that_it_multiplies(form: str, sizes: dict[str, int | str], epilogue: str) -> None:
    """Panels that are shared would move from core to core in every call."""
    product = Product(form, sizes, epilogue=epilogue)
    found = made(product, small(cores=2))
    assert "by the task that multiplies them" in found.choices[0]
    assert found.func is not None
    lowered_func = lower_func(found.func, {}, LowerOptions(vector_bytes=64))
    (loop,) = (n for n in walk(lowered_func.body) if isinstance(n, tir.For) and n.kind is tir.ForKind.PARALLEL)
    assert any(isinstance(n, tir.AllocBuffer) and n.buffer.scope == "global" for n in walk(loop.body))
    arrays = product.arrays({}, 2)
    run_prim_func(found.func, arrays)
    assert_right(product, arrays, 2)
    assert "by the task" not in made(product, small(cores=1)).choices[0]


def test_few_panels_for_the_cores_are_packed_before_and_shared() -> None:
    wide = CpuFacts.of("llvm{triple=x86_64-linux-gnu cpu=x86-64-v4 num-cores=16}")
    assert "by the task" not in made(Product("mk,nk->mn", {"m": 512, "n": 97, "k": 512}), wide).choices[0]
    assert "by the task" in made(Product("mk,nk->mn", {"m": 512, "n": 4096, "k": 512}), wide).choices[0]


@pytest.mark.parametrize(
    ("rule", "product"),
    [
        ("matvec", Product("k,kn->n", {"n": 21, "k": 13}, epilogue="bias-relu")),
        ("matvec", Product("mk,kn->mn", {"m": 1, "n": 40, "k": 16})),
        ("matvec", Product("bk,bkn->bn", {"b": 3, "n": 9, "k": 11}, "float64", "float64", "twice")),
        ("dots", Product("mk,nk->mn", {"m": 6, "n": 8, "k": 19}, epilogue="bias")),
        ("dots", Product("bmk,bnk->bmn", {"b": 2, "m": 5, "n": 7, "k": 16}, epilogue="residual")),
        ("dots", Product("k,nk->n", {"n": 7, "k": 33}, "float64", "float64")),
        ("dots", Product("mk,nk->mn", {"m": "size", "n": 3, "k": 10})),
    ],
    ids=str,
)
def test_matrices_that_are_used_once(rule: str, product: Product) -> None:
    found = made(product)
    assert found.rule == rule and found.func is not None
    known = {s: 3 for s in product.sizes.values() if isinstance(s, str)}
    arrays = product.arrays(known, 4)
    run_prim_func(found.func, arrays)
    assert_right(product, arrays, 4, known)


@pytest.mark.parametrize("form", ["mk,nk->mn", "km,nk->mn"])
def test_few_rows_of_short_sums(form: str) -> None:
    """Too short for dot products, and read too rarely for panels: panels all the same."""
    product = Product(form, {"m": 6, "n": 40, "k": 5}, epilogue="bias")
    found = made(product)
    assert found.rule == "matmul" and found.func is not None
    arrays = product.arrays({}, 4)
    run_prim_func(found.func, arrays)
    assert_right(product, arrays, 4)


def test_a_batch_of_unknown_width() -> None:
    product = Product("bmk,bnk->bmn", {"b": 5, "m": 33, "n": "size", "k": 7}, epilogue="twice")
    found = made(product)
    assert found.rule == "matmul" and found.func is not None
    arrays = product.arrays({"size": 9}, 2)
    run_prim_func(found.func, arrays)
    assert_right(product, arrays, 2, {"size": 9})


@pytest.mark.parametrize("depth", [256, 301, 1024])
def test_cores_share_the_rows_of_a_narrow_matrix(depth: int) -> None:
    product = Product("k,kn->n", {"n": 9, "k": depth}, "float64", "float64", "bias")
    found = made(product, small(cores=4))
    assert found.rule == "matvec" and "rfactor" in str(found.trace) and found.func is not None
    arrays = product.arrays({}, 4)
    run_prim_func(found.func, arrays)
    assert_right(product, arrays, 4)


@pytest.mark.parametrize("letter", "mnk")
@pytest.mark.parametrize("extent", [0, 1, 11])
def test_symbolic_sizes_keep_results(letter: str, extent: int) -> None:
    product = Product("mk,kn->mn", {"m": 9, "n": 18, "k": 5} | {letter: "size"}, epilogue="bias-relu")
    found = made(product)
    assert found.rule == "matmul" and found.func is not None
    arrays = product.arrays({"size": extent}, 3)
    run_prim_func(found.func, arrays)
    assert_right(product, arrays, 3, {"size": extent})


def test_rows_of_an_unknown_number_are_not_padded() -> None:
    """The left operand is read in place; the last tile has fewer rows, and none of them is asked for by itself."""
    found = made(Product("mk,kn->mn", {"m": "size", "n": 64, "k": 32}, epilogue="relu"), CpuFacts.of(X86))
    assert found.func is not None and found.rule == "matmul"
    assert not any(b.name.endswith("_pad") for b in found.func.root.alloc_buffers)  # type: ignore[union-attr]
    conditions = [n.condition for n in walk(lower_func(found.func)) if isinstance(n, tir.IfThenElse)]
    by_size = [cond for cond in conditions if any(isinstance(n, tir.Var) and n.name == "size" for n in walk(cond))]
    assert len(by_size) == 1  # whether a tile is whole


@pytest.mark.parametrize("cpu", ["x86-64-v3", "native"])
@pytest.mark.parametrize(
    "product",
    [
        Product("mk,kn->mn", {"m": "size", "n": 70, "k": 33}, epilogue="bias-relu"),
        Product("mk,nk->mn", {"m": "size", "n": 40, "k": 100}, epilogue="relu"),
        Product("km,kn->mn", {"m": "size", "n": 40, "k": 10}, "float64", "float64"),
        Product("bmk,bkn->bmn", {"b": 3, "m": "size", "n": 19, "k": 8}, epilogue="residual"),
        Product("bmk,bnk->bmn", {"b": "size", "m": 5, "n": 18, "k": 9}, epilogue="twice"),
        Product("mk,nk->mn", {"m": "size", "n": "size", "k": 64}),
        Product("mk,kn->mn", {"m": 9, "n": 64, "k": "size"}),
    ],
    ids=str,
)
def test_compiled_products_of_unknown_sizes_match_numpy(product: Product, cpu: str) -> None:
    exe = mlcc.load(mlcc.build(mlcc.parse(product.text()), f"llvm{{cpu={cpu}}}"))
    for size in (0, 1, 2, 3, 5, 7, 13, 31, 32, 33, 1000):
        arrays = product.arrays({"size": size}, 5)
        exe["main"](*arrays)
        assert_right(product, arrays, 5, {"size": size})


@pytest.mark.parametrize("extents", [(0, 3, 3), (3, 0, 3), (3, 3, 0)])
def test_products_without_terms_or_elements_are_right(extents: tuple[int, ...]) -> None:
    product = Product("mk,kn->mn", dict(zip("mnk", extents, strict=True)), epilogue="bias")
    found = made(product)
    arrays = product.arrays({}, 1)
    assert found.func is not None
    run_prim_func(found.func, arrays)
    assert_right(product, arrays, 1)


@pytest.mark.parametrize(
    "product",
    [
        Product("mk,kn->mn", {"m": 100, "n": 100, "k": 100}, epilogue="bias-relu"),
        Product("mk,nk->mn", {"m": 67, "n": 131, "k": 29}, epilogue="residual"),
        Product("km,kn->mn", {"m": 257, "n": 70, "k": 129}, "float64", "float64"),
        Product("bmk,bnk->bmn", {"b": 3, "m": 33, "n": 40, "k": 17}, epilogue="twice"),
        Product("mk,kn->mn", {"m": 64, "n": 10, "k": 128}, epilogue="bias"),
        Product("k,kn->n", {"n": 1000, "k": 300}, epilogue="relu"),
        Product("mk,nk->mn", {"m": 6, "n": 21, "k": 100}, epilogue="relu"),
    ],
    ids=str,
)
def test_compiled_products_match_numpy(product: Product) -> None:
    mod = mlcc.parse(product.text())
    exe = mlcc.load(mlcc.build(scheduled(mod), NATIVE, pipeline=""))
    arrays = product.arrays({}, 5)
    exe["main"](*arrays)
    assert_right(product, arrays, 5)


def test_operands_are_copied_where_it_pays() -> None:
    """Panels where they are used often or cost nothing, rows where they lie across."""
    wide = CpuFacts.of("llvm{triple=x86_64-linux-gnu cpu=x86-64-v4}")
    sizes: dict[str, int | str] = {"m": 512, "n": 512, "k": 512}
    assert "panels of the right operand" in made(Product("mk,kn->mn", sizes), wide).choices[0]
    assert "strips of the left one" in made(Product("km,kn->mn", sizes), wide).choices[0]
    assert "as they are" in made(Product("mk,kn->mn", sizes | {"m": 8}), wide).choices[0]
    assert "as they are" in made(Product("mk,kn->mn", {"m": 64, "n": 64, "k": 64}), wide).choices[0]
    skinny = mlcc.parse(Product("mk,kn->mn", sizes | {"m": 8}).text())["main"]
    assert "panels" in schedule_function(skinny, "main", wide, constants=frozenset({1})).choices[0]


def test_rows_in_many_pages_are_copied_to_panels_whatever_the_cache_holds() -> None:
    """512 cubed with 2 MiB of second cache: panels take 0.86 of the time."""
    facts = CpuFacts.of("llvm{triple=x86_64-linux-gnu cpu=sapphirerapids}")
    assert facts.l2_bytes == 2 << 20
    assert "panels" in made(Product("mk,kn->mn", {"m": 512, "n": 512, "k": 512}), facts).choices[0]
    assert "as they are" in made(Product("mk,kn->mn", {"m": 512, "n": 320, "k": 512}), facts).choices[0]


def test_vectors_that_begin_anywhere_in_a_line_are_loaded_seldom() -> None:
    """Of whole lines each is in two: a tile of more rows and fewer vectors loads them less often."""
    intel, amd, older = (
        CpuFacts.of(f"llvm{{triple=x86_64-linux-gnu cpu={c}}}") for c in ("sapphirerapids", "znver4", "x86-64-v3")
    )

    def best(facts: CpuFacts, m: int, n: int, anywhere: bool) -> tuple[int, int]:
        tile = tiles(facts, m, n, facts.lanes(4), anywhere=anywhere)[0]
        return tile.rows, tile.vectors

    assert [best(intel, 64, 56, anywhere) for anywhere in (False, True)] == [(6, 4), (13, 2)]
    assert [best(amd, 64, 112, anywhere) for anywhere in (False, True)] == [(6, 4)] * 2  # two halves, one of them whole
    assert [best(older, 128, 28, anywhere) for anywhere in (False, True)] == [(3, 4), (6, 2)]


@pytest.mark.parametrize("target", ["", " cpu=x86-64-v3", " cpu=x86-64-v4"])
def test_tiles_fit_the_registers(target: str) -> None:
    facts = CpuFacts.of(f"llvm{{triple=x86_64-linux-gnu{target}}}")
    for m in (1, 3, 16, 100, 512, None):
        for n in (1, 10, 64, 100, 777, None):
            tile = best_tile(facts, m, n, facts.lanes(4))
            assert tile.rows * tile.vectors + min(tile.rows, tile.vectors) < facts.vector_registers
            assert m is None or tile.rows <= m
            assert n is None or tile.columns < n + tile.lanes


def test_halves_of_vectors_where_they_take_half_the_time() -> None:
    """40 of 48 lanes are used in whole vectors."""
    znver4, skylake = (CpuFacts.of(f"llvm{{triple=x86_64-linux-gnu cpu={c}}}") for c in ("znver4", "skylake-avx512"))
    assert znver4.in_halves and "halves" in str(znver4) and not skylake.in_halves
    assert not CpuFacts.of("llvm{triple=x86_64-linux-gnu cpu=znver4 vector-width=256}").in_halves
    assert [best_tile(f, 90, 40, 16).lanes for f in (znver4, skylake)] == [8, 16]
    assert [best_tile(znver4, 90, n, 16).lanes for n in (16, 48, 1024, None)] == [16] * 4
    assert "vectors of 8" in made(Product("mk,nk->mn", {"m": 90, "n": 40, "k": 60}), znver4).choices[0]
    in_rows = [made(Product("mk,kn->mn", {"m": 257, "n": n, "k": 127}), znver4).choices[0] for n in (40, 101, 149)]
    assert all("as they are" in choice for choice in in_rows)
    assert ["vectors of 8" in choice for choice in in_rows] == [
        True,
        True,
        False,
    ]  # lines are crossed for a gain of 1 %


@pytest.mark.parametrize("sizes", [(512, 512, 512), (100, 160, 300), (211, 127, 101), (1009, 200, 11)])
@pytest.mark.parametrize("form", ["mk,kn->mn", "mk,nk->mn"])
def test_tiles_at_the_ends_do_not_keep_loops_from_running_on_threads(form: str, sizes: tuple[int, ...]) -> None:
    wide = CpuFacts.of("llvm{triple=x86_64-linux-gnu cpu=x86-64-v4 num-cores=2}")
    func = made(Product(form, dict(zip("mkn", sizes, strict=True))), wide).func
    assert func is not None
    left = select_parallel_loops(lower_func(func, {}, LowerOptions(vector_bytes=64)), {}, True)
    assert isinstance(left.body[-1], tir.For) and left.body[-1].kind is tir.ForKind.PARALLEL


def test_the_large_tile_keeps_the_multipliers_busy() -> None:
    facts = CpuFacts.of("llvm{triple=x86_64-linux-gnu cpu=x86-64-v4}")
    assert best_tile(facts, 1024, 1024, 16).rows * best_tile(facts, 1024, 1024, 16).vectors >= 20


def test_other_sums_are_not_products() -> None:
    text = Product("mk,kn->mn", {"m": 4, "n": 4, "k": 4}).text()
    for old, new, why in (
        ("= T.float32(0)", "= T.float32(1)", "does not start from 0"),
        (" * B[vk, vn]", " / B[vk, vn]", "does not sum products"),
        ("B[vk, vn]", "B[vk, 3 - vn]", "more than axes"),
        ("B[vk, vn]", "A[vk, vn]", "more than axes"),
    ):
        found = schedule_function(mlcc.parse(text.replace(old, new))["main"], "main", small())
        assert why in dict(found.passed)["matmul"]


def test_a_result_that_is_read_twice_stays_in_registers() -> None:
    """silu(a) = a * sigmoid(a)"""
    params = 'x: R.Tensor((96, 64), "float32"), w: R.Tensor((64, 96), "float32")'
    module = lowered(graph(params, "a = R.matmul(x, w)", "y = R.nn.silu(a)", result="y"))
    made = scheduled(module)
    allocated = [line for line in made.script().splitlines() if "= T.alloc_buffer((T.int64(96), T.int64(96))" in line]
    assert allocated and all('scope="local"' in line for line in allocated)
    x, w = (np.random.default_rng(0).uniform(-1, 1, s).astype(np.float32) for s in ((96, 64), (64, 96)))
    found = mlcc.load(mlcc.build(made, NATIVE, pipeline=""))["main"](x, w)
    product = x.astype(np.float64) @ w
    np.testing.assert_allclose(found, product / (1 + np.exp(-product)), 1e-5, 1e-5)

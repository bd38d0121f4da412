"""Loops cut off at an edge, and masks: what becomes of them, in loop code and in machine code."""

from __future__ import annotations

import re

import numpy as np
import pytest

import mlcc
from mlcc.ir import tir
from mlcc.ir.node import find, walk
from mlcc.machine import host
from mlcc.passes.lowering.options import LowerOptions
from mlcc.targets.llvm.codegen.context import EmitOptions
from mlcc.targets.llvm.object.compile import Machine, compile_text
from tests.fuzz.test_lanes import fenced
from tests.lower import lower_func
from tests.targets.harness import Native, kernel_module

V3, V4 = Machine(cpu="x86-64-v3"), Machine(cpu="x86-64-v4")
NEON, SVE = (Machine("aarch64-unknown-linux-gnu", cpu) for cpu in ("generic", "neoverse-v1"))
HERE = {f.removeprefix("+") for f in host.cpu_features()}


def parse(body: str, symbols: str = "n", dtype: str = "float32") -> tir.PrimFunc:
    """A function of A and B, both of n elements."""
    lines = [f"{symbols} = T.int64()"] if symbols else []
    size = symbols or "37"
    lines += [f'A = T.match_buffer(a, ({size},), "{dtype}")', f'B = T.match_buffer(b, ({size},), "{dtype}")']
    text = "@T.prim_func(s_tir=False)\ndef main(a: T.handle, b: T.handle):\n    T.func_attr({'tir.noalias': True})\n"
    made = mlcc.parse(text + "\n".join("    " + line for line in [*lines, *body.strip("\n").splitlines()]))["main"]
    assert isinstance(made, tir.PrimFunc)
    return made


def llvm_of(func: tir.PrimFunc, machine: Machine) -> tuple[str, str]:
    """The text of a kernel before LLVM, and its assembly."""
    text = kernel_module(func, machine, EmitOptions(num_cores=1)).text()
    return text, compile_text(text, machine, 2, frozenset({"asm"})).asm


TILES = """
for i in range((n + 15) // 16):
    for v in T.vectorized(16):
        if i * 16 + v < n:
            B[i * 16 + v] = A[i * 16 + v] + T.float32(1)
"""


def conditions(func: tir.PrimFunc) -> list[int]:
    """How many lanes the condition of each branch has."""
    return [n.condition.dtype.lanes for n in walk(func) if isinstance(n, tir.IfThenElse)]


def test_the_main_part_has_no_condition() -> None:
    lowered = lower_func(parse(TILES))
    main, rest = (s for s in lowered.body if isinstance(s, tir.For))
    assert not any(isinstance(n, tir.IfThenElse) for n in walk(main))
    assert [n.condition.dtype.lanes for n in walk(rest) if isinstance(n, tir.IfThenElse)] == [16]


def test_known_sizes_leave_straight_code() -> None:
    """37 = 2 * 16 + 5: the last turn is of one value, and stands by itself."""
    lowered = lower_func(parse(TILES.replace("(n", "(37").replace("< n", "< 37"), ""))
    assert [type(s).__name__ for s in lowered.body] == ["For", "IfThenElse"]


def test_nothing_is_copied_beyond_the_limit() -> None:
    lowered = lower_func(parse(TILES), {}, LowerOptions(edge_limit=1))
    assert len([s for s in lowered.body if isinstance(s, tir.For)]) == 1
    assert conditions(lowered) == [16]


def test_conditions_that_always_hold_are_gone() -> None:
    lowered = lower_func(parse("""
for i in range(2):
    for v in T.vectorized(16):
        if i * 16 + v < 37:
            B[i * 16 + v] = A[i * 16 + v]
""", ""))  # fmt: skip
    assert conditions(lowered) == []


def test_padding_is_taken_off_both_ends() -> None:
    lowered = lower_func(parse("""
for i in range((n + 15) // 16):
    for v in T.vectorized(16):
        if i * 16 + v < n:
            B[i * 16 + v] = T.if_then_else(i * 16 + v >= 3, A[i * 16 + v - 3], T.float32(0))
"""))  # fmt: skip
    parts = [s for s in lowered.body if isinstance(s, tir.For)]
    assert len(parts) == 3
    assert [any(isinstance(n, (tir.IfThenElse, tir.Call)) for n in walk(p)) for p in parts] == [True, False, True]


def test_parallel_loops_ask_where_they_are() -> None:
    lowered = lower_func(parse(TILES.replace("range", "T.parallel")))
    (loop,) = (s for s in lowered.body if isinstance(s, tir.For))
    assert loop.kind is tir.ForKind.PARALLEL
    assert conditions(lowered) == [1, 16]


WINDOW = """
for y in T.parallel(H):
    for r in T.serial(3, annotations={"mlcc.partition": ALONE}):
        for x in T.unroll(2):
            B[y * 2 + x] = B[y * 2 + x] + T.if_then_else(0 <= y + r - 1 and y + r - 1 < H, A[(y + r - 1) * 2 + x], -1.0)
"""


def window(height: str, alone: int) -> tir.PrimFunc:
    """Sums over three rows of two columns, with a row of -1 above and below."""
    made = parse(WINDOW.replace("H", height).replace("ALONE", str(alone)), "n" if height == "n" else "")
    size = "n * T.int64(2)" if height == "n" else str(2 * int(height))
    text = mlcc.script(made).replace("(n,)", f"({size},)").replace("(37,)", f"({size},)")
    return mlcc.parse(text)["main"]  # type: ignore[return-value]


@pytest.mark.parametrize("height", ["9", "n"])
def test_a_loop_that_is_divided_alone(height: str) -> None:
    """Three parts, without conditions, where dividing the loop around it would make nine; the edges load nothing."""
    lowered = lower_func(window(height, 1))
    (rows,) = (n for n in walk(lowered) if isinstance(n, tir.For) and n.kind is tir.ForKind.PARALLEL)
    parts = [n for n in rows.body if isinstance(n, tir.For)]
    assert len(parts) == 3
    assert not any(
        isinstance(n, tir.IfThenElse) or n.op == tir.Op("tir.if_then_else")
        for n in find(lowered, tir.IfThenElse, tir.Call)
    )
    loads = [any(n.buffer.name.startswith("A") for n in find(part, tir.BufferLoad)) for part in parts]
    assert loads == [False, True, False]


@pytest.mark.parametrize("alone", [0, 1])
@pytest.mark.parametrize("height", [1, 2, 3, 9])
def test_a_loop_that_is_divided_alone_computes_the_same(height: int, alone: int) -> None:
    data = np.random.default_rng(0).random((height, 2), np.float32)
    padded = np.full((height + 2, 2), -1, np.float32)
    padded[1:-1] = data
    expected = (padded[:-2] + padded[1:-1]) + padded[2:]
    for func, symbols in ((window(str(height), alone), ()), (window("n", alone), (height,))):
        out = fenced(np.zeros(2 * height, np.float32), before=False)
        assert Native(func, machine=V3)(fenced(data.ravel(), before=False), out, symbols=symbols) == 0
        np.testing.assert_array_equal(out.reshape(height, 2), expected)


FUSED = """
for p in T.parallel(9):
    for r in T.unroll(4):
        for v in T.vectorized(16):
            if p % 3 * 4 + r < 11 and p // 3 * 16 + v < n:
                B[(p % 3 * 4 + r) * n + p // 3 * 16 + v] = A[(p % 3 * 4 + r) * n + p // 3 * 16 + v]
"""


def test_fused_parallel_loops_ask_by_quotient_and_remainder() -> None:
    """11 rows in tiles of 4, and 37 columns in tiles of 16: four kinds of tiles, none of what is beyond."""
    func = parse(FUSED.replace("n]", "37]").replace("* n", "* 37").replace("< n", "< 37"), "")
    func = mlcc.parse(mlcc.script(func).replace("(37,)", "(407,)"))["main"]
    assert isinstance(func, tir.PrimFunc)
    lowered = lower_func(func)
    kinds = [n for n in walk(lowered) if isinstance(n, tir.IfThenElse) and n.condition.dtype.lanes == 1]
    assert len(kinds) == 3 and all(n.else_body for n in kinds)
    stores = [n for n in walk(lowered) if isinstance(n, tir.BufferStore)]
    assert len(stores) == 4 + 4 + 3 + 3
    data, out = np.random.default_rng(0).random(407, np.float32), np.zeros(407, np.float32)
    assert Native(func, machine=V3)(data, out) == 0
    np.testing.assert_array_equal(out, data)


def test_loops_fused_over_unknown_sizes() -> None:
    """There is no last tile to write out: the conditions stay for all tiles at the end."""
    lowered = lower_func(parse(FUSED))
    asked = [n for n in walk(lowered) if isinstance(n, tir.IfThenElse) and n.condition.dtype.lanes == 1]
    masks = [n for n in walk(lowered) if isinstance(n, tir.IfThenElse) and n.condition.dtype.lanes == 16]
    assert len(asked) == 3 and len(masks) == 4 + 3


ROWS = """
for i in range((n + 3) // 4):
    for r in T.unroll(4):
        if i * 4 + r < n:
            B[i * 4 + r] = A[i * 4 + r] + T.float32(1)
"""


@pytest.mark.parametrize("kind", ["range", "T.parallel"])
def test_what_is_left_of_an_unrolled_tile_has_no_conditions(kind: str) -> None:
    """One branch for each number of rows in the last tile: 1, 2 or 3, and 4 in the tiles before it."""
    lowered = lower_func(parse(ROWS.replace("range", kind)))
    stores = [n for n in walk(lowered) if isinstance(n, tir.BufferStore)]
    branches = [n.condition for n in walk(lowered) if isinstance(n, tir.IfThenElse)]
    assert len(stores) == 4 + 1 + 2 + 3
    assert len([b for b in branches if isinstance(b, tir.EQ)]) == len(branches) - (kind != "range") == 2


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5, 7, 8, 9, 1000])
@pytest.mark.parametrize("kind", ["range", "T.parallel"])
def test_what_is_left_of_an_unrolled_tile_is_computed(kind: str, size: int) -> None:
    func = parse(ROWS.replace("range", kind))
    data, out = (
        fenced(np.arange(size, dtype=np.float32), before=False),
        fenced(np.zeros(size, np.float32), before=False),
    )
    assert Native(func, machine=V3)(data, out, symbols=(size,)) == 0
    np.testing.assert_array_equal(out, data + 1)


def test_a_tile_that_may_have_no_rows_keeps_its_conditions() -> None:
    """Tiles past the end: whatever is left of them, none of the conditions holds."""
    func = parse(ROWS.replace("(n + 3) // 4", "n + 2").replace("B[i", "B[n - n + i"))
    for size in (0, 1, 5, 8, 11):
        data, out = np.arange(size, dtype=np.float32), np.zeros(size, np.float32)
        assert Native(func, machine=V3)(data, out, symbols=(size,)) == 0
        np.testing.assert_array_equal(out, data + 1)


def test_conditions_with_different_offsets_share_what_is_left() -> None:
    """The second row of each pair is written one place further up, as far as there is one."""
    func = parse("""
for i in range((n + 3) // 4):
    for r in T.unroll(4):
        if i * 4 + r < n:
            B[i * 4 + r] = A[i * 4 + r]
        if i * 4 + r + 2 < n:
            B[i * 4 + r] = B[i * 4 + r] + A[i * 4 + r + 2]
""")
    lowered = lower_func(func)
    assert not [n for n in walk(lowered) if isinstance(n, tir.LT) and n.lhs.dtype.bits > 1]
    for size in (0, 1, 2, 3, 4, 5, 6, 7, 9, 1000):
        data, out = np.arange(size, dtype=np.float32), np.zeros(size, np.float32)
        assert Native(func, machine=V3)(data, out, symbols=(size,)) == 0
        np.testing.assert_array_equal(out, data + np.append(data[2:], [0, 0])[:size])


def test_what_is_left_is_known_where_some_loops_are_not_unrolled() -> None:
    """The second loop keeps its condition, which fails in the same tile: there is no branch for whole tiles."""
    func = parse("""
for i in range((n + 3) // 4):
    for r in T.unroll(4):
        if i * 4 + r < n:
            B[i * 4 + r] = A[i * 4 + r]
    for r in range(4):
        if i * 4 + r < n:
            B[i * 4 + r] = B[i * 4 + r] * T.float32(2)
""")
    lowered = lower_func(func)
    stores = [n for n in walk(lowered) if isinstance(n, tir.BufferStore)]
    assert len(stores) == (4 + 1) + (1 + 1) + (2 + 1) + (3 + 1)
    for size in (0, 1, 2, 3, 4, 5, 6, 7, 9, 1000):
        data, out = np.arange(size, dtype=np.float32), np.zeros(size, np.float32)
        assert Native(func, machine=V3)(data, out, symbols=(size,)) == 0
        np.testing.assert_array_equal(out, data * 2)


def test_rows_are_not_written_out_beyond_the_limit() -> None:
    lowered = lower_func(parse(ROWS), {}, LowerOptions(edge_limit=8))
    stores = [n for n in walk(lowered) if isinstance(n, tir.BufferStore)]
    assert len(stores) <= 8


def test_a_tile_that_is_the_last_one_still_tells_iterations_apart() -> None:
    """What is known of it goes into conditions, not into indices: the loop stays parallel."""
    lowered = lower_func(parse(re.sub(r"\bn\b", "37", TILES.replace("range", "T.parallel")), ""))
    (loop,) = (s for s in lowered.body if isinstance(s, tir.For))
    stores = [n for n in walk(loop) if isinstance(n, tir.BufferStore)]
    assert len(stores) == 2 and all(loop.var in walk(s.indices) for s in stores)


def test_without_masks_lanes_go_one_by_one() -> None:
    lowered = lower_func(parse(TILES), {}, LowerOptions(mask_bits=frozenset()))
    stores = [n.value.dtype.lanes for n in walk(lowered) if isinstance(n, tir.BufferStore)]
    assert stores == [16, 16, 1]


@pytest.mark.parametrize("machine, sign", [(V4, "{%k"), (V3, "vmaskmov")], ids=["avx512", "avx2"])
def test_machine_code_moves_whole_vectors(machine: Machine, sign: str) -> None:
    """No element is moved by itself, and the main part has whole vectors."""
    text, asm = llvm_of(parse(TILES), machine)
    assert "@llvm.masked.load.v16f32" in text and "@llvm.masked.store.v16f32" in text
    assert sign in asm
    assert not any(word in asm for word in ("vaddss", "vmovss", "vpextr", "vextractps"))


def test_machines_without_masks_get_none() -> None:
    text, asm = llvm_of(parse(TILES), NEON)
    assert "masked" not in text
    assert re.search(r"fadd\tv\d+\.4s", asm)


def test_predicates_of_sve_mask_vectors_of_neon() -> None:
    """Whatever the length of SVE's vectors is: no lane goes by itself, and none beyond the end is touched."""
    for dtype, letter in (("float32", "w"), ("float16", "h"), ("int8", "b"), ("float64", "d")):
        text, asm = llvm_of(parse(TILES.replace(" + T.float32(1)", ""), dtype=dtype), SVE)
        assert "masked" in text
        assert re.search(rf"ld1{letter}\t.*p\d/z", asm) and re.search(rf"st1{letter}\t.*p\d", asm)
        assert not re.search(r"\ttbn?z", asm) and "whilel" not in asm


def test_small_elements_need_their_own_instructions() -> None:
    tiles = TILES.replace(" + T.float32(1)", "")
    assert "masked" in llvm_of(parse(tiles, dtype="int8"), V4)[0]
    assert "masked" not in llvm_of(parse(tiles, dtype="int8"), V3)[0]


def test_a_guarded_tile_stays_in_registers() -> None:
    """A sum by columns, the last tile under a mask: its accumulator is no memory."""
    func = parse("""
for j in range((n + 15) // 16):
    X = T.alloc_buffer_stmt((16,), "float32", scope="local")
    for v in T.vectorized(16):
        if j * 16 + v < n:
            X[v] = T.float32(0)
    for k in range(100):
        for v in T.vectorized(16):
            if j * 16 + v < n:
                X[v] = X[v] + A[j * 16 + v] * T.Cast("float32", k)
    for v in T.vectorized(16):
        if j * 16 + v < n:
            B[j * 16 + v] = X[v]
""")  # fmt: skip
    _, asm = llvm_of(func, V4)
    assert "vfmadd" in asm
    assert not [line for line in asm.splitlines() if "zmm" in line and "(%rsp" in line]


def test_matmul_tiles_are_registers_without_spills() -> None:
    """The loop over k of a 6x64 tile, which does not divide the rows: products, loads and broadcasts of operands."""
    n = 128
    module = mlcc.parse(f"""
@T.prim_func
def main(A: T.Buffer(({n}, {n}), "float32"), B: T.Buffer(({n}, {n}), "float32"), C: T.Buffer(({n}, {n}), "float32")):
    T.func_attr({{"tir.noalias": True}})
    for i, j, k in T.grid({n}, {n}, {n}):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
""")
    sch = mlcc.Schedule(module)
    block = sch.get_block("C")
    local = sch.cache_write(block, 0, "local")
    i, j, k = sch.get_loops(block)
    i0, i1 = sch.split(i, [None, 6])
    j0, j1 = sch.split(j, [None, 64])
    sch.reorder(j0, i0, k, i1, j1)
    sch.reverse_compute_at(local, i0)
    for part in (block, local):
        rows, columns = sch.get_loops(part)[-2:]
        tiles, lanes = sch.split(columns, [None, 16])
        sch.unroll(rows)
        sch.unroll(tiles)
        sch.vectorize(lanes)
    sch.decompose_reduction(block, k)
    func = sch.mod["main"]
    assert isinstance(func, tir.PrimFunc)
    _, asm = llvm_of(func, V4)
    lines = [line.strip() for line in asm.splitlines()]
    assert not [line for line in lines if "zmm" in line and "(%rsp" in line]
    first = next(n for n, line in enumerate(lines) if line.startswith("vfmadd"))
    start = max(n for n in range(first) if lines[n].endswith(":"))
    end = next(n for n in range(first, len(lines)) if lines[n].startswith("j"))
    body = [line.split()[0] for line in lines[start + 1 : end] if line and not line.startswith((".", "#"))]
    assert sum(word.startswith("vfmadd") for word in body) == 24
    assert not [line for line in lines[start:end] if line.startswith("vmov") and line.endswith(")")]  # no stores
    assert len(body) <= 24 + 4 + 6 + 4  # loads, broadcasts, and the counting


@pytest.mark.parametrize("dtype", ["float32", "int8", "float64"])
@pytest.mark.parametrize("stride", [2, 3, 4, 5])
@pytest.mark.parametrize("lanes", [3, 4, 7, 16])
def test_strided_loads_stay_inside(dtype: str, stride: int, lanes: int) -> None:
    """Loads of spread elements reach from the first to the last of them and no further."""
    size = (lanes - 1) * stride + 1
    func = parse(f"for v in T.vectorized({lanes}):\n    B[v] = A[v * {stride}]", "", dtype)
    text = mlcc.script(func).replace("(37,)", f"({size},)", 1)
    func = mlcc.parse(text)["main"]
    assert isinstance(func, tir.PrimFunc)
    data, out = fenced(np.arange(size).astype(dtype), before=False), np.zeros(37, dtype)
    assert Native(func, machine=Machine(cpu="x86-64-v3"))(data, out) == 0
    np.testing.assert_array_equal(out[:lanes], data[::stride])


@pytest.mark.parametrize("machine", [V3, V4], ids=["avx2", "avx512"])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize("stride", [2, 3, 4])
@pytest.mark.parametrize("size", [1, 7, 16, 37])
def test_every_few_elements_under_a_mask(machine: Machine, dtype: str, stride: int, size: int) -> None:
    """What is beyond the end, or before the first one, is not touched."""
    func = parse(f"""
for v in T.vectorized(16):
    B[v] = T.if_then_else(2 <= v and v * {stride} < {size}, A[v * {stride}], T.{dtype}(-1))
""", "", dtype)  # fmt: skip
    func = mlcc.parse(mlcc.script(func).replace("(37,)", f"({size},)", 1))["main"]
    assert isinstance(func, tir.PrimFunc)
    if machine is V4:
        assert "gather" not in llvm_of(func, machine)[0]
        return
    data, out = fenced(np.arange(size).astype(dtype), before=False), np.zeros(37, dtype)
    assert Native(func, machine=machine)(data, out) == 0
    places = np.arange(16) * stride
    np.testing.assert_array_equal(out[:16], np.where((places < size) & (np.arange(16) > 1), places, -1))


def test_spread_elements_are_loaded_in_runs() -> None:
    _, asm = llvm_of(parse("for v in T.vectorized(16):\n    B[v] = A[v * 2]", ""), V4)
    assert "vinsertps" not in asm and ("vpermt2ps" in asm or "vpermi2ps" in asm)


def test_vectors_under_conditions_print_and_read() -> None:
    lowered = lower_func(parse(TILES))
    text = mlcc.script(lowered)
    again = mlcc.parse(text)["main"]
    assert mlcc.structural_equal(again, lowered)
    out = np.zeros(21, "float32")
    from mlcc.interp import run_prim_func

    run_prim_func(again, [np.arange(21, dtype="float32"), out])
    np.testing.assert_array_equal(out, np.arange(21) + 1)


@pytest.mark.parametrize(
    ("value", "dtype", "lanes"),
    [("int32", "int16", 16), ("int32", "int8", 16), ("int64", "int32", 8), ("float32", "bfloat16", 16)],
)
def test_one_lane_beyond_whole_vectors_stores_no_more(value: str, dtype: str, lanes: int) -> None:
    """LLVM stores what truncation takes off, too, where the mask is a constant of one lane."""
    func = mlcc.parse(f"""
@T.prim_func
def main(A: T.Buffer(({lanes + 1},), "{value}"), B: T.Buffer(({lanes + 9},), "{dtype}")):
    T.func_attr({{"tir.noalias": True}})
    for j in T.unroll(2):
        for v in T.vectorized({lanes}):
            if j * {lanes} + v < {lanes + 1}:
                B[j * {lanes} + v] = T.Cast("{dtype}", A[j * {lanes} + v])
""")["main"]
    assert isinstance(func, tir.PrimFunc)
    given = np.arange(1, lanes + 2).astype(value)
    out = np.full(lanes + 9, 77, "uint16" if dtype == "bfloat16" else dtype)
    for machine in (V3, V4) if V4.enabled <= HERE else ():
        made = out.copy()
        assert Native(func, machine=machine)(given, made) == 0
        assert (made[lanes + 1 :] == 77).all() and (made[: lanes + 1] != 77).all()

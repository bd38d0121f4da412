"""`pack-weights`: nests on weights alone are evaluated at compile time, all else stays where it is."""

from __future__ import annotations

import numpy as np
import pytest

import mlcc
from mlcc.interp import run_function
from mlcc.ir import IRModule, relax, tir
from mlcc.ir.equal import structural_equal
from mlcc.ir.node import find
from mlcc.ir.visit import substitute
from mlcc.passes.layout import pack_weights
from mlcc.passes.layout.element_order import in_element_order
from mlcc.relax.queries import all_bindings

PACKING = """
        for p, k, j in T.grid(3, 5, 4):
            with T.block("pack"):
                vp, vk, vj = T.axis.remap("SSS", [p, k, j])
                W_packed[vp, vk, vj] = T.if_then_else(vp * 4 + vj < 10, W[vk, vp * 4 + vj], T.float32(0))
"""
PRODUCT = """
        for i, j, k in T.grid({rows}, 10, 5):
            with T.block("product"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] += A[vi, vk] * W_packed[vj // 4, vk, vj % 4]
"""
DENSE = f"""
    @T.prim_func(private=True)
    def dense(A: T.Buffer((2, 5), "float32"), W: T.Buffer((5, 10), "float32"), C: T.Buffer((2, 10), "float32")):
        W_packed = T.alloc_buffer((3, 5, 4), "float32", scope="local")
{PACKING}{PRODUCT.format(rows=2)}
"""
WEIGHTS = np.arange(50, dtype="float32").reshape(5, 10) / 7


def constant(array: np.ndarray) -> str:
    return f'R.const({array.tolist()}, "{array.dtype}")'


def module(kernel: str, arguments: str, x: str = '(2, 5), "float32"', out: str = '(2, 10), "float32"') -> IRModule:
    return mlcc.parse(
        f"""
@I.ir_module
class Module:
{kernel}
    @R.function
    def main(x: R.Tensor({x}), w: R.Tensor((5, 10), "float32")):
        with R.dataflow():
            gv = R.call_tir(Module.dense, {arguments}, out_sinfo=R.Tensor({out}))
            R.output(gv)
        return gv
"""
    )


def kernel_call(made: IRModule) -> tuple[tir.PrimFunc, list[relax.Expr]]:
    """The kernel that main calls, and the arguments."""
    (binding,) = (b for b, _ in all_bindings(made["main"].body))
    callee, arguments = binding.value.args[:2]
    return made[callee.name], list(arguments.fields)


def same_numbers(before: IRModule, after: IRModule, shape: tuple[int, ...] = (2, 5)) -> None:
    rng = np.random.default_rng(0)
    given = [rng.random(shape, "float32"), WEIGHTS]
    np.testing.assert_array_equal(run_function(after, "main", given), run_function(before, "main", given))
    np.testing.assert_allclose(mlcc.load(mlcc.build(after))["main"](*given), run_function(before, "main", given), 1e-6)


def test_a_packed_weight_is_a_constant() -> None:
    before = module(DENSE, f"(x, {constant(WEIGHTS)})")
    after = mlcc.run_passes(before, "pack-weights")
    func, (x, packed) = kernel_call(after)
    assert isinstance(x, relax.Var)
    assert isinstance(packed, relax.Constant)
    padded = np.pad(WEIGHTS, ((0, 0), (0, 2))).reshape(5, 3, 4).transpose(1, 0, 2)
    np.testing.assert_array_equal(packed.data.array, padded)
    assert [b.name for b in func.buffers] == ["A", "W_packed", "C"]
    assert func.root is not None
    assert not func.root.alloc_buffers
    assert len(func.root.body) == 1
    mlcc.assert_structural_equal(after, mlcc.parse(mlcc.script(after)))
    same_numbers(before, after)


@pytest.mark.parametrize("arguments", ["(x, w)", "(R.const(1.0), w)"])
def test_what_is_not_known_stays(arguments: str) -> None:
    kernel = (
        DENSE
        if arguments == "(x, w)"
        else DENSE.replace('A: T.Buffer((2, 5), "float32")', "A: T.Buffer((), 'float32')")
    )
    before = module(kernel.replace("A[vi, vk]", "A[()]") if kernel is not DENSE else kernel, arguments)
    mlcc.assert_structural_equal(mlcc.run_passes(before, "pack-weights"), before)


def test_a_weight_that_is_read_later_too_stays_an_argument() -> None:
    kernel = DENSE.replace(
        "A[vi, vk] * W_packed[vj // 4, vk, vj % 4]", "A[vi, vk] * (W_packed[vj // 4, vk, vj % 4] + W[vk, vj])"
    )
    before = module(kernel, f"(x, {constant(WEIGHTS)})")
    after = mlcc.run_passes(before, "pack-weights")
    assert [b.name for b in kernel_call(after)[0].buffers] == ["A", "W", "W_packed", "C"]
    same_numbers(before, after)


def test_a_chain_of_nests_leaves_its_last_result() -> None:
    chain = """
        for k, j in T.grid(5, 10):
            with T.block("twice"):
                vk, vj = T.axis.remap("SS", [k, j])
                W2[vk, vj] = W[vk, vj] * T.float32(2)
"""
    kernel = DENSE.replace(PACKING, chain + PACKING.replace("W[", "W2[")).replace(
        "        W_packed =", '        W2 = T.alloc_buffer((5, 10), "float32")\n        W_packed ='
    )
    before = module(kernel, f"(x, {constant(WEIGHTS)})")
    after = mlcc.run_passes(before, "pack-weights")
    assert [b.name for b in kernel_call(after)[0].buffers] == ["A", "W_packed", "C"]
    same_numbers(before, after)


def test_a_buffer_that_another_nest_writes_too_stays() -> None:
    again = """
        for k in range(5):
            with T.block("patch"):
                vk = T.axis.spatial(5, k)
                W_packed[0, vk, 0] = A[0, vk]
"""
    before = module(DENSE.replace(PACKING, PACKING + again), f"(x, {constant(WEIGHTS)})")
    mlcc.assert_structural_equal(mlcc.run_passes(before, "pack-weights"), before)


def test_what_grows_too_much_stays() -> None:
    kernel = DENSE.replace("(3, 5, 4)", "(3, 5, 4096)").replace("T.grid(3, 5, 4)", "T.grid(3, 5, 4096)")
    kernel = kernel.replace("vp * 4 + vj < 10", "vj < 4 and vp * 4 + vj < 10")
    before = module(kernel, f"(x, {constant(WEIGHTS)})")
    mlcc.assert_structural_equal(mlcc.run_passes(before, "pack-weights"), before)
    assert len(kernel_call(mlcc.run_passes(before, "pack-weights{growth=5000}"))[1]) == 2


def test_kernels_with_symbolic_rows_are_packed() -> None:
    kernel = f"""
    @T.prim_func(private=True)
    def dense(a: T.handle, W: T.Buffer((5, 10), "float32"), c: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 5), "float32")
        C = T.match_buffer(c, (n, 10), "float32")
        W_packed = T.alloc_buffer((3, 5, 4), "float32")
{PACKING}{PRODUCT.format(rows="n")}
"""
    before = module(kernel, f"(x, {constant(WEIGHTS)})", '("n", 5), "float32"', '("n", 10), "float32"')
    after = mlcc.run_passes(before, "pack-weights")
    assert len(kernel_call(after)[0].root.body) == 1
    for rows in (0, 1, 7):
        same_numbers(before, after, (rows, 5))


def test_calls_with_one_kernel_share_what_is_left_of_it() -> None:
    before = mlcc.parse(
        f"""
@I.ir_module
class Module:
{DENSE}
    @R.function
    def main(x: R.Tensor((2, 5), "float32"), w: R.Tensor((5, 10), "float32")):
        with R.dataflow():
            a = R.call_tir(Module.dense, (x, {constant(WEIGHTS)}), out_sinfo=R.Tensor((2, 10), "float32"))
            b = R.call_tir(Module.dense, (x, {constant(WEIGHTS + 1)}), out_sinfo=R.Tensor((2, 10), "float32"))
            c = R.call_tir(Module.dense, (x, w), out_sinfo=R.Tensor((2, 10), "float32"))
            gv = R.add(R.add(a, b), c)
            R.output(gv)
        return gv
"""
    )
    after = mlcc.run_passes(before, "pack-weights")
    kernels = [name for name, func in after.functions.items() if isinstance(func, tir.PrimFunc)]
    assert len(kernels) == 2
    same_numbers(before, after)


def test_versions_that_pack_alike_are_packed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their loops are split by the width of vectors; what they make is the same."""
    evaluated = []
    run = pack_weights._evaluate
    monkeypatch.setattr(pack_weights, "_evaluate", lambda split, known: evaluated.append(split) or run(split, known))
    weights = np.arange(64 * 64, dtype="float32").reshape(64, 64)
    before = mlcc.parse(
        f"""
@R.function
def main(x: R.Tensor((16, 64), "float32")):
    with R.dataflow():
        d = R.matmul(x, {constant(weights)})
        R.output(d)
    return d
"""
    )
    made = mlcc.build(before, "llvm")
    assert len(made.manifest["target"]["versions"]) > 1
    assert len(evaluated) == 1
    x = np.random.default_rng(0).random((16, 64), "float32")
    np.testing.assert_allclose(mlcc.load(made)["main"](x), x @ weights, 1e-5)


def nest(loops: str, *axes: str, value: str = "A[a, b]") -> tir.Stmt:
    """A nest that stores into panels of 4 columns."""
    module = mlcc.parse(
        f"""
@T.prim_func
def f(A: T.Buffer((6, 8), "float32"), B: T.Buffer((2, 6, 4), "float32")):
    for {loops}:
        with T.block("pack"):
            a = T.axis.spatial(6, {axes[0]})
            b = T.axis.spatial(8, {axes[1]})
            B[b // 4, a, b % 4] = {value}
"""
    )
    root = module["f"].root
    assert root is not None
    return root.body[0]


ORDERED = nest("i, j in T.grid(6, 8)", "i", "j")


@pytest.mark.parametrize(
    ("loops", "axes"),
    [
        ("j, i in T.grid(8, 6)", ("i", "j")),
        ("i in T.serial(48)", ("i // 8", "i % 8")),
        ("k, i, j in T.grid(4, 6, 2)", ("i", "k * 2 + j")),
        ("i, j in T.grid(6, 8)", ("5 - i", "j")),
    ],
)
def test_nests_that_store_the_same_are_one_in_element_order(loops: str, axes: tuple[str, str]) -> None:
    given = nest(loops, *axes)
    made, wanted = in_element_order(given), in_element_order(ORDERED)
    assert made is not given
    (store,) = find(made, tir.BufferStore)
    assert all(isinstance(index, tir.Var) for index in store.indices)
    assert [n.extent.value for n in find(made, tir.For)] == [2, 6, 4]
    buffers = dict(zip(arrays_of(made), arrays_of(wanted), strict=True))
    assert structural_equal(substitute(made, buffers), wanted)


def arrays_of(stmt: tir.Stmt) -> list[tir.Node]:
    """The buffers of a nest and their data, what is read first."""
    (store,) = find(stmt, tir.BufferStore)
    (load,) = find(store.value, tir.BufferLoad)
    return [b for buffer in (load.buffer, store.buffer) for b in (buffer, buffer.data)]


@pytest.mark.parametrize(
    ("loops", "axes", "value"),
    [
        ("i, j in T.grid(6, 7)", ("i", "j"), "A[a, b]"),  # not all
        ("i, j in T.grid(8, 8)", ("T.min(i, 5)", "j"), "A[a, b]"),  # some twice
        ("i, j in T.grid(6, 8)", ("i", "j"), "B[0, a, 0] + A[a, b]"),  # in an order
    ],
)
def test_other_nests_stay_as_they_are(loops: str, axes: tuple[str, str], value: str) -> None:
    given = nest(loops, *axes, value=value)
    assert in_element_order(given) is given

"""`fold-transposes`: products read what was transposed for them as it lies."""

from __future__ import annotations

import numpy as np
import pytest

import mlcc
from mlcc.interp import run_function
from mlcc.ir import IRModule
from mlcc.relax.queries import all_bindings, tir_callee
from tests.auto_schedule.kernels import NATIVE

PIPELINE = "normalize,lower-to-tir,fold-transposes,dead-code"


def graph(params: dict[str, str], *lines: str, result: str = "y") -> IRModule:
    given = ", ".join(f'{n}: R.Tensor(({shape},), "float32")' for n, shape in params.items())
    sizes = sorted({s for shape in params.values() for s in shape.split(", ") if not s.isdigit()})
    body = [f"        {s.strip(chr(34))} = T.int64()" for s in sizes] + ["        with R.dataflow():"]
    body += [f"            {line}" for line in (*lines, f"R.output({result})")]
    head = f"@I.ir_module\nclass Module:\n    @R.function\n    def main({given}):"
    return mlcc.parse("\n".join([head, *body, f"        return {result}"]) + "\n")


def called(module: IRModule) -> list[str]:
    return [tir_callee(b.value) or "" for b, _ in all_bindings(module["main"].body)]  # type: ignore[attr-defined]


CASES = [
    ({"a": "5, 7", "b": "3, 7"}, ["t = R.permute_dims(b)", "y = R.matmul(a, t)"], 1),
    ({"a": "7, 5", "b": "7, 3"}, ["t = R.permute_dims(a)", "y = R.matmul(t, b)"], 1),
    ({"a": "7, 5", "b": "3, 7"}, ["t = R.permute_dims(a)", "s = R.permute_dims(b)", "y = R.matmul(t, s)"], 1),
    ({"a": "5, 7"}, ["t = R.permute_dims(a)", "y = R.matmul(a, t)"], 1),
    ({"a": "2, 5, 7", "b": "2, 3, 7"}, ["t = R.permute_dims(b, axes=[0, 2, 1])", "y = R.matmul(a, t)"], 1),
    ({"a": "2, 5, 7", "b": "7, 3, 2"}, ["t = R.permute_dims(b, axes=[2, 0, 1])", "y = R.matmul(a, t)"], 1),
    ({"a": '"n", 7', "b": '"m", 7'}, ["t = R.permute_dims(b)", "y = R.matmul(a, t)"], 1),
    ({"a": "5, 7", "b": "3, 7"}, ["t = R.permute_dims(b)", "s = R.exp(t)", "y = R.matmul(a, s)"], 3),
    ({"a": "5, 7", "b": "3, 7"}, ["t = R.permute_dims(b)", "p = R.matmul(a, t)", "s = R.sum(t)", "y = R.add(p, s)"], 4),
]


@pytest.mark.parametrize(("params", "lines", "calls"), CASES)
def test_the_numbers_stay(params: dict[str, str], lines: list[str], calls: int) -> None:
    before = graph(params, *lines)
    after = mlcc.run_passes(before, PIPELINE)
    assert len(called(after)) == calls
    sizes = {'"n"': "5", '"m"': "3"}
    rng = np.random.default_rng(0)
    shapes = [[int(sizes.get(s, s)) for s in shape.split(", ")] for shape in params.values()]
    given = [rng.standard_normal(shape, "float32") for shape in shapes]
    expected = run_function(before, "main", given)
    np.testing.assert_allclose(run_function(after, "main", given), expected, 1e-5, 1e-5)
    found = mlcc.load(mlcc.build(before, NATIVE, 3))["main"](*given)
    np.testing.assert_allclose(found, expected, 1e-4, 1e-4)


@pytest.mark.parametrize("sizes", [(8, 4, 5), ("m", 4, "n")])
def test_a_transposed_copy_of_a_part_stays(sizes: tuple[int | str, int, int | str]) -> None:
    rows, inner, columns = (f'"{s}"' if isinstance(s, str) else str(s) for s in sizes)
    bounds = ("m", "n") if isinstance(sizes[0], str) else ("8", "5")
    text = f"""
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def part(x: T.handle, y: T.handle):
        m, n = T.int64(), T.int64()
        X = T.match_buffer(x, ({bounds[0]}, {inner}), "float32")
        Y = T.match_buffer(y, ({inner}, {bounds[1]}), "float32")
        for i, j in T.grid({inner}, {bounds[1]}):
            with T.block("copy"):
                vi, vj = T.axis.remap("SS", [i, j])
                Y[vi, vj] = X[vj, vi]
    @R.function
    def main(a: R.Tensor((3, {inner}), "float32"), x: R.Tensor(({rows}, {inner}), "float32"), like: R.Tensor(({columns},), "float32")):
        m, n = T.int64(), T.int64()
        cls = Module
        with R.dataflow():
            t = R.call_tir(cls.part, (x,), out_sinfo=R.Tensor(({inner}, {bounds[1]}), "float32"))
            p = R.matmul(a, t)
            y = R.add(p, like)
            R.output(y)
        return y
"""  # noqa: E501
    module = mlcc.parse(text)
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(shape, "float32") for shape in ((3, 4), (8, 4), (5,))]
    found = mlcc.load(mlcc.build(module, NATIVE))["main"](*given)
    np.testing.assert_allclose(found, given[0] @ given[1][:5].T + given[2], 1e-5, 1e-5)


def test_what_it_reads() -> None:
    params, lines, _ = CASES[0]
    after = mlcc.run_passes(graph(params, *lines), PIPELINE)
    assert called(after) == ["matmul_T"] and "[v_i1, v_k]" in after.script()


def test_a_transpose_that_somebody_has_scheduled_stays() -> None:
    params, lines, _ = CASES[0]
    lowered = mlcc.run_passes(graph(params, *lines), "normalize,lower-to-tir")
    scheduled = mlcc.apply_schedule(
        lowered, 'l = sch.get_loops(sch.get_block("T_transpose", func_name="transpose"))\nsch.parallel(l[0])\n'
    )
    mlcc.assert_structural_equal(mlcc.run_passes(scheduled, "fold-transposes"), scheduled)


def test_convolutions_keep_their_layout() -> None:
    lines = ["t = R.permute_dims(x, axes=[0, 3, 1, 2])", "y = R.nn.conv2d(t, w)"]
    lowered = mlcc.run_passes(graph({"x": "1, 5, 5, 3", "w": "4, 3, 3, 3"}, *lines), "normalize,lower-to-tir")
    mlcc.assert_structural_equal(mlcc.run_passes(lowered, "fold-transposes"), lowered)


CACHED = """
@R.function
def main(q: R.Tensor((1, "m", 2, 16), "float32"), past: R.Tensor((1, 2, "p", 16), "float32"),
         new: R.Tensor((1, 2, "m", 16), "float32")):
    m = T.int64()
    p = T.int64()
    with R.dataflow():
        cache = R.concat((past, new), axis=2)
        k = R.permute_dims(cache, axes=[0, 2, 1, 3])
        y = R.nn.attention(q, k, k, causal_mask="BottomRight")
        R.output(y)
    return y
"""


def test_attention_reads_a_cache_in_place() -> None:
    """Both products read the concatenation itself, whatever the number of queries and of keys."""
    before = mlcc.parse(CACHED)
    scheduled = mlcc.run_passes(before, "O2", target=NATIVE)
    assert not [name for name in called(scheduled) if "permute" in name or "transpose1" in name]
    products = [f for name, f in scheduled.functions.items() if name.endswith(("NT_T", "NN_T"))]
    assert len(products) == 2
    main = mlcc.load(mlcc.build(before, NATIVE))["main"]
    rng = np.random.default_rng(0)
    for new, past in ((1, 0), (1, 33), (7, 0), (5, 100), (33, 1)):
        shapes = (1, new, 2, 16), (1, 2, past, 16), (1, 2, new, 16)
        given = [rng.standard_normal(shape, "float32") for shape in shapes]
        np.testing.assert_allclose(main(*given), run_function(before, "main", given), 1e-4, 1e-5)

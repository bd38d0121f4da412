"""Attention as one kernel: numbers against NumPy in float64, emulated with all checks; what is recognised, and what the
assembler makes of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc import backends
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import INT64
from mlcc.passes.attention.operands import reshape_indices
from mlcc.targets.cuda.ptxas import find_ptxas

GPU = "cuda{arch=sm_90}"


@dataclass(frozen=True)
class Case:
    """Sizes as in (batch, queries, heads, width), (batch, keys, groups, columns); all but widths are symbolic if
    `symbolic`."""

    queries: int
    keys: int
    width: int
    columns: int = 0
    batch: int = 1
    heads: int = 1
    groups: int = 1
    dtype: str = "float32"
    mask: str | None = None
    window: int | None = None
    scale: float | None = None
    bias: tuple[int, ...] = ()
    symbolic: bool = False
    arch: str = "sm_90"

    @property
    def out(self) -> int:
        return self.columns or self.width

    def text(self) -> str:
        n, m = ('"n"', '"m"') if self.symbolic else (self.queries, self.keys)
        params = [
            f'q: R.Tensor(({self.batch}, {n}, {self.heads}, {self.width}), "{self.dtype}")',
            f'k: R.Tensor(({self.batch}, {m}, {self.groups}, {self.width}), "{self.dtype}")',
            f'v: R.Tensor(({self.batch}, {m}, {self.groups}, {self.out}), "{self.dtype}")',
        ]
        args = ["q", "k", "v"]
        if self.bias:
            places = zip(self.bias, (self.batch, self.heads, n, m), strict=True)
            shape = ", ".join(str(own if own == 1 else whole) for own, whole in places)
            params.append(f'bias: R.Tensor(({shape}), "{self.dtype}")')
            args.append("bias")
        given = {"causal_mask": self.mask and f'"{self.mask}"', "window_size": self.window, "scale": self.scale}
        args += [f"{name}={value}" for name, value in given.items() if value is not None]
        return graph(params, f"y = R.nn.attention({', '.join(args)})", result="y")

    def arguments(self) -> list[np.ndarray]:
        shapes = [
            (self.batch, self.queries, self.heads, self.width), (self.batch, self.keys, self.groups, self.width),
            (self.batch, self.keys, self.groups, self.out), *([self.bias] if self.bias else []),
        ]  # fmt: skip
        rng = np.random.default_rng(1)
        return [stored(rng.standard_normal(s), self.dtype) for s in shapes]

    def expected(self, q: Any, k: Any, v: Any, bias: Any = 0.0) -> np.ndarray:
        """In float64."""
        distance = np.arange(self.keys) - np.arange(self.queries)[:, None]
        seen = np.ones_like(distance, bool)
        if self.mask is not None:
            ahead = abs(self.queries - self.keys) if self.mask == "BottomRight" else 0
            seen = (distance <= ahead) & (self.window is None or distance > ahead - (self.window or 0))
        return attention(q, k, v, self.scale or self.width**-0.5, bias, seen)


def attention(q: Any, k: Any, v: Any, scale: float, bias: Any, seen: Any) -> np.ndarray:
    """Of (batch, length, heads, width), in float64; a query that sees nothing gives zeros."""
    share = q.shape[2] // k.shape[2]
    q, k, v = (np.swapaxes(np.asarray(a, np.float64), 1, 2) for a in (q, k, v))
    k, v = np.repeat(k, share, 1), np.repeat(v, share, 1)
    scores = np.where(seen, q @ np.swapaxes(k, 2, 3) * scale + np.asarray(bias, np.float64), -np.inf)
    power = np.where(seen, np.exp(scores - np.max(scores, -1, keepdims=True, initial=-1e300)), 0)
    total = power.sum(-1, keepdims=True)
    empty = ~np.any(seen, -1, keepdims=True)
    return np.swapaxes(power / np.where(empty, 1, total) @ v, 1, 2)


def graph(params: list[str], *lines: str, result: str) -> str:
    body = "\n".join(f"        {line}" for line in lines)
    head = (
        f"@R.function\ndef main({', '.join(params)}):\n    n = T.int64()\n    m = T.int64()\n    with R.dataflow():\n"
    )
    return f"{head}{body}\n        R.output({result})\n    return {result}\n"


def stored(values: np.ndarray, dtype: str) -> np.ndarray:
    if dtype != "bfloat16":
        return values.astype(dtype)
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def value(array: np.ndarray, dtype: str) -> np.ndarray:
    return array if dtype != "bfloat16" else (array.astype(np.uint32) << 16).view(np.float32)


def kernels(mod: mlcc.IRModule) -> list[str]:
    """The functions that the pass made."""
    return [n for n, f in mod.functions.items() if isinstance(f, tir.PrimFunc) and "mlcc.made_by" in f.attrs]


def built(text: str, target: str = GPU) -> Any:
    return mlcc.build(mlcc.parse(text), target, opt_level=2)


def without_spills(art: Any) -> None:
    if find_ptxas() is not None:
        found = art.assembled()
        assert found and all((f.stack, f.spill_stores, f.spill_loads) == (0, 0, 0) for f in found.values()), found


TOLERANCE = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}
CASES = {
    "plain": Case(37, 50, 16, 24, batch=2, heads=2, groups=2),
    "grouped and causal": Case(70, 33, 7, 5, heads=4, groups=2, mask="TopLeft", scale=0.5),
    "rows without keys": Case(40, 9, 8, mask="TopLeft", window=3),
    "behind a cache": Case(20, 90, 40, mask="BottomRight", window=40, arch="sm_75"),
    "bias by head": Case(9, 70, 8, heads=2, groups=2, bias=(1, 2, 1, 70)),
    "float16": Case(17, 40, 12, dtype="float16", bias=(1, 1, 17, 40), arch="sm_75"),
    "a query": Case(1, 300, 16, 8, batch=2, heads=2, groups=1),
    "tensor cores": Case(20, 70, 16, 24, batch=2, heads=2, dtype="float16", mask="BottomRight", symbolic=True),
    "odd widths on tensor cores": Case(20, 40, 7, 5, dtype="bfloat16", bias=(1, 1, 20, 40)),
    "window on tensor cores": Case(70, 30, 32, dtype="bfloat16", mask="TopLeft", window=9, arch="sm_80"),
    "long rows on tensor cores": Case(17, 33, 136, 16, dtype="float16"),
    "a few queries on tensor cores": Case(3, 200, 24, heads=4, groups=2, dtype="float16", mask="BottomRight"),
}


@pytest.mark.parametrize("name", CASES)
def test_fused_kernels_match_numpy(name: str) -> None:
    case = CASES[name]
    art = built(case.text(), f"cuda{{arch={case.arch}}}")
    few = case.queries <= 3  # whose keys blocks share out
    assert len(art.manifest["kernels"]) == (3 if case.symbolic else 2 if few else 1)
    args = case.arguments()
    have = mlcc.load(art, emulate=True)["main"](*args)
    want = case.expected(*(value(a, case.dtype) for a in args))
    np.testing.assert_allclose(value(np.asarray(have), case.dtype), want, rtol=0, atol=TOLERANCE[case.dtype])


def test_no_queries_no_keys_and_one() -> None:
    exe = mlcc.load(built(Case(1, 1, 8, symbolic=True).text()), emulate=True)["main"]
    for n, m in ((0, 3), (3, 0), (1, 1), (9, 0), (9, 1)):
        case = Case(n, m, 8)
        args = case.arguments()
        np.testing.assert_allclose(exe(*args), case.expected(*args), atol=1e-6)


def test_infinite_biases_and_large_scores() -> None:
    case = Case(4, 70, 8, bias=(1, 1, 4, 70), scale=1.0)
    q, k, v, bias = case.arguments()
    q[:, 1] *= 1e18  # scores of 1e19 and more
    bias[..., 2, 5:] = -np.inf
    bias[..., 2, :3] = -np.inf
    bias[..., 3, :] = -np.inf  # no key counts, and no mask says so: 0 / 0
    have = mlcc.load(built(case.text()), emulate=True)["main"](q, k, v, bias)
    with np.errstate(invalid="ignore"):
        want = case.expected(q, k, v, bias)
    assert np.isnan(want[:, 3]).all() and np.isfinite(want[:, :3]).all()
    np.testing.assert_allclose(have, want, atol=1e-5)


@pytest.mark.parametrize(("dtype", "queries"), [("float16", 20), ("float32", 20), ("float16", 3)])
def test_masks_of_the_lowest_number(dtype: str, queries: int) -> None:
    """A row of nothing but finite masks is the mean of all values; scores of -inf count for nothing beside them."""
    lowest = float(np.finfo(dtype).min)
    case = Case(queries, 200, 16, bias=(1, 1, queries, 200), dtype=dtype)
    q, k, v, bias = case.arguments()
    bias[..., 1, :] = lowest
    bias[..., 2, :] = np.where(np.arange(200) < 150, -np.inf, lowest)
    have = mlcc.load(built(case.text()), emulate=True)["main"](q, k, v, bias)
    if dtype == "float32":  # scores vanish beside such a number
        bias[..., 1, :] = 0
        bias[..., 2, 150:] = 0
        q[:, 1:3] = 0
    np.testing.assert_allclose(have, case.expected(q, k, v, bias), rtol=0, atol=TOLERANCE[dtype])


@pytest.mark.parametrize("case", [
    Case(20, 90, 64, dtype="float16"), Case(20, 90, 64), Case(3, 300, 64, scale=0.25),
    Case(70, 70, 16, scale=3.0), Case(20, 90, 16, mask="TopLeft", window=4), Case(20, 90, 16, scale=-0.25),
], ids=str)  # fmt: skip
def test_large_scores_and_no_numbers(case: Case) -> None:
    """Powers of two of scaled scores, and of e where the scale is no factor up to log2(e)."""
    q, k, v = case.arguments()
    q[:, 0] *= 300
    q[:, 2] = np.nan
    q[:, 1, :, 0] = np.inf
    have = np.asarray(mlcc.load(built(case.text()), emulate=True)["main"](q, k, v))
    q[:, 1:3] = 0
    want = case.expected(q, k, v)
    assert np.isnan(have[:, 1:3]).all()
    rows = [0, *range(3, case.queries)]
    np.testing.assert_allclose(have[:, rows], want[:, rows], rtol=0, atol=3 * TOLERANCE[case.dtype])


def test_a_score_is_one_multiply_add_and_a_power() -> None:
    made = built(Case(128, 64, 64, heads=2, groups=2, dtype="float16").text())
    text, source = made.emit("ptx").decode(), made.emit("cuda-c").decode()
    assert "__exp2f" not in source and source.count("exp2f(") == 2
    scores, rows, scale = 64 * 16 // 32, 2, "0f3E38AA3B"  # of a thread; log2(e) / 8
    assert text.count("ex2.approx.ftz.f32") == scores + rows
    assert len(re.findall(rf"fma\.rn\.f32.*{scale}", text)) == scores
    assert len(re.findall(rf"mul\S*\.f32.*{scale}", text)) == text.count("sub.f32") == rows  # of the maxima


def test_sequences_one_after_the_other() -> None:
    more = ', causal_mask="BottomRight", window_size=7'
    shape = "1, {}, 2, 8"
    params = [f'{x}: R.Tensor(({shape.format(n)}), "float32")' for x, n in (("q", 100), ("k", 115), ("v", 115))]
    params += ['sq: R.Tensor(("s",), "int32")', 'sk: R.Tensor(("s",), "int32")']
    params += ['most_q: R.Tensor((), "int32")', 'most_k: R.Tensor((), "int32")']
    exe = mlcc.load(
        built(graph(params, f"y = R.nn.attention_var_len(q, k, v, sq, sk, most_q, most_k{more})", result="y")),
        emulate=True,
    )
    rng = np.random.default_rng(2)
    q, k, v = (rng.standard_normal((1, n, 2, 8)).astype(np.float32) for n in (100, 115, 115))
    starts_q, starts_k = np.array([0, 5, 5, 70, 90], np.int32), np.array([0, 9, 30, 80, 110], np.int32)
    want = np.zeros_like(q, dtype=np.float64)
    for s in range(4):
        rows, columns = slice(*starts_q[s : s + 2]), slice(*starts_k[s : s + 2])
        lengths = [x.stop - x.start for x in (rows, columns)]
        case = Case(lengths[0], lengths[1], 8, heads=2, groups=2, mask="BottomRight", window=7)
        want[:, rows] = case.expected(q[:, rows], k[:, columns], v[:, columns])
    have = exe["main"](q, k, v, starts_q, starts_k, np.int32(65), np.int32(50))
    np.testing.assert_allclose(have, want, atol=1e-5)


# ---------------------------------------------------------------- attention that is written out

WRITTEN = [
    "t = R.permute_dims(k, axes=[0, 1, 3, 2])",
    "s = R.matmul(q, t)",
    'a = R.multiply(s, R.const(0.25, "float32"))',
    'b = R.where(seen, a, R.const(-1e9, "float32"))',
    "w = R.nn.softmax(b, axis=-1)",
    "o = R.matmul(w, v)",
]
PARAMS = [
    'q: R.Tensor((2, 3, "n", 16), "float32")', 'k: R.Tensor((2, 3, "m", 16), "float32")',
    'v: R.Tensor((2, 3, "m", 8), "float32")', 'seen: R.Tensor((2, 1, 1, "m"), "bool")',
]  # fmt: skip


@pytest.mark.parametrize("turned", [False, True])
def test_written_out_attention_is_fused(turned: bool) -> None:
    """With keys by rows and, if `turned`, by columns."""
    lines = [
        *(["s = R.matmul(q, k)", *WRITTEN[2:]] if turned else WRITTEN),
        "p = R.permute_dims(o, axes=[0, 2, 1, 3])",
        "y = R.reshape(p, (2, n, 24))",
    ]
    params = [p.replace('"n"', "21") for p in PARAMS]
    if turned:
        params[1] = params[1].replace('"m", 16', '16, "m"')
    art = built(graph(params, *(line.replace("n, 24", "21, 24") for line in lines), result="y"))
    assert list(art.manifest["kernels"]) == ["attention_kernel"]
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((2, 3, *s)).astype(np.float32) for s in ((21, 16), (30, 16), (30, 8)))
    seen = rng.integers(0, 2, (2, 1, 1, 30)).astype(bool)
    seen[1] = False  # all weights are the same
    first = (np.swapaxes(a, 1, 2) for a in (q, k, v))
    scores = np.float64(q) @ np.swapaxes(np.float64(k), 2, 3) * 0.25
    want = attention(*first, 0.0, np.where(seen, scores, -1e9), True).reshape(2, 21, 24)
    k = np.ascontiguousarray(np.swapaxes(k, 2, 3)) if turned else k
    np.testing.assert_allclose(mlcc.load(art, emulate=True)["main"](q, k, v, seen), want, atol=1e-5)


def fused(*lines: str, result: str = "o", params: list[str] | None = None) -> list[str]:
    mod = mlcc.parse(graph(params or PARAMS, *lines, result=result))
    return kernels(mlcc.run_passes(mod, "normalize,fuse-attention,dead-code", target=GPU))


def test_what_is_no_attention_of_its_own_stays() -> None:
    assert fused(*WRITTEN) == ["attention"]
    assert fused(*WRITTEN, "z = (o, w)", result="z") == []  # the weights are a result too
    across = [line.replace("axis=-1", "axis=2") for line in WRITTEN]
    assert fused(*across) == []
    wide = [p.replace("16", "264") for p in PARAMS]
    assert fused(*WRITTEN, params=wide) == []
    more = [*PARAMS, 'r: R.Tensor((2, 3, n, m), "float32")'.replace("n, m", '"n", "m"')]
    shared = [p.replace("(2, 3,", "(1, 1,") for p in more[:2]] + more[2:]
    added = [*WRITTEN[:3], "b = R.add(a, r)", *WRITTEN[4:]]
    assert fused(*added, params=more) == ["attention"]
    assert fused(*added, params=shared) == []  # scores of one head become those of several
    double = [line.replace("R.matmul(q, t)", 'R.matmul(q, t, out_dtype="float64")') for line in added]
    double = [line.replace('0.25, "float32"', '0.25, "float64"') for line in double]
    more = [*more[:4], more[4].replace("float32", "float64")]
    last = [*double[:-1], 'h = R.astype(w, "float32")', "o = R.matmul(h, v)"]
    assert fused(*last, params=more) == []
    mixed = [*PARAMS[:2], PARAMS[2].replace("float32", "float16"), PARAMS[3]]
    half = [*WRITTEN[:-1], 'h = R.astype(w, "float16")', "o = R.matmul(h, v)"]
    assert fused(*half, params=mixed) == []


def test_masks_are_computed_where_they_are_needed() -> None:
    lines = [
        *WRITTEN[:3],
        "row = R.reshape(R.arange(n, dtype='int64'), (n, 1))",
        "seen = R.less_equal(R.arange(m, dtype='int64'), row)",
        *WRITTEN[3:],
    ]
    mod = mlcc.parse(graph(PARAMS[:3], *lines, result="o"))
    made = mlcc.run_passes(mod, "O2", target=GPU)
    assert [n for n, f in made.functions.items() if isinstance(f, tir.PrimFunc)] == ["attention"]
    func = made["attention"]
    assert isinstance(func, tir.PrimFunc) and len([b for b in func.buffers if b is not None]) == 4


def test_parts_of_one_tensor_are_read_where_they_are() -> None:
    """Queries, keys and values of one product, turned and split: nothing is copied."""
    lines = [
        "h = R.permute_dims(R.reshape(x, (2, n, 3, 4, 8)), axes=[2, 0, 3, 1, 4])",
        "p = R.split(h, 3, axis=0)",
        "q = R.squeeze(p[0], axis=[0])",
        "k = R.permute_dims(R.squeeze(p[1], axis=[0]), axes=[0, 1, 3, 2])",
        "w = R.nn.softmax(R.matmul(q, k), axis=-1)",
        "o = R.matmul(w, R.squeeze(p[2], axis=[0]))",
    ]
    mod = mlcc.parse(graph(['x: R.Tensor((2, "n", 96), "float32")'], *lines, result="o"))
    made = mlcc.run_passes(mod, "normalize,fuse-attention,dead-code", target=GPU)
    main = made["main"]
    assert isinstance(main, relax.Function)
    assert [len(b.bindings) for b in main.body.blocks] == [1]
    func = made["attention"]
    assert isinstance(func, tir.PrimFunc)
    shapes = [[tir.const_int(n) for n in buffer.shape] for buffer in func.buffers if buffer is not None]
    assert shapes == [[2, None, 96], [2, 4, None, 8]]


def test_indices_are_rewritten_for_another_shape() -> None:
    b, n, i, j, h, d = (tir.Var(name, INT64) for name in "bnijhd")
    one, four, eight, many = (tir.IntImm(INT64, value) for value in (1, 4, 8, 32))
    merged = reshape_indices((i, j, h, d), (b, n, four, eight), (b, n, many))
    assert [str(x) for x in merged] == ["i", "j", "h * T.int64(8) + d"]
    parted = reshape_indices((i, d), (n, many), (one, n, four, eight))
    assert [str(x) for x in parted] == ["T.int64(0)", "i", "d // T.int64(8)", "d % T.int64(8)"]


# ---------------------------------------------------------------- the code


@pytest.mark.parametrize(
    ("width", "dtype", "arch"),
    [
        (64, "float32", "sm_75"),
        (128, "float32", "sm_80"),
        (64, "float16", "sm_80"),
        (128, "float16", "sm_90"),
    ],
)
def test_the_code_needs_no_local_memory(width: int, dtype: str, arch: str) -> None:
    case = Case(1, 1, width, batch=2, heads=8, groups=8, mask="BottomRight", dtype=dtype, symbolic=True)
    art = built(case.text(), f"cuda{{arch={arch}}}")
    without_spills(art)
    text = art.emit("ptx").decode()
    assert ("mma.sync" in text) == (dtype == "float16")
    assert ("cp.async.cg" in text) == (arch != "sm_75")


def test_levels_from_2_fuse_for_gpus() -> None:
    cpu, gpu = backends.get("llvm"), backends.get("cuda")
    assert "fuse-attention" not in cpu.level_pipeline(3) + gpu.level_pipeline(0) + gpu.level_pipeline(1)
    for level in (2, 3):
        made = mlcc.run_passes(mlcc.parse(Case(64, 64, 16).text()), f"O{level}", target=GPU)
        assert kernels(made) == ["attention"]
        again = mlcc.parse(mlcc.script(made))
        mlcc.assert_structural_equal(again, made)

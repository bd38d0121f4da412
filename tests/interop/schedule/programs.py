"""Generated programs to schedule, as text that TVM and mlcc read alike. A program is its family and its seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

SMALL = (1, 2, 3, 4, 4, 5, 6, 7, 8, 8)
LARGE = (1, 2, 3, 4, 7, 8, 12, 13, 16, 16, 17, 24, 31, 32, 32, 60, 64, 64, 127, 128, 128)
FLOATS = ("float32", "float32", "float32", "float16", "float64")


@dataclass
class Maker:
    """Choices of one program: its sizes, its index dtype, and the text so far."""

    rng: random.Random
    sizes: Sequence[int] = LARGE
    wide: bool = False  # int64 indices
    lines: list[str] = field(default_factory=list)
    params: list[str] = field(default_factory=list)

    def size(self, *bounds: int) -> int:
        """A size, at most the bound."""
        limit = bounds[0] if bounds else max(self.sizes)
        return self.rng.choice([s for s in self.sizes if s <= limit])

    def n(self, value: int | str) -> str:
        """An integer constant of the index dtype."""
        return f"T.int64({value})" if self.wide and isinstance(value, int) else str(value)

    def shape(self, dims: Sequence[int | str]) -> str:
        return "(" + "".join(self.n(d) + ", " for d in dims).rstrip() + ")"

    def param(self, name: str, dims: Sequence[int | str], dtype: str = "float32") -> None:
        self.params.append(f'{name}: T.Buffer({self.shape(dims)}, "{dtype}")')

    def alloc(self, name: str, dims: Sequence[int | str], dtype: str = "float32", scope: str = "global") -> None:
        more = f', scope="{scope}"' if scope != "global" else ""
        self.lines.append(f'{name} = T.sblock_alloc_buffer({self.shape(dims)}, "{dtype}"{more})')

    def stage(
        self,
        name: str,
        loops: Sequence[str],
        dims: Sequence[int | str],
        kinds: str,
        body: Sequence[str],
        axes: Sequence[str] | None = None,
    ) -> None:
        """A nest of loops around one block whose axes are the loops (`v` + name), or `axes` written out."""
        if loops:
            grid = ", ".join(self.n(d) for d in dims)
            head = (
                f"for {loops[0]} in range({grid}):" if len(loops) == 1 else f"for {', '.join(loops)} in T.grid({grid}):"
            )
            self.lines.append(head)
        pad = "    " if loops else ""
        self.lines.append(f'{pad}with T.sblock("{name}"):')
        if axes is None and loops:
            names = ", ".join(f"v{x}" for x in loops)
            remap = f'{names} = T.axis.remap("{kinds}", [{", ".join(loops)}])'
            axes = [remap]
        self.lines += [f"{pad}    {line}" for line in [*(axes or ()), *body]]

    def point(self, name: str, *places: str) -> str:
        return f"{name}[{', '.join(places)}]" if places else f"{name}[()]"

    def text(self, function: str = "main", indent: str = "") -> str:
        head = ["@T.prim_func(s_tir=True)", f"def {function}({', '.join(self.params)}):"]
        return "".join(f"{indent}{line}\n" for line in [*head, *(f"    {line}" for line in self.lines)])

    def symbol(self, name: str) -> None:
        self.lines.append(f"{name} = T.{'int64' if self.wide else 'int32'}()")


LOOPS = ("i", "j", "k", "l")
UNARY = ("{0} + T.{1}(1)", "{0} * T.{1}(2)", "T.max({0}, T.{1}(0))", "{0} * {0}", "{0} - T.{1}(3)", "{0}")


def unary(m: Maker, x: str, dtype: str) -> str:
    return m.rng.choice(UNARY).format(x, dtype)


def elementwise(m: Maker) -> None:
    """A chain of 2 to 4 stages."""
    rank, dtype = m.rng.choice((1, 2, 2, 2, 3)), m.rng.choice((*FLOATS, "int32", "int8"))
    dims, loops = [m.size() for _ in range(rank)], LOOPS[:rank]
    names = "ABCDE"[: m.rng.randint(3, 5)]
    m.param("A", dims, dtype)
    m.param(names[-1], dims, dtype)
    for name in names[1:-1]:
        m.alloc(name, dims, dtype)
    places = [f"v{x}" for x in loops]
    for before, name in zip(names, names[1:], strict=False):
        body = f"{m.point(name, *places)} = {unary(m, m.point(before, *places), dtype)}"
        m.stage(name, loops, dims, "S" * rank, [body])


def diamond(m: Maker) -> None:
    """One producer, two consumers, one that joins them."""
    dims = [m.size(), m.size()]
    m.param("A", dims)
    m.param("D", dims)
    if m.rng.random() < 0.3:
        m.param("C", dims)
    else:
        m.alloc("C", dims)
    m.alloc("B", dims)
    if m.rng.random() < 0.3:
        m.param("E", dims)
    else:
        m.alloc("E", dims)
    m.stage("B", "ij", dims, "SS", [f"B[vi, vj] = {unary(m, 'A[vi, vj]', 'float32')}"])
    m.stage("C", "ij", dims, "SS", [f"C[vi, vj] = {unary(m, 'B[vi, vj]', 'float32')}"])
    m.stage("E", "ij", dims, "SS", [f"E[vi, vj] = {unary(m, 'B[vi, vj]', 'float32')}"])
    m.stage("D", "ij", dims, "SS", ["D[vi, vj] = C[vi, vj] + E[vi, vj]"])


def _matmul(m: Maker, out: str, dims: Sequence[int], dtype: str = "float32", acc: str | None = None) -> None:
    acc = acc or dtype
    a, b = ("A[vi, vk]", "B[vk, vj]")
    if acc != dtype:
        a, b = f'T.Cast("{acc}", {a})', f'T.Cast("{acc}", {b})'
    init = ["with T.init():", f"    {out}[vi, vj] = T.{acc}(0)"]
    m.stage(out, "ijk", dims, "SSR", [*init, f"{out}[vi, vj] = {out}[vi, vj] + {a} * {b}"])


def matmul(m: Maker) -> None:
    dims = [m.size(), m.size(), m.size()]
    dtype, acc = m.rng.choice(
        (("float32", "float32"), ("float32", "float32"), ("float16", "float32"), ("int8", "int32"))
    )
    m.param("A", [dims[0], dims[2]], dtype)
    m.param("B", [dims[2], dims[1]], dtype)
    m.param("C", dims[:2], acc)
    _matmul(m, "C", dims, dtype, acc)


def batch_matmul(m: Maker) -> None:
    b, i, j, k = m.size(8), m.size(64), m.size(64), m.size(64)
    m.param("A", [b, i, k])
    m.param("B", [b, j, k] if (swap := m.rng.random() < 0.5) else [b, k, j])
    m.param("C", [b, i, j])
    other = "B[vb, vj, vk]" if swap else "B[vb, vk, vj]"
    init = ["with T.init():", "    C[vb, vi, vj] = T.float32(0)"]
    m.stage("C", "bijk", [b, i, j, k], "SSSR", [*init, f"C[vb, vi, vj] = C[vb, vi, vj] + A[vb, vi, vk] * {other}"])


def matmul_chain(m: Maker) -> None:
    """matmul, bias and an activation, in two or three stages."""
    i, j, k = m.size(), m.size(), m.size()
    m.param("A", [i, k])
    m.param("B", [k, j])
    m.param("bias", [j])
    m.param("D", [i, j])
    m.alloc("C", [i, j])
    _matmul(m, "C", [i, j, k])
    if m.rng.random() < 0.5:
        m.alloc("E", [i, j])
        m.stage("E", "ij", [i, j], "SS", ["E[vi, vj] = C[vi, vj] + bias[vj]"])
        m.stage("D", "ij", [i, j], "SS", ["D[vi, vj] = T.max(E[vi, vj], T.float32(0))"])
    else:
        body = m.rng.choice(
            (
                "C[vi, vj] + bias[vj]",
                "T.max(C[vi, vj] + bias[vj], T.float32(0))",
                "bias[vj] + C[vi, vj]",
                "T.max(C[vi, vj], T.float32(0))",
                "C[vi, vj] * T.float32(2)",
            )
        )
        m.stage("D", "ij", [i, j], "SS", [f"D[vi, vj] = {body}"])


def two_matmuls(m: Maker) -> None:
    i, j, k, n = m.size(32), m.size(32), m.size(32), m.size(32)
    m.param("A", [i, k])
    m.param("B", [k, j])
    m.param("W", [j, n])
    m.param("D", [i, n])
    m.alloc("C", [i, j])
    _matmul(m, "C", [i, j, k])
    init = ["with T.init():", "    D[vi, vn] = T.float32(0)"]
    m.stage("D", "inj", [i, n, j], "SSR", [*init, "D[vi, vn] = D[vi, vn] + C[vi, vj] * W[vj, vn]"])


def padded_matmul(m: Maker) -> None:
    """What pad_einsum is for: producers and a consumer around a matmul."""
    i, j, k = m.size(), m.size(), m.size()
    m.param("X", [i, k])
    m.param("Y", [k, j])
    m.param("Z", [i, j])
    m.alloc("A", [i, k])
    m.alloc("B", [k, j])
    m.alloc("C", [i, j])
    m.stage("A", "ik", [i, k], "SS", ["A[vi, vk] = X[vi, vk]"])
    m.stage("B", "kj", [k, j], "SS", ["B[vk, vj] = Y[vk, vj]"])
    _matmul(m, "C", [i, j, k])
    m.stage("Z", "ij", [i, j], "SS", ["Z[vi, vj] = C[vi, vj]"])


def conv2d(m: Maker) -> None:
    """Padding, then the convolution, then perhaps relu."""
    h, c, o, r = m.rng.choice((4, 5, 8, 14)), m.size(8), m.size(16), m.rng.choice((1, 3))
    pad = r // 2
    stride = m.rng.choice((1, 1, 2))
    out = (h + 2 * pad - r) // stride + 1
    relu = m.rng.random() < 0.5
    m.param("X", [1, c, h, h])
    m.param("W", [o, c, r, r])
    m.param("Y", [1, o, out, out])
    m.alloc("P", [1, c, h + 2 * pad, h + 2 * pad])
    conv = "Z" if relu else "Y"
    if relu:
        m.alloc("Z", [1, o, out, out])
    n, top = m.n(pad), m.n(h + pad)
    cond = f"{n} <= vy and vy < {top} and {n} <= vx and vx < {top}"
    value = f"T.if_then_else({cond}, X[vn, vc, vy - {n}, vx - {n}], T.float32(0))"
    side = h + 2 * pad
    m.stage("pad", "ncyx", [1, c, side, side], "SSSS", [f"P[vn, vc, vy, vx] = {value}"])
    s = "" if stride == 1 else f" * {m.n(stride)}"
    body = [
        "with T.init():",
        f"    {conv}[vn, vo, vy, vx] = T.float32(0)",
        f"{conv}[vn, vo, vy, vx] = {conv}[vn, vo, vy, vx] + P[vn, vc, vy{s} + vp, vx{s} + vq] * W[vo, vc, vp, vq]",
    ]
    m.stage("conv", "noyxcpq", [1, o, out, out, c, r, r], "SSSSRRR", body)
    if relu:
        m.stage(
            "relu", "noyx", [1, o, out, out], "SSSS", ["Y[vn, vo, vy, vx] = T.max(Z[vn, vo, vy, vx], T.float32(0))"]
        )


def depthwise(m: Maker) -> None:
    h, c, r = m.rng.choice((4, 6, 8, 14)), m.size(16), m.rng.choice((2, 3))
    out = h - r + 1
    m.param("X", [c, h, h])
    m.param("W", [c, r, r])
    m.param("Y", [c, out, out])
    body = [
        "with T.init():",
        "    Y[vc, vy, vx] = T.float32(0)",
        "Y[vc, vy, vx] = Y[vc, vy, vx] + X[vc, vy + vp, vx + vq] * W[vc, vp, vq]",
    ]
    m.stage("conv", "cyxpq", [c, out, out, r, r], "SSSRR", body)


def pooling(m: Maker) -> None:
    """One pooling, or two one after the other (what a rolling buffer is for)."""
    h, c, r = m.rng.choice((6, 8, 10, 12)), m.size(8), m.rng.choice((2, 3))
    step = m.rng.choice((1, 1, 2))
    s = "" if step == 1 else f" * {m.n(step)}"
    twice = m.rng.random() < 0.6
    first, second = (h - r) // step + 1, ((h - r) // step + 1) - r + 1
    if second < 1:
        twice = False
    m.param("X", [c, h, h])
    if twice:
        m.param("Y", [c, second, second])
        m.alloc("P", [c, first, first])
    else:
        m.param("Y", [c, first, first])
    one = "P" if twice else "Y"
    body = [
        "with T.init():",
        f'    {one}[vc, vy, vx] = T.min_value("float32")',
        f"{one}[vc, vy, vx] = T.max({one}[vc, vy, vx], X[vc, vy{s} + vp, vx{s} + vq])",
    ]
    m.stage("pool", "cyxpq", [c, first, first, r, r], "SSSRR", body)
    if twice:
        body = [
            "with T.init():",
            '    Y[vc, vy, vx] = T.min_value("float32")',
            "Y[vc, vy, vx] = T.max(Y[vc, vy, vx], P[vc, vy + vp, vx + vq])",
        ]
        m.stage("pool2", "cyxpq", [c, second, second, r, r], "SSSRR", body)


def blur(m: Maker) -> None:
    """A stencil of a stencil, elementwise blocks."""
    h = m.rng.choice((6, 8, 9, 12, 16))
    m.param("A", [h, h])
    m.param("C", [h - 2, h - 2])
    m.alloc("B", [h, h - 2])
    m.stage("B", "ij", [h, h - 2], "SS", ["B[vi, vj] = A[vi, vj] + A[vi, vj + 1] + A[vi, vj + 2]"])
    m.stage("C", "ij", [h - 2, h - 2], "SS", ["C[vi, vj] = B[vi, vj] + B[vi + 1, vj] + B[vi + 2, vj]"])


def softmax(m: Maker) -> None:
    i, j = m.size(), m.size()
    m.param("X", [i, j])
    m.param("Y", [i, j])
    m.alloc("M", [i])
    m.alloc("E", [i, j])
    m.alloc("S", [i])
    m.stage(
        "max",
        "ij",
        [i, j],
        "SR",
        ["with T.init():", '    M[vi] = T.min_value("float32")', "M[vi] = T.max(M[vi], X[vi, vj])"],
    )
    m.stage("exp", "ij", [i, j], "SS", ["E[vi, vj] = T.exp(X[vi, vj] - M[vi])"])
    m.stage("sum", "ij", [i, j], "SR", ["with T.init():", "    S[vi] = T.float32(0)", "S[vi] = S[vi] + E[vi, vj]"])
    m.stage("norm", "ij", [i, j], "SS", ["Y[vi, vj] = E[vi, vj] / S[vi]"])


def layer_norm(m: Maker) -> None:
    i, j = m.size(), m.size()
    m.param("X", [i, j])
    m.param("G", [j])
    m.param("Y", [i, j])
    m.alloc("S", [i])
    m.alloc("Q", [i])
    init = ["with T.init():", "    S[vi] = T.float32(0)", "    Q[vi] = T.float32(0)"]
    m.stage(
        "sums",
        "ij",
        [i, j],
        "SR",
        [
            *init,
            "v_s: T.let[T.float32] = S[vi] + X[vi, vj]",
            "v_q: T.let[T.float32] = Q[vi] + X[vi, vj] * X[vi, vj]",
            "S[vi] = v_s",
            "Q[vi] = v_q",
        ],
    )
    scale = f"T.float32({1.0 / j!r})"
    m.stage(
        "norm",
        "ij",
        [i, j],
        "SS",
        [f"Y[vi, vj] = (X[vi, vj] - S[vi] * {scale}) * T.rsqrt(Q[vi] * {scale} + T.float32(1.0)) * G[vj]"],
    )


def argmax(m: Maker) -> None:
    """A reduction of a pair."""
    i, k = m.size(), m.size()
    m.param("idx", [i, k], "int32")
    m.param("val", [i, k])
    m.param("oi", [i], "int32")
    m.param("ov", [i])
    op = m.rng.choice((">=", ">"))
    body = [
        "with T.init():",
        "    oi[vi] = -1",
        '    ov[vi] = T.min_value("float32")',
        f"v_i: T.let[T.int32] = T.Select(ov[vi] {op} val[vi, vk], oi[vi], idx[vi, vk])",
        f"v_v: T.let[T.float32] = T.Select(ov[vi] {op} val[vi, vk], ov[vi], val[vi, vk])",
        "oi[vi] = v_i",
        "ov[vi] = v_v",
    ]
    m.stage("argmax", "ik", [i, k], "SR", body)


def reduction(m: Maker) -> None:
    """One fold over one or two axes, with or without a producer; also into a scalar."""
    rank, folds = m.rng.choice((0, 1, 1, 2)), m.rng.choice((1, 1, 2))
    dims = [m.size(32) for _ in range(rank + folds)]
    dtype = m.rng.choice(("float32", "float32", "int32"))
    fold, start = m.rng.choice(
        (
            ("{0} + {1}", f"T.{dtype}(0)"),
            ("T.max({0}, {1})", f'T.min_value("{dtype}")'),
            ("{0} * {1}", f"T.{dtype}(1)"),
            ("T.min({0}, {1})", f'T.max_value("{dtype}")'),
        )
    )
    loops = LOOPS[: rank + folds]
    names = [f"v{x}" for x in loops]
    m.param("A", dims, dtype)
    m.param("B", dims[:rank], dtype)
    source = "A"
    if m.rng.random() < 0.4:
        m.alloc("T_sq", dims, dtype)
        source = "T_sq"
        m.stage(
            "sq",
            loops,
            dims,
            "S" * len(dims),
            [f"T_sq[{', '.join(names)}] = {m.point('A', *names)} * {m.point('A', *names)}"],
        )
    out = m.point("B", *names[:rank])
    body = ["with T.init():", f"    {out} = {start}", f"{out} = {fold.format(out, m.point(source, *names))}"]
    m.stage("B", loops, dims, "S" * rank + "R" * folds, body)


def updates(m: Maker) -> None:
    """A reduction already decomposed: a block that starts, a block that adds."""
    i, j = m.size(), m.size()
    m.param("A", [i, j])
    m.param("B", [i])
    m.stage("B_init", "i", [i], "S", ["B[vi] = T.float32(0)"])
    m.stage("B_update", "ij", [i, j], "SR", ["B[vi] = B[vi] + A[vi, vj]"])


def cumulative(m: Maker) -> None:
    """A running sum: an element needs the one before."""
    n, rows = m.size(), m.size(16)
    m.param("A", [rows, n])
    m.param("B", [rows, n])
    kind = m.rng.choice(("spatial", "opaque", "scan", "reduce"))
    dims = m.n(n)
    axes = [f"vi = T.axis.spatial({m.n(rows)}, i)", f"vj = T.axis.{kind}({dims}, j)"]
    before = f"T.if_then_else(vj == {m.n(0)}, T.float32(0), B[vi, vj - {m.n(1)}])"
    m.stage("B", "ij", [rows, n], "", [f"B[vi, vj] = {before} + A[vi, vj]"], axes)


def predicated(m: Maker) -> None:
    """A block that runs only where its predicate holds; sometimes after a producer."""
    factor, n = m.rng.choice((3, 4, 5, 8)), m.size()
    outer = -(-n // factor)
    m.param("A", [n, 4])
    m.param("C", [n, 4])
    source = "A"
    if m.rng.random() < 0.5:
        m.alloc("B", [n, 4])
        source = "B"
        m.stage("B", "ij", [n, 4], "SS", ["B[vi, vj] = A[vi, vj] * T.float32(2)"])
    f = m.n(factor)
    axes = [f"vi = T.axis.spatial({m.n(n)}, i_0 * {f} + i_1)", f"vj = T.axis.spatial({m.n(4)}, j)"]
    where = [] if n % factor == 0 else [f"T.where(i_0 * {f} + i_1 < {m.n(n)})"]
    m.stage(
        "C", ["i_0", "i_1", "j"], [outer, factor, 4], "", [*where, f"C[vi, vj] = {source}[vi, vj] + T.float32(1)"], axes
    )


def symbolic(m: Maker) -> None:
    """Sizes that are known when it runs."""
    m.params += ["a: T.handle", "b: T.handle", "c: T.handle"]
    m.symbol("n")
    m.symbol("m")
    k = m.size(64)
    kind = m.rng.randrange(3)
    if kind == 0:
        m.lines += [
            f'A = T.match_buffer(a, (n, {m.n(k)}), "float32")',
            f'B = T.match_buffer(b, ({m.n(k)}, m), "float32")',
            'C = T.match_buffer(c, (n, m), "float32")',
        ]
        init = ["with T.init():", "    C[vi, vj] = T.float32(0)"]
        m.stage("C", "ijk", ["n", "m", k], "SSR", [*init, "C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]"])
    elif kind == 1:
        m.lines += [
            'A = T.match_buffer(a, (n, m), "float32")',
            'B = T.match_buffer(b, (n, m), "float32")',
            'C = T.match_buffer(c, (n, m), "float32")',
            'D = T.sblock_alloc_buffer((n, m), "float32")',
        ]
        m.stage("D", "ij", ["n", "m"], "SS", ["D[vi, vj] = A[vi, vj] + B[vi, vj]"])
        m.stage("C", "ij", ["n", "m"], "SS", ["C[vi, vj] = T.max(D[vi, vj], T.float32(0))"])
    else:
        m.lines += [
            'A = T.match_buffer(a, (n, m), "float32")',
            'B = T.match_buffer(b, (n,), "float32")',
            'C = T.match_buffer(c, (n,), "float32")',
            'D = T.sblock_alloc_buffer((n,), "float32")',
        ]
        init = ["with T.init():", "    D[vi] = T.float32(0)"]
        m.stage("D", "ij", ["n", "m"], "SR", [*init, "D[vi] = D[vi] + A[vi, vj]"])
        m.stage("C", "i", ["n"], "S", ["C[vi] = D[vi] + B[vi]"])


def triangular(m: Maker) -> None:
    """The inner loop ends where the outer one is."""
    n = m.size(16)
    m.param("A", [n, n])
    m.param("B", [n, n])
    head, bound = (f"for i in range({m.n(n)}):", f"i + {m.n(1)}")
    if m.rng.random() < 0.3:
        bound = f"{m.n(n)} - i"
    m.lines += [
        head,
        f"    for j in range({bound}):",
        '        with T.sblock("B"):',
        f"            vi = T.axis.spatial({m.n(n)}, i)",
        f"            vj = T.axis.spatial({m.n(n)}, j)",
        "            B[vi, vj] = A[vi, vj] * T.float32(2)",
    ]


def transpose(m: Maker) -> None:
    i, j, k = m.size(64), m.size(64), m.size(8)
    m.param("A", [i, j, k])
    m.param("C", [j, i, k])
    if m.rng.random() < 0.5:
        m.alloc("B", [j, i, k])
        m.stage("B", "ijk", [i, j, k], "SSS", ["B[vj, vi, vk] = A[vi, vj, vk]"])
        m.stage("C", "jik", [j, i, k], "SSS", ["C[vj, vi, vk] = B[vj, vi, vk] + T.float32(1)"])
    else:
        m.stage("C", "jik", [j, i, k], "SSS", ["C[vj, vi, vk] = A[vi, vj, vk]"])


def gather(m: Maker) -> None:
    """Rows that data choose; perhaps with a stage before or behind."""
    n, rows, j = m.size(), m.size(), m.size(32)
    m.param("I", [rows], "int64" if m.wide else "int32")
    m.param("A", [n, j])
    m.param("C", [rows, j])
    source = "A"
    if m.rng.random() < 0.5:
        m.alloc("B", [n, j])
        source = "B"
        m.stage("B", "ij", [n, j], "SS", ["B[vi, vj] = A[vi, vj] * T.float32(2)"])
    body = [
        f"T.reads({source}[{m.n(0)}:{m.n(n)}, vj], I[vi])",
        "T.writes(C[vi, vj])",
        f"C[vi, vj] = {source}[I[vi], vj]",
    ]
    m.stage("C", "ij", [rows, j], "SS", body)


def resize(m: Maker) -> None:
    """Indices that are worth computing once."""
    h, c = m.rng.choice((4, 8, 10)), m.size(4)
    m.param("A", [c, h, h])
    m.param("B", [c, 2 * h, 2 * h])
    two, four = m.n(2), m.n(4)
    one = (
        f"vi // {two}",
        f"vi // {four} + vj // {four}",
        f"(vi + vj) // {four}",
        f"(vi * {two} + vj) // ({two} * {four})",
    )
    other = (f"vj // {two}", f"vj // {two}", f"(vi + vj) // {four}", "vc")
    m.stage(
        "B",
        "cij",
        [c, 2 * h, 2 * h],
        "SSS",
        [f"B[vc, vi, vj] = A[vc, {m.rng.choice(one)}, {m.rng.choice(other)}]"],
    )


def nested(m: Maker) -> None:
    """A block in a block: outer tiles and an inner block with axes of its own."""
    outer, inner, k = m.size(16), m.size(8), m.size(16)
    n = outer * inner
    m.param("A", [n, k])
    m.param("B", [n, k])
    body = [
        f"T.reads(A[vo * {m.n(inner)}:vo * {m.n(inner)} + {m.n(inner)}, {m.n(0)}:{m.n(k)}])",
        f"T.writes(B[vo * {m.n(inner)}:vo * {m.n(inner)} + {m.n(inner)}, {m.n(0)}:{m.n(k)}])",
        f"for i, j in T.grid({m.n(inner)}, {m.n(k)}):",
        '    with T.sblock("B"):',
        '        vi, vj = T.axis.remap("SS", [i, j])',
        f"        B[vo * {m.n(inner)} + vi, vj] = A[vo * {m.n(inner)} + vi, vj] + T.float32(1)",
    ]
    m.stage("B_o", "o", [outer], "S", body)


def matched(m: Maker) -> None:
    """A block that works through views of what it reads and writes."""
    outer, inner = m.size(16), m.rng.choice((4, 8, 16))
    n, w = outer * inner, m.n(inner)
    m.param("A", [n])
    m.param("C", [n])
    m.alloc("B", [n])
    m.stage("B", "i", [n], "S", ["B[vi] = A[vi] * T.float32(2)"])
    body = [
        f"T.reads(B[vo * {w}:vo * {w} + {w}])",
        f"T.writes(C[vo * {w}:vo * {w} + {w}])",
        f'X = T.match_buffer(B[vo * {w}:vo * {w} + {w}], ({w},), "float32", offset_factor=1)',
        f'Y = T.match_buffer(C[vo * {w}:vo * {w} + {w}], ({w},), "float32", offset_factor=1)',
        f"for i in range({w}):",
        '    with T.sblock("C"):',
        f"        vi = T.axis.spatial({w}, i)",
        "        Y[vi] = X[vi] + T.float32(1)",
    ]
    m.stage("C_o", "o", [outer], "S", body)


def split_nest(m: Maker) -> None:
    """Loops that were split and fused before."""
    a, b, c, d = (m.rng.choice((1, 2, 4, 8)) for _ in range(4))
    m.param("A", [a * b, c * d])
    m.param("B", [a * b, c * d])
    if m.rng.random() < 0.5:
        axes = [
            f"vi = T.axis.spatial({m.n(a * b)}, i_0 * {m.n(b)} + i_1)",
            f"vj = T.axis.spatial({m.n(c * d)}, j_0 * {m.n(d)} + j_1)",
        ]
        m.stage("B", ["i_0", "j_0", "i_1", "j_1"], [a, c, b, d], "", ["B[vi, vj] = A[vi, vj] + T.float32(1)"], axes)
    else:
        axes = [
            f"vi = T.axis.spatial({m.n(a * b)}, f // {m.n(c * d)})",
            f"vj = T.axis.spatial({m.n(c * d)}, f % {m.n(c * d)})",
        ]
        m.stage("B", ["f"], [a * b * c * d], "", ["B[vi, vj] = A[vi, vj] + T.float32(1)"], axes)


def in_place(m: Maker) -> None:
    n = m.size()
    m.param("A", [n])
    if m.rng.random() < 0.5:
        m.stage("A", "i", [n], "S", ["A[vi] = A[vi] + T.float32(1)"])
    else:
        w = m.n(n)
        m.lines += [
            "for i in range(1):",
            '    with T.sblock("A"):',
            f"        T.reads(A[{m.n(0)}:{w}])",
            f"        T.writes(A[{m.n(0)}:{w}])",
            f"        for j in range({w}):",
            "            A[j] = A[j] * T.float32(2)",
        ]


def padding(m: Maker) -> None:
    """A block that copies and pads, and one that uses the result."""
    n, c, p = m.size(64), m.size(16), m.rng.choice((1, 1, 2, 3))
    m.param("X", [c, n])
    used = m.rng.random() < 0.5
    if used:
        m.param("Y", [c, n])
        m.alloc("P", [c, n + 2 * p])
    else:
        m.param("P", [c, n + 2 * p])
    low, high = m.n(p), m.n(n + p)
    value = f"T.if_then_else({low} <= vi and vi < {high}, X[vc, vi - {low}], T.float32(0))"
    m.stage("pad", "ci", [c, n + 2 * p], "SS", [f"P[vc, vi] = {value}"])
    if used:
        body = ["with T.init():", "    Y[vc, vi] = T.float32(0)", "Y[vc, vi] = Y[vc, vi] + P[vc, vi + vk]"]
        m.stage("Y", "cik", [c, n, 2 * p + 1], "SSR", body)


def scalars(m: Maker) -> None:
    """No axes at all."""
    m.param("A", [])
    m.param("C", [])
    m.alloc("B", [])
    m.stage("B", "", [], "", ["B[()] = A[()] + T.float32(1)"])
    m.stage("C", "", [], "", ["C[()] = B[()] * T.float32(2)"])


def opaque(m: Maker) -> None:
    """A block that does its own loops, between two plain ones."""
    n, k = m.size(16), m.size(16)
    m.param("A", [n, k])
    m.param("D", [n, k])
    m.alloc("B", [n, k])
    m.alloc("C", [n, k])
    m.stage("B", "ij", [n, k], "SS", ["B[vi, vj] = A[vi, vj] + T.float32(1)"])
    m.stage(
        "C",
        "i",
        [n],
        "S",
        [
            f"T.reads(B[vi, {m.n(0)}:{m.n(k)}])",
            f"T.writes(C[vi, {m.n(0)}:{m.n(k)}])",
            f"for j in range({m.n(k)}):",
            "    C[vi, j] = B[vi, j] * T.float32(2)",
        ],
    )
    m.stage("D", "ij", [n, k], "SS", ["D[vi, vj] = C[vi, vj] + T.float32(1)"])


def same_nest(m: Maker) -> None:
    """Two blocks under shared loops."""
    i, j = m.size(), m.size()
    m.param("A", [i, j])
    m.param("C", [i, j])
    m.alloc("B", [i, j])
    n, k = m.n(i), m.n(j)
    remap = 'vi, vj = T.axis.remap("SS", [i, {}])'
    m.lines.append(f"for i in range({n}):")
    for name, source, loop in (("B", "A", "j0"), ("C", "B", "j1")):
        m.lines += [
            f"    for {loop} in range({k}):",
            f'        with T.sblock("{name}"):',
            f"            {remap.format(loop)}",
            f"            {name}[vi, vj] = {unary(m, f'{source}[vi, vj]', 'float32')}",
        ]


def kinds_of_loops(m: Maker) -> None:
    """Loops that are parallel, unrolled, bound or annotated already."""
    i, j, k = m.size(16), m.size(16), m.size(8)
    m.param("A", [i, j, k])
    m.param("B", [i, j, k])
    kinds = [m.rng.choice(("T.serial", "T.parallel", "T.unroll", "T.thread_binding", "T.serial")) for _ in "ijk"]
    pad = ""
    for loop, extent, kind, tag in zip(
        "ijk", (i, j, k), kinds, ("blockIdx.x", "threadIdx.x", "threadIdx.y"), strict=True
    ):
        more = f', thread="{tag}"' if kind == "T.thread_binding" else ""
        if kind == "T.serial" and m.rng.random() < 0.4:
            more = ', annotations={"pragma_note": 1}'
        m.lines.append(f"{pad}for {loop} in {kind}({m.n(extent)}{more}):")
        pad += "    "
    m.lines += [
        f'{pad}with T.sblock("B"):',
        f'{pad}    vi, vj, vk = T.axis.remap("SSS", [i, j, k])',
        f"{pad}    B[vi, vj, vk] = A[vi, vj, vk] + T.float32(1)",
    ]


def separate(m: Maker) -> None:
    """Two nests of the same loops that have nothing to do with each other."""
    i, j = m.size(), m.size()
    m.param("A", [i, j])
    m.param("B", [i, j])
    m.param("C", [i, j])
    m.stage("B", "ij", [i, j], "SS", ["B[vi, vj] = A[vi, vj] * T.float32(2)"])
    m.stage("C", "ij", [i, j], "SS", ["C[vi, vj] = A[vi, vj] + T.float32(2)"])


def shifted(m: Maker) -> None:
    """Parts of a buffer written by different blocks, read as a whole."""
    n, half = 16, m.rng.choice((4, 8, 10))
    m.param("A", [n])
    m.param("C", [n])
    m.alloc("B", [n])
    m.stage("B0", "i", [half], "S", ["B[vi] = A[vi] * T.float32(2)"])
    m.stage("B1", "i", [n - half], "S", [f"B[vi + {m.n(half)}] = A[vi + {m.n(half)}] + T.float32(1)"])
    m.stage("C", "i", [n], "S", ["C[vi] = B[vi]"])


def shared_copy(m: Maker) -> None:
    """A matmul that reads copies of its inputs in another scope."""
    i, j, k = m.size(64), m.size(64), m.size(64)
    m.param("X", [i, k])
    m.param("B", [k, j])
    m.param("C", [i, j])
    m.alloc("A", [i, k], scope="shared")
    m.stage("A", "ik", [i, k], "SS", ["A[vi, vk] = X[vi, vk]"])
    _matmul(m, "C", [i, j, k])


def tiles(m: Maker) -> None:
    """A matmul of whole 4 x 4 tiles between copies: what an intrinsic can take."""
    i, j, k = (4 * m.rng.choice((1, 2, 3, 4, 8)) for _ in range(3))
    m.param("X", [i, k])
    m.param("B", [k, j])
    m.param("Y", [i, j])
    m.alloc("A", [i, k])
    m.alloc("C", [i, j])
    m.stage("A", "ik", [i, k], "SS", ["A[vi, vk] = X[vi, vk]"])
    if m.rng.random() < 0.3:
        m.stage("C_init", "ij", [i, j], "SS", ["C[vi, vj] = T.float32(0)"])
        m.stage("C", "ijk", [i, j, k], "SSR", ["C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]"])
    else:
        _matmul(m, "C", [i, j, k])
    m.stage("Y", "ij", [i, j], "SS", ["Y[vi, vj] = C[vi, vj]"])


FAMILIES: dict[str, Callable[[Maker], None]] = {
    f.__name__: f
    for f in (
        elementwise,
        diamond,
        matmul,
        batch_matmul,
        matmul_chain,
        two_matmuls,
        padded_matmul,
        conv2d,
        depthwise,
        pooling,
        blur,
        softmax,
        layer_norm,
        argmax,
        reduction,
        updates,
        cumulative,
        predicated,
        symbolic,
        triangular,
        transpose,
        gather,
        resize,
        nested,
        matched,
        split_nest,
        in_place,
        padding,
        scalars,
        opaque,
        same_nest,
        kinds_of_loops,
        separate,
        shifted,
        shared_copy,
        tiles,
    )
}


def program(family: str, seed: int | str, sizes: Sequence[int] = LARGE) -> str:
    """The text of that program: one function `main`."""
    rng = random.Random(f"{family}/{seed}")
    maker = Maker(rng, sizes, wide=rng.random() < 0.15)
    FAMILIES[family](maker)
    return maker.text()

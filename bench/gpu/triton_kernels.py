"""Kernels in Triton's language, as its tutorials have them, for the sizes that `bench.gpu.sass` compiles.

Sizes are constants, as they are in the functions that mlcc compiles.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def softmax(x, y, COLUMNS: tl.constexpr):
    """A program per row."""
    row = tl.program_id(0)
    column = tl.arange(0, COLUMNS)
    values = tl.load(x + row * COLUMNS + column)
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(y + row * COLUMNS + column, powers / tl.sum(powers, axis=0))


@triton.jit
def layer_norm(x, gamma, beta, y, COLUMNS: tl.constexpr):
    """A program per row, which it reads once."""
    row = tl.program_id(0)
    column = tl.arange(0, COLUMNS)
    values = tl.load(x + row * COLUMNS + column)
    centered = values - tl.sum(values, axis=0) / COLUMNS
    scale = 1 / tl.sqrt(tl.sum(centered * centered, axis=0) / COLUMNS + 1e-5)
    tl.store(y + row * COLUMNS + column, centered * scale * tl.load(gamma + column) + tl.load(beta + column))


@triton.jit
def matmul(
    a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, TILE_M: tl.constexpr,
    TILE_N: tl.constexpr, TILE_K: tl.constexpr, GROUP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A program per tile, in groups of rows of tiles."""
    tiles_n = N // TILE_N
    in_group = GROUP * tiles_n
    first = tl.program_id(0) // in_group * GROUP
    tile_m = first + tl.program_id(0) % in_group % GROUP
    tile_n = tl.program_id(0) % in_group // GROUP
    rows, columns = tile_m * TILE_M + tl.arange(0, TILE_M), tile_n * TILE_N + tl.arange(0, TILE_N)
    depth = tl.arange(0, TILE_K)
    a_tile, b_tile = a + rows[:, None] * K + depth[None, :], b + depth[:, None] * N + columns[None, :]
    total = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
    for _ in range(0, K, TILE_K):
        total = tl.dot(tl.load(a_tile), tl.load(b_tile), total, input_precision=PRECISION)
        a_tile += TILE_K
        b_tile += TILE_K * N
    tl.store(c + rows[:, None] * N + columns[None, :], total.to(c.dtype.element_ty))


@triton.jit
def attention(
    q, k, v, o, LENGTH: tl.constexpr, HEADS: tl.constexpr, HEAD: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """A program per head and tile of queries of arrays (batch, position, head, element), with an online softmax."""
    ROW: tl.constexpr = HEADS * HEAD
    batch, head = tl.program_id(1) // HEADS, tl.program_id(1) % HEADS
    base = batch * LENGTH * ROW + head * HEAD
    queries = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    keys, element = tl.arange(0, KEYS), tl.arange(0, HEAD)
    query = tl.load(q + base + queries[:, None] * ROW + element[None, :])
    k_tile = k + base + keys[None, :] * ROW + element[:, None]
    v_tile = v + base + keys[:, None] * ROW + element[None, :]
    greatest = tl.full((QUERIES,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((QUERIES,), dtype=tl.float32)
    result = tl.zeros((QUERIES, HEAD), dtype=tl.float32)
    scale = 1.4426950408889634 / HEAD**0.5  # powers of two
    for _ in range(0, LENGTH, KEYS):
        scores = tl.dot(query, tl.load(k_tile))
        now = tl.maximum(greatest, tl.max(scores, 1) * scale)
        powers = tl.math.exp2(scores * scale - now[:, None])
        shrink = tl.math.exp2(greatest - now)
        total = total * shrink + tl.sum(powers, 1)
        result = tl.dot(powers.to(tl.float16), tl.load(v_tile), result * shrink[:, None])
        greatest = now
        k_tile += KEYS * ROW
        v_tile += KEYS * ROW
    stored = (result / total[:, None]).to(tl.float16)
    tl.store(o + base + queries[:, None] * ROW + element[None, :], stored)

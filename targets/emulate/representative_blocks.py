"""Choose blocks of a large launch that stand for all of them: those at the edges of the grid, and some in between.

Kernels often fuse several axes of tiles into one axis of the grid, and take it apart again by divisions. Each axis is
split up at these divisors, so that the first and last position along each axis of tiles are known. Of an axis the first
and last position stand for themselves, where tensors may end within a tile, and evenly spaced ones between them for the
others, so that work that grows along the axis, as that of causal attention, is averaged.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from itertools import product
from math import inf, prod
from typing import Any

import numpy as np

from mlcc.ir import tir
from mlcc.ir.node import walk
from mlcc.passes.gpu.device import GRID, DeviceKernel
from mlcc.targets.emulate.compiled import Emulated, evaluate
from mlcc.targets.emulate.operations import count_operations, parameter_bytes
from mlcc.targets.emulate.trace import BlockSample

FEWEST, MOST = 9, 64  # representative blocks of one launch, unless a number is asked for
BUDGET = 2.0**29  # steps of a launch that take a few seconds with all checks

Stratum = tuple[int, int]  # a position along an axis, and how many positions it stands for


def choose_blocks(
    kernel: DeviceKernel, args: Mapping[tir.Var, Any], grid: Sequence[int], block: Sequence[int],
    most: int | None = None, budget: float = inf,
) -> BlockSample | None:  # fmt: skip
    """Return the blocks that represent a launch; None for all: of a launch of at most `budget` steps, or if a number
    is given (`most`), of no more blocks than that."""
    count = prod(grid)
    if most is None:
        steps = _steps_of_block(kernel, args, grid, block) if budget < inf and count else 0.0
        if steps * count <= budget:
            return None
        most = int(min(max(budget // steps, FEWEST), MOST))
    if count <= most:
        return None
    return _sample(_grid_axes(kernel, args, grid), count, most)


def clear_results(kernel: Emulated, args: Mapping[tir.Var, Any]) -> None:
    """Zero the arrays that a kernel writes and does not read: what blocks that do not run leave out may be an index
    later on."""
    loaded = {n.buffer.data for stmt in kernel.kernel.body for n in walk(stmt) if isinstance(n, tir.BufferLoad)}
    roots = {kernel.checks.root_of(data) for data in loaded}
    sizes = parameter_bytes(kernel.kernel, args)
    for root in kernel.checks.roots:
        address = args.get(root.data)
        if isinstance(address, int) and root.is_marked and root not in roots and root.data in sizes:
            ctypes.memset(address, 0, sizes[root.data])


def _steps_of_block(
    kernel: DeviceKernel, args: Mapping[tir.Var, Any], grid: Sequence[int], block: Sequence[int]
) -> float:
    """Estimate the accesses and multiply-adds that emulation of one block takes."""
    found = count_operations(kernel, args, grid, block)
    return (found.accesses + sum(found.tensor.values()) / 2) * prod(block) + sum(found.bulk.values()) / 4 + 1


def _grid_axes(kernel: DeviceKernel, args: Mapping[tir.Var, Any], grid: Sequence[int]) -> list[int]:
    """Return the extents of the axes of tiles, the fastest first; their product may exceed the grid."""
    extents: list[int] = []
    for tag, extent in zip(GRID, grid, strict=True):
        var, step = kernel.axes.get(tag), 1
        for divisor in sorted(_divisors(kernel, var, args)) if var is not None else ():
            if step < divisor < extent and divisor % step == 0:
                extents.append(divisor // step)
                step = divisor
        extents.append(-(-extent // step))
    return extents


def _divisors(kernel: DeviceKernel, axis: tir.Var, args: Mapping[tir.Var, Any]) -> set[int]:
    """Return the strides at which a kernel takes a position along an axis of the grid apart."""
    digits: dict[tir.Var, int] = {axis: 1}  # variables whose values are position // stride % anything
    found: set[int] = set()

    def stride_of(expr: tir.Expr) -> int | None:
        match expr:
            case tir.Var():
                return digits.get(expr)
            case tir.Cast(value=value):
                return stride_of(value)
            case tir.FloorDiv(lhs=lhs, rhs=rhs) | tir.FloorMod(lhs=lhs, rhs=rhs):
                stride = stride_of(lhs)
                if stride is None or not all(v in args for v in walk(rhs) if isinstance(v, tir.Var)):
                    return None
                divisor = evaluate(rhs, args)
                found.add(stride * divisor)
                return stride * divisor if isinstance(expr, tir.FloorDiv) else stride
        return None

    for node in (n for stmt in kernel.body for n in walk(stmt)):
        if isinstance(node, tir.Bind):
            stride = stride_of(node.value)
            if stride is not None:
                digits[node.var] = stride
        elif isinstance(node, (tir.FloorDiv, tir.FloorMod)):
            stride_of(node)
    return found


def _sample(extents: Sequence[int], count: int, most: int) -> BlockSample:
    """Return at most `most` of `count` blocks, for axes of these extents."""
    points = _points(extents, most)
    weights: dict[int, float] = {}
    for strata in product(*(_strata(n, p) for n, p in zip(extents, points, strict=True))):
        number, stride = 0, 1
        for (position, _), extent in zip(strata, extents, strict=True):
            number, stride = number + position * stride, stride * extent
        if number < count:
            weights[number] = float(prod(times for _, times in strata))
    if len(weights) + 2 <= most:  # the corners of the grid are checked, if not counted
        weights = {0: 0.0, count - 1: 0.0} | weights
    numbers = np.array(sorted(weights), np.int64)
    chosen = np.array([weights[n] for n in numbers.tolist()])
    return BlockSample(numbers, chosen * (count / chosen.sum()))


def _points(extents: Sequence[int], most: int) -> list[int]:
    """Return how many positions of each axis to take: first both ends of all axes, those of few tiles before others,
    then more in the middle of the longest."""
    points = [1] * len(extents)
    for axis in sorted(range(len(extents)), key=lambda n: extents[n]):
        enough = min(3, extents[axis])
        if prod(points) * enough <= most:
            points[axis] = enough
    while True:
        wider = [n for n, p in enumerate(points) if 3 <= p < extents[n] and prod(points) // p * (p + 1) <= most]
        if not wider:
            return points
        points[max(wider, key=lambda n: extents[n] / points[n])] += 1


def _strata(extent: int, points: int) -> list[Stratum]:
    """Return positions along an axis: with three or more both ends, and the middles of even parts between."""
    if points >= extent:
        return [(n, 1) for n in range(extent)]
    if points < 3:
        return [((extent - 1) // 2, extent)]
    starts = [1 + (extent - 2) * n // (points - 2) for n in range(points - 1)]
    parts = zip(starts, starts[1:], strict=False)
    inner = [((start + end - 1 + n % 2) // 2, end - start) for n, (start, end) in enumerate(parts)]  # rounded in turn
    return [(0, 1), *inner, (extent - 1, 1)]

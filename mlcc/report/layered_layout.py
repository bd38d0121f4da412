"""Layered drawing of directed acyclic graphs (Sugiyama's method): places for nodes and curves for edges.

Layers by longest paths, order within layers by barycenters (Sugiyama, Tagawa and Toda, 1981) with the crossings counted
as Barth, Juenger and Mutzel (2002) do, coordinates by isotonic regression: the places with the least sum of squared
distances from those that are wanted, under the given order (pool adjacent violators). Deterministic.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

NODE_GAP = 24.0
BEND_GAP = 14.0  # beside the bend of an edge
LAYER_GAP = 44.0
_BEND_WEIGHT = 8.0  # how much more than others a bend wants to lie straight below or above a bend
_ORDER_SWEEPS = 8
_PLACE_SWEEPS = 7  # odd: the last one goes down, so that what has one operand stands right below it


@dataclass(frozen=True)
class Layout:
    """`centers[i]` of node i; `curves[k]`: the points through which edge k runs, from top to bottom. In pixels."""

    centers: list[tuple[float, float]]
    curves: list[list[tuple[float, float]]]
    width: float
    height: float


def layered_layout(sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]]) -> Layout:
    """Lay out nodes of the given widths and heights. Every edge leads from a lower to a higher index."""
    layers_of = _layers(len(sizes), edges)
    chains, layers_of, widths = _with_bends(sizes, edges, layers_of)
    links = sorted({pair for chain in chains for pair in zip(chain, chain[1:], strict=False)})
    above: dict[int, list[int]] = defaultdict(list)
    below: dict[int, list[int]] = defaultdict(list)
    for upper, lower in links:
        above[lower].append(upper)
        below[upper].append(lower)
    layers: list[list[int]] = [[] for _ in range(max(layers_of, default=-1) + 1)]
    for node, layer in enumerate(layers_of):
        layers[layer].append(node)
    layers = _ordered(layers, above, below)
    xs = _columns(layers, above, below, widths, len(sizes))
    ys, height = _rows(layers, [h for _, h in sizes])
    left = min((xs[n] - widths[n] / 2 for n in range(len(widths))), default=0.0)
    right = max((xs[n] + widths[n] / 2 for n in range(len(widths))), default=0.0)
    centers = [(xs[n] - left, ys[layers_of[n]]) for n in range(len(sizes))]
    depths = [max((sizes[n][1] for n in layer if n < len(sizes)), default=0.0) for layer in layers]
    curves = []
    for chain in chains:
        ends = {chain[0]: sizes[chain[0]][1] / 2, chain[-1]: -sizes[chain[-1]][1] / 2}
        points: list[tuple[float, float]] = []
        for node in chain:  # straight down beside the boxes of each layer
            x, y, half = xs[node] - left, ys[layers_of[node]], depths[layers_of[node]] / 2
            rows = [y - half, y + half]
            if node in ends:
                rows = sorted({y + ends[node], y + half if node == chain[0] else y - half})
            points += ((x, row) for row in rows)
        curves.append(points)
    return Layout(centers, curves, right - left, height)


def _layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The layer of every node: below all operands; nodes without operands right above their first user."""
    layers = [0] * count
    operands: list[int] = [0] * count
    users: dict[int, list[int]] = defaultdict(list)
    for source, user in edges:
        if source >= user:
            raise ValueError(f"edge {source} -> {user} does not lead to a higher index")
        users[source].append(user)
        operands[user] += 1
    for node in range(count):
        for user in users[node]:
            layers[user] = max(layers[user], layers[node] + 1)
    for node in range(count):
        if not operands[node] and users[node]:
            layers[node] = min(layers[user] for user in users[node]) - 1
    return layers


def _with_bends(
    sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]], layers: Sequence[int]
) -> tuple[list[list[int]], list[int], list[float]]:
    """Give edges a bend in every layer they pass; edges of one source share their bends.

    Returns the chain of nodes and bends of every edge, and the layers and widths of both.
    """
    all_layers, widths = list(layers), [w for w, _ in sizes]
    bends: dict[tuple[int, int], int] = {}
    chains = []
    for source, user in edges:
        chain = [source]
        for layer in range(layers[source] + 1, layers[user]):
            if (source, layer) not in bends:
                bends[source, layer] = len(all_layers)
                all_layers.append(layer)
                widths.append(0.0)
            chain.append(bends[source, layer])
        chains.append([*chain, user])
    return chains, all_layers, widths


def _ordered(layers: list[list[int]], above: dict[int, list[int]], below: dict[int, list[int]]) -> list[list[int]]:
    """Sort each layer by the mean place of neighbours, down and up in turn; the order with the fewest crossings."""
    best, fewest = layers, _crossings(layers, below)
    for sweep in range(_ORDER_SWEEPS):
        if not fewest:
            break
        neighbours = below if sweep % 2 else above
        layers = [*layers]
        indices = range(len(layers) - 2, -1, -1) if sweep % 2 else range(1, len(layers))
        for index in indices:
            fixed = {n: k for k, n in enumerate(layers[index + 1 if sweep % 2 else index - 1])}
            keys = {}
            for k, node in enumerate(layers[index]):
                near = [fixed[m] for m in neighbours[node]]
                keys[node] = sum(near) / len(near) if near else k
            layers[index] = sorted(layers[index], key=keys.__getitem__)
        count = _crossings(layers, below)
        if count < fewest:
            best, fewest = layers, count
    return best


def _crossings(layers: list[list[int]], below: dict[int, list[int]]) -> int:
    count = 0
    for upper, lower in zip(layers, layers[1:], strict=False):
        place = {n: k for k, n in enumerate(lower)}
        seen: list[int] = []  # places of ends of the edges so far, sorted
        for node in upper:
            ends = sorted(place[m] for m in below[node])
            count += sum(len(seen) - bisect_right(seen, end) for end in ends)
            seen = sorted(seen + ends)
    return count


def _columns(
    layers: list[list[int]], above: dict[int, list[int]], below: dict[int, list[int]], widths: list[float], nodes: int
) -> list[float]:
    """The x of every node and bend: near the medians of neighbours, at least the gaps apart."""
    xs = [0.0] * len(widths)
    offsets: list[list[float]] = []  # of each layer: how far to the right of its first node the order puts a node
    for layer in layers:
        at, row = 0.0, [0.0]
        for left, right in zip(layer, layer[1:], strict=False):
            gap = NODE_GAP if left < nodes and right < nodes else BEND_GAP
            at += (widths[left] + widths[right]) / 2 + gap
            row.append(at)
        offsets.append(row)
        for node, x in zip(layer, row, strict=False):
            xs[node] = x - at / 2
    for sweep in range(_PLACE_SWEEPS):
        neighbours = [above, below][sweep % 2]
        order = range(len(layers)) if sweep % 2 == 0 else range(len(layers) - 1, -1, -1)
        for index in order:
            layer, row = layers[index], offsets[index]
            wanted, weights = [], []
            for node, offset in zip(layer, row, strict=False):
                near = neighbours[node]
                wanted.append(_median([xs[m] for m in near] or [xs[node]]) - offset)
                straight = node >= nodes and any(m >= nodes for m in near)
                weights.append(_BEND_WEIGHT if straight else 1.0)
            for node, offset, x in zip(layer, row, _isotonic(wanted, weights), strict=False):
                xs[node] = x + offset
    return xs


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _isotonic(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The non-decreasing sequence nearest to `values` by weighted least squares (pool adjacent violators)."""
    pools: list[tuple[float, float, int]] = []  # mean, weight, length
    for value, weight in zip(values, weights, strict=True):
        pool = (value, weight, 1)
        while pools and pools[-1][0] > pool[0]:
            mean, mass, length = pools.pop()
            total = mass + pool[1]
            pool = ((mean * mass + pool[0] * pool[1]) / total, total, length + pool[2])
        pools.append(pool)
    return [mean for mean, _, length in pools for _ in range(length)]


def _rows(layers: list[list[int]], heights: list[float]) -> tuple[list[float], float]:
    ys, at = [], 0.0
    for layer in layers:
        height = max((heights[n] for n in layer if n < len(heights)), default=0.0)
        ys.append(at + height / 2)
        at += height + LAYER_GAP
    return ys, max(at - LAYER_GAP, 0.0)

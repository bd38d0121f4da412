"""Pictures of a graph as SVG or for Graphviz: operators as boxes from top to bottom, values as curves between them.

Takes graphs of the form that docs/report-format.md gives. Python alone draws them: Graphviz is not always installed,
and the layouts that are packages for Python are unmaintained, or under licenses that do not fit this project's.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from importlib import resources
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from mlcc.report.layered_layout import layered_layout

MARGIN = 16.0
_CHARACTER = 6.7  # pixels, of the font in assets/graph.css
_LINE = 15.0
_PADDING = 9.0
_LONGEST_LINE = 34  # characters
_MOST_INPUTS = 6  # boxes of inputs that are drawn in any case
_LONGEST_EDGE = 48  # layers; a value that is used farther away is drawn once more beside its user


@dataclass(frozen=True)
class Box:
    """A box of the picture: one node of the graph, a group of them, or a reference to one far above.

    `kind`: that of the node, "group" or "reference". `nodes`: the ids of all that it stands for. `parameters`: ids of
    the operands that have no boxes: constants, and weights that are inputs.
    """

    kind: str
    lines: tuple[str, ...]
    nodes: tuple[int, ...]
    parameters: tuple[int, ...] = ()

    @property
    def size(self) -> tuple[float, float]:
        return max(map(len, self.lines)) * _CHARACTER + 2 * _PADDING, len(self.lines) * _LINE + 2 * _PADDING - 4


@dataclass(frozen=True)
class Picture:
    """Boxes in topological order, and edges between their indices with the shape of the value."""

    boxes: tuple[Box, ...]
    edges: tuple[tuple[int, int, str], ...]


def svg(graph: Mapping[str, Any], *, depth: int | None = None, alone: bool = True) -> str:
    """Draw a graph.

    depth: draw one box for consecutive operators whose module paths share their first `depth` parts; None: all boxes.
    alone: with its styles, as a file; else as part of a page that has them.
    """
    drawn = picture(graph, depth)
    layout = layered_layout([box.size for box in drawn.boxes], [(a, b) for a, b, _ in drawn.edges])
    width, height = layout.width + 2 * MARGIN, layout.height + 2 * MARGIN
    title = graph.get("function") or "graph"
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="graph" viewBox="0 0 {_number(width)} {_number(height)}"'
        + (f' width="{_number(width)}" height="{_number(height)}"' if alone else "")
        + f' role="img" aria-label={_attribute(f"graph of {title}")}>'
    ]
    if alone:
        out.append(f"<title>{_text(title)}</title><style>{style()}</style>")
        out.append('<rect class="paper" width="100%" height="100%"/>')
    out.append(f'<g class="scene" transform="translate({_number(MARGIN)} {_number(MARGIN)})">')
    for (source, user, shape), points in zip(drawn.edges, layout.curves, strict=True):
        ends = f'data-from="{drawn.boxes[source].nodes[-1]}" data-to="{drawn.boxes[user].nodes[0]}"'
        hint = f"<title>{_text(shape)}</title>" if shape else ""
        out.append(f'<path class="edge" {ends} d="{_curve(points)}">{hint}</path>')
    for box, center in zip(drawn.boxes, layout.centers, strict=True):
        out.append("".join(_box(box, center)))
    out.append("</g></svg>")
    return "\n".join(out) + "\n"


def dot(graph: Mapping[str, Any], *, depth: int | None = None) -> str:
    """Return a graph in the language of Graphviz: the boxes and edges that `svg` draws."""
    drawn = picture(graph, depth)
    out = [f"digraph {_quoted(graph.get('function') or 'graph')} {{", '  node [shape=box, fontname="monospace"];']
    for k, box in enumerate(drawn.boxes):
        shape = {"call": "", "group": ", penwidth=2", "reference": ", style=dashed"}.get(box.kind, ", style=rounded")
        out.append(f"  n{k} [label={_quoted(*box.lines)}{shape}];")
    for source, user, text in drawn.edges:
        out.append(f"  n{source} -> n{user} [tooltip={_quoted(text)}];")
    return "\n".join([*out, "}"]) + "\n"


def _quoted(*lines: str) -> str:
    """The lines as a string of Graphviz."""
    escaped = (_printable(line).replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return '"' + "\\n".join(line.replace("\n", " ") for line in escaped) + '"'


def style() -> str:
    """The style sheet of a picture that stands alone, in light and dark, without functions that few viewers know."""
    sheet = (resources.files("mlcc.report") / "assets" / "graph.css").read_text(encoding="utf-8")
    light, dark = (re.sub(r"light-dark\((#\w+), (#\w+)\)", rf"\{k}", sheet) for k in (1, 2))
    return f"{light}@media (prefers-color-scheme: dark) {{\n{dark}}}\n"


def count_boxes(graph: Mapping[str, Any], depth: int | None = None) -> int:
    """How many boxes `svg` draws."""
    return len(picture(graph, depth).boxes)


def depths(graph: Mapping[str, Any]) -> list[int]:
    """The depths of module paths at which a picture has fewer boxes than the next deeper one, smallest first."""
    deepest = max((len(_path(node)) for node in graph["nodes"]), default=0)
    counts = [len(picture(graph, depth).boxes) for depth in range(1, min(deepest, 6) + 1)]
    counts.append(len(picture(graph, None).boxes))
    return [depth for depth, (here, next_) in enumerate(zip(counts, counts[1:], strict=False), 1) if here < next_]


def picture(graph: Mapping[str, Any], depth: int | None = None) -> Picture:
    """Return what is drawn of a graph: see `svg`."""
    nodes = {node["id"]: node for node in graph["nodes"]}
    edges = [(a, b) for a, b in graph["edges"] if a in nodes and b in nodes and a != b]
    hidden = _parameters(nodes, edges)
    shown = [n for n in _topological(list(nodes), edges) if n not in hidden]
    parameters: dict[int, list[int]] = defaultdict(list)
    for source, user in edges:
        if source in hidden:
            parameters[user].append(source)
    boxes: list[Box] = []
    index: dict[int, int] = {}
    for group in _groups([nodes[n] for n in shown], depth):
        ids = [node["id"] for node in group]
        index |= dict.fromkeys(ids, len(boxes))
        box = _node_box(group[0]) if len(group) == 1 else _group_box(group, depth or 0)
        own = sorted({p for n in ids for p in parameters[n]})
        if own and box.kind == "call":
            box = replace(box, lines=(*box.lines, _with([str(nodes[p]["name"]) for p in own])))
        boxes.append(replace(box, parameters=tuple(own)))
    links: dict[tuple[int, int], str] = {}
    for source, user in edges:
        if source in index and user in index and index[source] < index[user]:
            links.setdefault((index[source], index[user]), str(nodes[source].get("shape") or ""))
    return _without_long_edges(boxes, [(a, b, shape) for (a, b), shape in sorted(links.items())])


def _parameters(nodes: Mapping[int, Mapping[str, Any]], edges: list[tuple[int, int]]) -> set[int]:
    """The nodes that are named in the boxes of their users: constants, and inputs that look like weights.

    An input looks like a weight if it has one user, which has an operand that is computed. Few inputs are all drawn.
    """
    operands: dict[int, list[int]] = defaultdict(list)
    users: dict[int, list[int]] = defaultdict(list)
    for source, user in edges:
        operands[user].append(source)
        users[source].append(user)
    constants = {n for n in nodes if nodes[n]["kind"] == "constant" and users[n]}
    inputs = [n for n in nodes if nodes[n]["kind"] == "input"]
    if len(inputs) <= _MOST_INPUTS:
        return constants
    computed = {n for n in nodes if operands[n]}
    return constants | {n for n in inputs if len(users[n]) == 1 and computed & set(operands[users[n][0]])}


def _topological(nodes: list[int], edges: list[tuple[int, int]]) -> list[int]:
    """Nodes after their operands, otherwise in the given order (Kahn's algorithm); those on cycles come last."""
    position = {node: k for k, node in enumerate(nodes)}
    users: dict[int, list[int]] = defaultdict(list)
    missing = dict.fromkeys(nodes, 0)
    for source, user in edges:
        users[source].append(user)
        missing[user] += 1
    ready = [position[n] for n in nodes if not missing[n]]
    heapify(ready)
    done: dict[int, None] = {}
    while ready:
        node = nodes[heappop(ready)]
        done[node] = None
        for user in users[node]:
            missing[user] -= 1
            if not missing[user]:
                heappush(ready, position[user])
    return [*done, *(n for n in nodes if n not in done)]


def _path(node: Mapping[str, Any]) -> list[str]:
    path = node.get("path") or ""
    return path.split(".") if path else []


def _groups(nodes: list[dict[str, Any]], depth: int | None) -> Iterator[list[dict[str, Any]]]:
    """Runs of calls with one prefix of their paths. Runs of a topological order never make a cycle."""
    group: list[dict[str, Any]] = []
    for node in nodes:
        prefix = _path(node)[:depth] if depth is not None and node["kind"] == "call" else []
        if group and not (prefix and prefix == _path(group[0])[:depth]):
            yield group
            group = []
        group.append(node)
    if group:
        yield group


def _node_box(node: Mapping[str, Any]) -> Box:
    kind = node["kind"] if node["kind"] in ("input", "constant", "call", "output") else "call"
    lines = [node["name"] if kind in ("input", "constant") else node.get("op") or node["name"]]
    if node.get("shape"):
        lines.append(f"{node['shape']} {node.get('dtype') or ''}".strip())
    if kind == "call" and (node.get("path") or node["name"]):
        lines.append(node.get("path") or node["name"])
    return Box(kind, tuple(map(_shortened, lines)), (node["id"],))


def _group_box(group: list[dict[str, Any]], depth: int) -> Box:
    lines = (".".join(_path(group[0])[:depth]), f"{len(group)} operators", str(group[-1].get("shape") or ""))
    return Box("group", tuple(_shortened(line) for line in lines if line), tuple(node["id"] for node in group))


def _shortened(line: str) -> str:
    return line if len(line) <= _LONGEST_LINE else line[: _LONGEST_LINE // 2] + "…" + line[1 - _LONGEST_LINE // 2 :]


def _with(names: list[str]) -> str:
    """Name parameters, as many as fit."""
    line = f"with {names[0]}"
    for k, name in enumerate(names[1:], 1):
        rest = f", {len(names) - k} more"
        if len(line) + len(name) + 2 + (len(rest) if k + 1 < len(names) else 0) > _LONGEST_LINE:
            return _shortened(line) + rest
        line += f", {name}"
    return _shortened(line)


def _without_long_edges(boxes: list[Box], edges: list[tuple[int, int, str]]) -> Picture:
    """Cut edges that would pass too many layers: a reference to the value stands beside the user instead."""
    layers = [0] * len(boxes)
    for source, user, _ in edges:
        layers[user] = max(layers[user], layers[source] + 1)
    first_user = dict.fromkeys(range(len(boxes)), len(layers))
    for source, user, _ in edges:
        first_user[source] = min(first_user[source], layers[user])
    users = {user for _, user, _ in edges}
    for k in range(len(boxes)):
        if k not in users and first_user[k] < len(layers):
            layers[k] = first_user[k] - 1
    drawn: list[Box] = []
    index: dict[int, int] = {}
    kept = []
    far = defaultdict(list)
    for source, user, shape in edges:
        if layers[user] - layers[source] > _LONGEST_EDGE:
            far[user].append((source, shape))
    for k, box in enumerate(boxes):
        for source, shape in far[k]:
            kept.append((len(drawn), -k - 1, shape))
            drawn.append(Box("reference", ("↑ " + boxes[source].lines[0],), boxes[source].nodes))
        index[k] = len(drawn)
        drawn.append(box)
    links = [(a, index[-b - 1], shape) for a, b, shape in kept]
    links += [(index[a], index[b], shape) for a, b, shape in edges if layers[b] - layers[a] <= _LONGEST_EDGE]
    return Picture(tuple(drawn), tuple(sorted(links)))


def _box(box: Box, center: tuple[float, float]) -> Iterator[str]:
    width, height = box.size
    x, y = center[0] - width / 2, center[1] - height / 2
    ids = " ".join(map(str, box.nodes))
    parameters = f' data-parameters="{" ".join(map(str, box.parameters))}"' if box.parameters else ""
    yield f'<g class="box {box.kind}" data-nodes="{ids}"{parameters} transform="translate({_number(x)} {_number(y)})">'
    radius = 5 if box.kind in ("call", "group") else height / 2
    yield f'<rect width="{_number(width)}" height="{_number(height)}" rx="{_number(radius)}"/>'
    for k, line in enumerate(box.lines):
        role = ["name", "shape", "path"][min(k, 2)]
        at = _PADDING + 9 + k * _LINE
        yield f'<text class="{role}" x="{_number(width / 2)}" y="{_number(at)}">{_text(line)}</text>'
    yield "</g>"


def _curve(points: list[tuple[float, float]]) -> str:
    """A smooth curve through the points, vertical at each."""
    (x, y), *rest = points
    parts = [f"M{_number(x)} {_number(y)}"]
    for to_x, to_y in rest:
        if abs(to_x - x) < 0.05:
            parts.append(f"V{_number(to_y)}")
        else:
            middle = (y + to_y) / 2
            parts.append(
                f"C{_number(x)} {_number(middle)} {_number(to_x)} {_number(middle)} {_number(to_x)} {_number(to_y)}"
            )
        x, y = to_x, to_y
    return "".join(parts)


def _number(value: float) -> str:
    return f"{round(value, 1) + 0.0:g}" if abs(value) < 1e5 else f"{value:.0f}"


def _text(text: object) -> str:
    return escape(_printable(str(text)))


def _attribute(text: str) -> str:
    return quoteattr(_printable(text))


def _printable(text: str) -> str:
    """The text without characters that XML does not have."""
    return "".join(c if c.isprintable() or c in "\t\n" else "\N{REPLACEMENT CHARACTER}" for c in text)

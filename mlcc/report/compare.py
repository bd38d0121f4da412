"""The difference of two reports: nodes of the graph, kernels with the time gained and lost, sizes, manifests."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from mlcc.report.manifest_diff import ABSENT, compare_manifests
from mlcc.report.stages import SOURCE

Node = Mapping[str, Any]
_SHOWN = ("shape", "dtype", "op", "kind")  # what makes a node another one
_TEXTS = ("tir", "scheduled", "script", "loops", "assembly")


def compare_reports(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    """Return both reports and their difference, as docs/report-format.md describes it."""
    pairs = match_nodes(_nodes(left), _nodes(right))
    return {
        "format": left["format"],
        "a": dict(left),
        "b": dict(right),
        "diff": {
            "graph": _graph_difference(left, right, pairs),
            "kernels": _kernel_differences(left, right, pairs),
            "manifest": [
                {"path": d.path, "left": _entry(d.left), "right": _entry(d.right)}
                for d in compare_manifests(left["manifest"], right["manifest"])
            ],
            "total": {
                "seconds": [_seconds(left), _seconds(right)],
                "code": [left["sizes"]["code"], right["sizes"]["code"]],
                "artifact": [left["sizes"]["artifact"], right["sizes"]["artifact"]],
                "workspace": [_workspace(left), _workspace(right)],
            },
        },
    }


def _entry(value: Any) -> Any:
    return None if value is ABSENT else value


def _nodes(report: Mapping[str, Any]) -> list[tuple[str, Node]]:
    """Return the nodes of the source with the functions that they are in."""
    return [(g["function"], node) for g in report["graphs"] if g["stage"] == SOURCE for node in g["nodes"]]


def _seconds(report: Mapping[str, Any]) -> float | None:
    return None if report["profile"] is None else report["profile"]["seconds"]


def _workspace(report: Mapping[str, Any]) -> int | None:
    """Return the sum of the workspaces of all functions; None if one is unknown."""
    sizes = [plan["workspace"] for plan in report["memory"]] or [*report["sizes"]["workspaces"].values()]
    return None if None in sizes else sum(sizes)


# ---------------------------------------------------------------- graphs


def match_nodes(left: Sequence[tuple[str, Node]], right: Sequence[tuple[str, Node]]) -> list[tuple[Node, Node]]:
    """Match the nodes of two graphs: those of one module path and operation first, then by the longest common
    subsequence of operations in order, then by name, as a layer keeps its name where its operation changes."""
    pairs: list[tuple[Node, Node]] = []
    rest = [list(left), list(right)]

    def take(found: list[tuple[int, int]]) -> None:
        pairs.extend((rest[0][i][1], rest[1][j][1]) for i, j in found)
        for side, used in enumerate(zip(*found, strict=True)):
            taken = set(used)
            rest[side] = [node for at, node in enumerate(rest[side]) if at not in taken]

    for key in (_path_key, _name_key):
        take(_by_unique_key([key(*n) for n in rest[0]], [key(*n) for n in rest[1]]))
    keys = [[(function, node["kind"], node["op"]) for function, node in side] for side in rest]
    blocks = difflib.SequenceMatcher(None, keys[0], keys[1], autojunk=False).get_matching_blocks()
    take([(b.a + n, b.b + n) for b in blocks for n in range(b.size)])
    take(_by_unique_key(*([(function, node["name"]) for function, node in side] for side in rest)))
    return sorted(pairs, key=lambda pair: int(pair[0]["id"]))


def _path_key(function: str, node: Node) -> Any:
    return (function, node["path"], node["op"]) if node["path"] else None


def _name_key(function: str, node: Node) -> Any:
    return (function, node["name"], node["op"], node["shape"], node["dtype"])


def _by_unique_key(left: Sequence[Any], right: Sequence[Any]) -> list[tuple[int, int]]:
    """Return the positions of equal keys that both sides have once; None is no key."""
    places = [{key: at for at, key in enumerate(side) if key is not None and side.count(key) == 1}
              for side in (list(left), list(right))]  # fmt: skip
    return [(at, places[1][key]) for key, at in places[0].items() if key in places[1]]


def _graph_difference(
    left: Mapping[str, Any], right: Mapping[str, Any], pairs: Sequence[tuple[Node, Node]]
) -> dict[str, Any]:  # fmt: skip
    same: list[list[int]] = []
    changed: list[list[int]] = []
    for a, b in pairs:
        (same if all(a[key] == b[key] for key in _SHOWN) else changed).append([a["id"], b["id"]])
    used = [{pair[side]["id"] for pair in pairs} for side in (0, 1)]
    return {
        "same": same,
        "changed": changed,
        "removed": [node["id"] for _, node in _nodes(left) if node["id"] not in used[0]],
        "added": [node["id"] for _, node in _nodes(right) if node["id"] not in used[1]],
    }


# ---------------------------------------------------------------- kernels


def _kernel_differences(
    left: Mapping[str, Any], right: Mapping[str, Any], pairs: Sequence[tuple[Node, Node]]
) -> list[dict[str, Any]]:  # fmt: skip
    """Return an entry for each kernel of the left report, and one for each that only the right one has."""
    matched = _match_kernels(left, right, pairs)
    others = {kernel["name"]: kernel for kernel in right["kernels"]}
    entries = []
    for kernel in left["kernels"]:
        other = others.get(matched.get(kernel["name"], ""))
        entries.append(_kernel_entry(kernel, other, left["texts"], right["texts"]))
    known = set(matched.values())
    entries += [
        _kernel_entry(None, kernel, left["texts"], right["texts"])
        for kernel in right["kernels"]
        if kernel["name"] not in known
    ]
    return entries


def _match_kernels(
    left: Mapping[str, Any], right: Mapping[str, Any], pairs: Sequence[tuple[Node, Node]]
) -> dict[str, str]:  # fmt: skip
    """Return the names of the right kernels by those of the left: the same where both have it and it computes matched
    nodes, or has none; for others the one that computes most of the nodes matched with theirs."""
    partners = {a["id"]: b["id"] for a, b in pairs}
    owners: dict[int, list[str]] = {}
    for kernel in right["kernels"]:
        for node in kernel["nodes"]:
            owners.setdefault(node, []).append(kernel["name"])
    names = {kernel["name"] for kernel in right["kernels"]}
    candidates = {
        kernel["name"]: [name for node in kernel["nodes"] for name in owners.get(partners.get(node, -1), ())]
        for kernel in left["kernels"]
    }
    found = {name: name for name, there in candidates.items() if name in names and (not there or name in there)}
    for name, there in candidates.items():
        free = [other for other in there if other not in found.values()]
        if name not in found and free:
            found[name] = max(dict.fromkeys(free), key=free.count)
    return found


def _kernel_entry(
    left: Mapping[str, Any] | None, right: Mapping[str, Any] | None, texts: Mapping[str, str],
    other_texts: Mapping[str, str],
) -> dict[str, Any]:  # fmt: skip
    either = left or right or {}
    what: list[str] = []
    if left is not None and right is not None:
        what = [key for key in ("rule", "choices", "code_bytes") if left[key] != right[key]]
        what += [key for key in _TEXTS if texts.get(left[key]) != other_texts.get(right[key])]
        change = "changed" if what else "same"
    else:
        change = "removed" if right is None else "added"
    values = {
        key: [None if left is None else left[key], None if right is None else right[key]]
        for key in ("seconds", "code_bytes")
    }
    other = None if left is None or right is None else right["name"]
    return {"name": either["name"], "other": other, "change": change, "what": what, **values}

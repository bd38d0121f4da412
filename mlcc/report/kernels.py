"""The kernels of a build: their TIR by stage, their schedules, and the nodes of the source's graph they compute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mlcc.backends import facts_of
from mlcc.errors import CompileError, Span
from mlcc.ir import relax, tir
from mlcc.ir.module import Func, IRModule
from mlcc.ir.node import find
from mlcc.ir.versions import cpu_of, version_names
from mlcc.machine.target import Target
from mlcc.passes.auto_schedule.apply_rules import RuleOutcome, schedule_module
from mlcc.passes.auto_schedule.version_sizes import versioned_functions
from mlcc.passes.lowering.versions import function_facts
from mlcc.relax.queries import all_bindings, tir_callee
from mlcc.report.assembly import Listing
from mlcc.report.graphs import Graph, GraphNode, line_of
from mlcc.report.loops import LoweredText
from mlcc.report.measured import UNMEASURED
from mlcc.report.stages import Stages, function_text
from mlcc.report.texts import Texts
from mlcc.tune.roofline import operations, traffic

# of a kernel of which only the code is known
UNKNOWN: dict[str, Any] = {
    "calls": None, "lines": [], "version_of": None, "cpu": None, "nodes": [], "tir": None, "scheduled": None,
    "script": None, "rule": None, "why": "", "choices": [], "refused": [], "loops": None, "flops": None, "bytes": None,
    "launches": [],
}  # fmt: skip


def kernel_data(
    stages: Stages, target: Target, texts: Texts, graphs: Sequence[Graph], lowered: LoweredText,
    sizes: Mapping[str, int],
) -> list[dict[str, Any]]:  # fmt: skip
    """Return what is known of each kernel before it runs, in the order of the module.

    `graphs` are those of the source; their nodes get the names of kernels. `sizes` are the values of symbols
    by name, with which work is counted.
    """
    calls = _calls(stages.lowered)
    outcomes = schedule_outcomes(stages, target)
    members = _members(graphs, calls)
    versions = {v: name for name, f in stages.lowered.functions.items() for v in version_names(f)}
    kernels = []
    for name in kernel_names(stages.lowered):
        func = stages.lowered[name]
        before = stages.function_at(stages.unscheduled, name)
        after = stages.function_at(stages.blocks, name)
        first_name = name if before is None else before[0]
        outcome = outcomes.get(first_name)
        sites = calls.get(versions.get(name, name), [])
        for node in members.get(name, ()):
            node.kernel = node.kernel or name
        work = None if before is None else count_work(before[1], sizes)
        kernels.append({
            "name": name,
            "calls": len(sites),
            "lines": _lines(sites, func),
            "version_of": versions.get(name),
            "cpu": cpu_of(func),
            "nodes": [node.id for node in members.get(versions.get(name, name), ())],
            "tir": None if before is None else texts.add(function_text(*before)),
            "scheduled": None if after is None or after == before else texts.add(function_text(*after)),
            "script": None if outcome is None else _script(outcome, texts),
            "rule": None if outcome is None else outcome.rule,
            "why": "" if outcome is None else outcome.why,
            "choices": [] if outcome is None else list(outcome.choices),
            "refused": [] if outcome is None else [list(pair) for pair in outcome.passed],
            "loops": texts.add(lowered.of_kernel(name).text),
            "flops": None if work is None else work[0],
            "bytes": None if work is None else work[1],
            "launches": lowered.members(name)[1:],
            **UNMEASURED,
        })  # fmt: skip
    return kernels


def kernel_names(module: IRModule) -> list[str]:
    """Return the PrimFuncs that are kernels of their own: all but those that only another PrimFunc calls."""
    launched = {
        op.name
        for func in module.functions.values()
        if isinstance(func, tir.PrimFunc)
        for op in find(func.body, relax.GlobalVar)
    }
    return [
        name
        for name, func in module.functions.items()
        if isinstance(func, tir.PrimFunc) and not (func.is_private and name in launched)
    ]


def schedule_outcomes(stages: Stages, target: Target) -> dict[str, RuleOutcome]:
    """Return which rule schedules each function, and why; none if the pipeline has no `auto-schedule`."""
    module = stages.module_before("auto-schedule")
    if module is None:
        return {}
    try:
        facts_of(target)
    except CompileError:
        return {}
    outcomes = {o.name: o for o in schedule_module(module, lambda func: function_facts(func, target))}
    unversioned = stages.module_before("version-sizes")
    versioned = [] if unversioned is None else versioned_functions(unversioned, target)
    return outcomes | {o.name: o for o in versioned if o.name in outcomes and outcomes[o.name].func is None}


def count_work(func: Any, sizes: Mapping[str, int]) -> tuple[int, int] | None:
    """Return the floating-point operations and the compulsory traffic in bytes of a call; None if unknown."""
    if not isinstance(func, tir.PrimFunc):
        return None
    shapes = [var for b in func.buffers if b is not None for n in b.shape for var in find(n, tir.Var)]
    values = {var: sizes[var.name] for var in shapes if var.name in sizes}
    if any(var not in values for var in shapes):
        return None
    count = operations(func, values)
    return None if count is None else (count, traffic(func, values))


def add_assembly(
    kernel: dict[str, Any], lowered: LoweredText, listings: Mapping[str, Listing], texts: Texts
) -> None:  # fmt: skip
    """Add the code of a kernel, and the lines of its loops and of the source that the lines of the code come from."""
    loops = lowered.of_kernel(kernel["name"])
    code = Listing()
    for member in lowered.members(kernel["name"]):
        if member in listings and (member == kernel["name"] or lowered.reread[member].is_private):
            code.extend(listings[member])
    table = []
    for number, place in enumerate(code.places, 1):
        line = loops.lines.get(place) if place is not None else None
        if line is not None:
            table.append([number, line, loops.sources.get(line, kernel["lines"])])
    kernel["assembly"] = texts.add(code.text) if code.lines else None
    kernel["line_table"] = table


def _script(outcome: RuleOutcome, texts: Texts) -> str | None:
    if outcome.trace is None:
        return None
    return texts.add(
        "\n".join(["def schedule(sch):", *("    " + l for l in outcome.trace.as_python(defaults=False))]) + "\n"
    )


def _calls(module: IRModule) -> dict[str, list[relax.Binding]]:
    """Return the bindings that call each PrimFunc."""
    calls: dict[str, list[relax.Binding]] = {}
    for func in module.functions.values():
        for binding, _ in all_bindings(func.body) if isinstance(func, relax.Function) else ():
            name = tir_callee(getattr(binding, "value", None))
            if name is not None:
                calls.setdefault(name, []).append(binding)
    return calls


def _lines(sites: Sequence[relax.Binding], func: Func) -> list[int]:
    """Return the lines of the source that call a kernel; of one that nothing calls where it is itself."""
    spans = [getattr(binding, "value", binding).span or binding.span for binding in sites] or [func.span]
    return sorted({line for span in spans if (line := line_of(span)) is not None})


# ---------------------------------------------------------------- nodes of the source


def _members(graphs: Sequence[Graph], calls: Mapping[str, list[relax.Binding]]) -> dict[str, list[GraphNode]]:
    """Return the nodes of the source that each kernel computes.

    Calls keep the place of the operation whose result they have. So a kernel has the nodes from there back to the
    results of other kernels; what follows from constants alone is computed at compile time.
    """
    by_place = {_key(span): node for graph in graphs for node in graph.nodes for span in node.spans[::-1]}
    named = dict.fromkeys(n.kernel for g in graphs for n in g.nodes if n.kernel is not None)
    roots: dict[GraphNode, list[str]] = {}  # several kernels may come from one operation, the last has its result
    for name, bindings in calls.items():
        for binding in bindings:
            for span in (binding.span, getattr(binding, "value", binding).span):
                node = by_place.get(_key(span)) if span is not None else None
                if node is not None and name not in roots.setdefault(node, []):
                    roots[node].append(name)
    members: dict[str, list[GraphNode]] = {}
    for graph in graphs:
        sources: dict[int, list[int]] = {}
        for start, end in graph.edges:
            sources.setdefault(end, []).append(start)
        known = {node.id: node for node in graph.nodes}
        for root in graph.nodes:
            for name in roots.get(root, ()):
                members.setdefault(name, []).extend(_closure(root, sources, known, roots))
    for name in named:  # PrimFuncs, and calls of them that the source has already
        members.setdefault(name, [n for g in graphs for n in g.nodes if n.kernel == name])
    return {name: sorted(set(nodes), key=lambda node: node.id) for name, nodes in members.items()}


def _closure(
    root: GraphNode,
    sources: Mapping[int, Sequence[int]],
    known: Mapping[int, GraphNode],
    roots: Mapping[GraphNode, list[str]],
) -> Iterator[GraphNode]:
    seen = {root.id}
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        for id in sources.get(node.id, ()):
            source = known[id]
            stops = source in roots and not {*roots[source]} & {*roots[root]}
            if source.kind == "call" and not source.is_function and id not in seen and not stops:
                seen.add(id)
                waiting.append(source)


def _key(span: Span) -> tuple[int, int]:
    return span.start, span.end

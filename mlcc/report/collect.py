"""Everything that a report shows of one compilation, as plain data: `collect`. See docs/report-format.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import mlcc
from mlcc.driver import build
from mlcc.errors import Source, Span
from mlcc.ir.module import IRModule
from mlcc.ir.node import walk
from mlcc.machine.target import Target
from mlcc.passes.graph.normalize import Normalize
from mlcc.passes.manage.levels import level_of
from mlcc.passes.manage.manager import Observer, PassContext
from mlcc.report.assembly import Listing, c_listing, kernel_listings, ptx_listings
from mlcc.report.decisions import FusionDecisions, memory_decisions, schedule_decisions
from mlcc.report.graphs import GraphBuilder
from mlcc.report.kernels import add_assembly, kernel_data
from mlcc.report.loops import LoweredText
from mlcc.report.memory import memory_plan
from mlcc.report.sizes import FORMAT, object_sizes, text_sizes
from mlcc.report.stages import SOURCE, Stages
from mlcc.report.texts import Texts
from mlcc.targets.artifact import Artifact


@dataclass(frozen=True)
class Request:
    """What to compile, and how; the options are those of `mlcc.build`. `sizes` are the values of symbols by name, with
    which work is counted."""

    name: str
    module: IRModule
    target: str | Target = "llvm"
    opt_level: int | None = None
    pipeline: str | None = None
    allow_extern: Sequence[str] = ()
    allow_native: bool = True
    db: str | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    observers: Sequence[Observer] = ()


def collect(request: Request) -> dict[str, Any]:
    """Compile a module and return the data of its report. Raises CompileError."""
    target = Target.parse(request.target)
    stages, fusion = Stages(), FusionDecisions()
    artifact = build(
        request.module, target, request.opt_level, request.pipeline, allow_extern=request.allow_extern,
        allow_native=request.allow_native, db=request.db, observers=[stages, fusion, *request.observers],
    )  # fmt: skip
    texts = Texts()
    source = source_of(request.module)
    builder = GraphBuilder()
    first = builder.graphs(Normalize().run(request.module, PassContext(target)), SOURCE)
    final = builder.graphs(stages.stages[stages.blocks].module, "fused")
    lowered = LoweredText(stages.lowered)
    kernels = kernel_data(stages, target, texts, first, lowered, request.sizes)
    manifest = artifact.manifest
    sizes, code = _sizes(artifact, manifest)
    listings = _listings(lowered, request, target)
    for kernel in kernels:
        kernel["code_bytes"] = code.get(kernel["name"])
        add_assembly(kernel, lowered, listings, texts)
    memory = [memory_plan(plan, [p["name"] for p in manifest["packed"]], request.sizes) for plan in artifact.plans]
    return {
        "format": FORMAT,
        "mlcc": mlcc.__version__,
        "title": request.name,
        "target": str(target),
        "level": level_of(request.opt_level),
        "pipeline": manifest["source"]["pipeline"],
        "source": None if source is None else {"name": request.name, "text": texts.add(source.text)},
        "stages": stages.as_data(texts),
        "graphs": [graph.data() for graph in (*first, *final)],
        "kernels": kernels,
        "decisions": [*fusion.found, *schedule_decisions(kernels), *memory_decisions(memory)],
        "memory": memory,
        "sizes": sizes,
        "manifest": manifest,
        "profile": None,
        "texts": texts.table(),
    }


def source_of(module: IRModule) -> Source | None:
    """Return the text that a module was read from; of an imported model a text with a line for each of its nodes."""
    for func in module.functions.values():
        for node in walk(func):
            span: Span | None = node.span
            if span is not None:
                return span.source
    return None


def _listings(lowered: LoweredText, request: Request, target: Target) -> dict[str, Listing]:
    """Return the code of each function that has some, with the lines of the lowered text that it comes from."""
    artifact: Any = build(
        lowered.reread, target, request.opt_level, "", allow_extern=request.allow_extern,
        allow_native=request.allow_native, debug_lines=True,
    )  # fmt: skip
    match target.kind:
        case "llvm":
            return kernel_listings(artifact.emit("asm").decode())
        case "cuda":
            return ptx_listings(artifact.code.text, {n: f.symbol for n, f in artifact.code.kernels.items()})
        case "c":
            return {name: c_listing(text) for name, text in artifact.kernel_texts.items()}
    return {}


def _sizes(artifact: Artifact, manifest: dict[str, Any]) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the sizes of an artifact, and the bytes of the code of each kernel where they are known."""
    content = artifact.emit()
    if manifest["target"]["kind"] == "llvm":
        return object_sizes(content, manifest)
    return text_sizes(content, manifest), {}

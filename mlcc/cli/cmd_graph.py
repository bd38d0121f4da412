"""`mlcc graph model.mlc -o graph.svg|graph.dot`."""

from __future__ import annotations

from typing import Any

import click

from mlcc.cli.options import is_artifact, load_option


@click.command("graph")
@click.argument("file", metavar="FILE")
@click.option("-o", "--output", metavar="FILE", default="-",
              help="The picture (.svg), or a text for Graphviz (.dot, .gv); default: SVG on stdout.")  # fmt: skip
@click.option("--func", metavar="NAME", help="The function to draw (default: main, or the first).")
@click.option("--depth", type=click.IntRange(1), metavar="N",
              help="Draw one box for consecutive operators whose module paths share N parts.")  # fmt: skip
@load_option
def command(file: str, output: str, func: str | None, depth: int | None) -> int:
    """Draw the graph of a function of FILE, a text or a model (.onnx, .pt2), as it is written.

    Boxes have the operator, the shape and dtype of its result, and the module path or the name; constants are named in
    the boxes of their users.
    """
    from mlcc.errors import CompileError, error
    from mlcc.frontend.source import read_module
    from mlcc.machine.target import Target
    from mlcc.outputs import KINDS, Outputs, kind_of
    from mlcc.passes.graph.normalize import Normalize
    from mlcc.passes.manage.manager import PassContext
    from mlcc.report.graph_picture import dot, svg
    from mlcc.report.graphs import GraphBuilder

    if is_artifact(file):
        raise click.UsageError(f"{file} is already compiled and has no graph: name the text")
    outputs = Outputs(watch=True)
    outputs.read(file)
    kind = kind_of(output, (KINDS["svg"], KINDS["dot"]), KINDS["svg"], None)
    outputs.write(output, "-o", kind.name)
    outputs.check()
    module = Normalize().run(read_module(file), PassContext(Target.parse("llvm")))
    graphs: dict[str, Any] = {graph.function: graph.data() for graph in GraphBuilder().graphs(module, "source")}
    name = func or ("main" if "main" in graphs else next(iter(graphs), ""))
    if name not in graphs:
        what = f"no function `{name}` with a graph" if name else "no function with a graph"
        hint = f"name one of {', '.join(graphs)}" if graphs else None
        raise CompileError(error("E0005", f"{file} has {what}", help=hint))
    draw = {"svg": svg, "dot": dot}[kind.name]
    outputs.save({output: draw(graphs[name], depth=depth)})
    return 0

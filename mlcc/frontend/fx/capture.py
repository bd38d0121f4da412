"""`torch.compile` under TVM's names: a backend, and the captured graphs as a module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mlcc.ir.module import IRModule

if TYPE_CHECKING:
    import torch

    from mlcc.passes.manage.manager import Pipeline


def relax_dynamo(pipeline: str | Pipeline | Callable[[IRModule], IRModule] | None = None) -> Callable[..., Any]:
    """A backend for `torch.compile(model, backend=relax_dynamo(...))`.

    `pipeline` runs on each module before it is built: passes as `mlcc.run_passes` takes them, or a function.
    """
    from mlcc.frontend.fx.backend import compile_graph
    from mlcc.frontend.fx.options import Options

    def backend(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return compile_graph(graph, inputs, Options(pipeline=pipeline))

    return backend


def dynamo_capture_subgraphs(
    model: Callable[..., Any], *params: Any, keep_params_as_input: bool = False, **kwargs: Any
) -> IRModule:
    """Call the model under `torch.compile` and return the graphs it captures as functions `subgraph_0`, ...

    Parameters and buffers are bound. With `keep_params_as_input` the parameters follow each function's inputs, and its
    attribute `params` has their values. Raises CompileError that lists everything that cannot be imported.
    """
    import torch

    from mlcc.frontend.aten.module import Options, translate
    from mlcc.frontend.fx.backend import freeze, traced_graph
    from mlcc.frontend.fx.program import program_of

    named = (*model.named_parameters(), *model.named_buffers()) if isinstance(model, torch.nn.Module) else ()
    names = {id(tensor): name for name, tensor in named}
    subgraphs: list[Any] = []

    def capture(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        trace = freeze(traced_graph(graph), inputs, names)
        module = translate(program_of(trace, "captured"), Options(keep_params=keep_params_as_input, unwrap=True))
        name = f"subgraph_{len(subgraphs)}"
        subgraphs.append((name, module["main"].with_attr("global_symbol", name)))
        return graph.forward

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(model, backend=capture)(*params, **kwargs)
    return IRModule(dict(subgraphs))

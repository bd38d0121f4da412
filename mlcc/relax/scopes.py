"""The context managers behind `with bb.function(...)` and `with bb.dataflow()`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mlcc.errors import CompileError, error
from mlcc.ir import relax
from mlcc.ops import values

if TYPE_CHECKING:
    from mlcc.relax.block_builder import BlockBuilder


def misuse_error(message: str, help: str | None = None) -> CompileError:
    """Return the error for calling the builder's methods in an invalid order."""
    return CompileError(error("E0460", message, help=help))


def parameters(value: Any) -> tuple[relax.Var, ...] | None:
    """Return a function's parameters from one variable or several. Raises TypeError for anything else."""
    if value is None:
        return None
    params = (value,) if isinstance(value, relax.Var) else value
    if isinstance(params, relax.Tuple):
        params = params.fields
    if not isinstance(params, (list, tuple)):
        raise TypeError(f"the parameters must be a list of relax.Var, not {values.describe(params)}")
    for param in params:
        if not isinstance(param, relax.Var) or isinstance(param, relax.DataflowVar):
            raise TypeError(f"a parameter must be a relax.Var, not {values.describe(param)}")
        if param.struct_info is None:
            raise TypeError(f"the parameter `{param.name}` needs struct info")
    if len(set(params)) != len(params):
        raise TypeError("the same variable is a parameter twice")
    return tuple(params)


class FunctionScope:
    """A function under construction: its blocks so far."""

    def __init__(
        self, builder: BlockBuilder, name: str, params: Sequence[relax.Var] | None, attrs: Mapping[str, Any], pure: bool
    ) -> None:
        self.builder = builder
        self.name = name
        self.params = None if params is None else tuple(params)
        self.attrs = dict(attrs)
        self.pure = pure
        self.blocks: list[relax.BindingBlock] = []
        self.done = False
        self._depth = 0

    def __enter__(self) -> FunctionScope:
        self._depth = len(self.builder._frames)
        self.builder._functions_open.append(self)
        self.builder.begin_scope(self.params)
        self.builder._begin_binding_block()
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        self.builder._functions_open.pop()
        del self.builder._frames[self._depth :]
        self.builder.end_scope()
        if kind is None and not self.done:
            raise misuse_error(
                f"the function `{self.name}` has no result", help="call emit_func_output inside its `with`"
            )


class DataflowScope:
    """A dataflow block under construction."""

    def __init__(self, builder: BlockBuilder) -> None:
        self.builder = builder

    def __enter__(self) -> DataflowScope:
        builder = self.builder
        if not builder._functions_open or builder._functions_open[-1].done:
            raise misuse_error(
                "a dataflow block must be inside a function", help="open it inside `with bb.function(...)`"
            )
        if builder.current_block_is_dataflow():
            raise misuse_error("dataflow blocks cannot be nested")
        builder._functions_open[-1].blocks.append(builder._end_block())
        builder._begin_dataflow_block()
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        if kind is not None:
            return  # the function's scope cleans up
        builder = self.builder
        builder._functions_open[-1].blocks.append(builder._end_block())
        builder._begin_binding_block()


class TestingScope:
    """A block outside of any function, with symbolic variables that count as known."""

    __test__ = False  # no test class

    def __init__(self, builder: BlockBuilder) -> None:
        self.builder = builder

    def __enter__(self) -> TestingScope:
        self.builder.begin_scope()
        self.builder._begin_dataflow_block()
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        self.builder._end_block()
        self.builder.end_scope()

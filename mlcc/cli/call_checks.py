"""The check of a call's arguments before the passes run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcc.passes.manage.manager import Observer, Pipeline

if TYPE_CHECKING:
    from mlcc.cli.call_arguments import CallArguments
    from mlcc.ir.module import IRModule


class CallCheck(Observer):
    """Check the arguments of a call against the module that the first pass gets."""

    def __init__(self, arguments: CallArguments) -> None:
        self._arguments = arguments

    def start(self, pipeline: Pipeline, module: IRModule) -> None:
        self._arguments.check(module)

"""The arguments of a call that a command makes of code it compiles first: checked before the passes run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlcc.ir.module import IRModule


class CallArguments:
    """The arguments that options give for the call of a function (`choose_inputs`).

    A `pipeline` of the user may change what a function takes, as `bind-params` does: then nothing is checked before the
    function is compiled.
    """

    def __init__(
        self, func: str | None, arrays: Mapping[str, Any], is_random: bool, sizes: Sequence[str],
        ignore_extra: bool = False, pipeline: str | None = None, output: str | None = None,
    ) -> None:  # fmt: skip
        """`output` is the file of the results."""
        self._func = func
        self._arrays = arrays
        self._is_random = is_random
        self._sizes = sizes
        self._ignore_extra = ignore_extra
        self._checks = pipeline is None
        self._output = output
        self._known: tuple[Any, list[Any]] | None = None  # parameters, and arguments for them

    def check(self, module: IRModule) -> None:
        """Check the arguments against the functions of a module that is not compiled yet.

        Raises CompileError for an unknown function (E0005), missing and unknown arrays (E0004), sizes (E0017) and a
        file that cannot hold the results (E0012), and CallError for arrays that do not fit.
        """
        from mlcc.cli.cmd_run import find_function
        from mlcc.errors import CompileError
        from mlcc.targets.plan.interface import DeclaredFunctions

        if not self._checks:
            return
        try:
            declared = DeclaredFunctions(module)
        except CompileError:  # reported with everything else that the target cannot do
            return
        callee = find_function(declared, self._func)
        check_one_result(callee.name, declared.result_count(callee.name), self._output)
        arguments = self._choose(callee, stand_ins=True)
        if not self._is_random:
            self._known = callee.spec.params, arguments

    def of(self, callee: Any) -> list[Any]:
        """Return the arguments for a loaded function."""
        if self._known is not None and self._known[0] == callee.spec.params:
            return self._known[1]
        return self._choose(callee)

    def _choose(self, callee: Any, stand_ins: bool = False) -> list[Any]:
        from mlcc.cli.options import choose_inputs

        return choose_inputs(
            [callee], self._arrays, self._is_random, self._sizes, self._ignore_extra, stand_ins=stand_ins
        )[0]


def result_count(callee: Any) -> int:
    """Return the number of arrays that a loaded function returns, or that a PrimFunc writes."""
    results = callee.spec.results
    return len(callee.written_names) if results is None else len(list(results.leaves()))


def check_one_result(name: str, count: int, path: str | None) -> None:
    """Raise CompileError E0012 for a .npy file that several results of a function would go into."""
    from mlcc.array_files import is_npy
    from mlcc.errors import CompileError, error

    if path is not None and is_npy(path) and count != 1:
        text = f"{path} holds one array, and `{name}` has {count} results"
        raise CompileError(error("E0012", text, help="name a .npz file"))

"""Builders of candidates, under TVM's names."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlcc.errors import MlccError
from mlcc.ir.module import IRModule
from mlcc.machine.target import Target


@dataclass(frozen=True)
class BuilderInput:
    """A scheduled module to build for a target; `params` must be None. TVM: `BuilderInput`."""

    mod: IRModule
    target: Target
    params: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class BuilderResult:
    """The path of a built artifact, or None with the reason. TVM: `BuilderResult`."""

    artifact_path: str | None
    error_msg: str | None = None


class Builder:
    """Builds candidates. A user's subclass defines `build`. TVM: `Builder`, `PyBuilder`."""

    def build(self, build_inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
        """Build the modules. Return one result for each, in order."""
        raise NotImplementedError

    @staticmethod
    def create(kind: Any = "local", *args: Any, **kwargs: Any) -> Builder:
        """Create a builder by name; the only one is `local`. Raises ValueError for other names."""
        if isinstance(kind, Builder):
            return kind
        if kind != "local":
            raise ValueError(f"`builder` must be 'local' or a Builder, not {kind!r}")
        return LocalBuilder(*args, **kwargs)


class LocalBuilder(Builder):
    """Builds on this machine, in `max_workers` processes (by default one, to not disturb measurements), each candidate
    in at most `timeout_sec` seconds. TVM: `LocalBuilder`.

    `build` builds in this process, into files that `mlcc.load` reads. Raises ValueError for custom build or export
    functions: candidates are built as by `mlcc.build`.
    """

    def __init__(
        self, *, max_workers: int | None = None, timeout_sec: float = 30.0, f_build: Any = None, f_export: Any = None,
        initializer: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        refuse_hooks(f_build=f_build, f_export=f_export, initializer=initializer)
        self.max_workers = max_workers or 1
        self.timeout_sec = timeout_sec

    def build(self, build_inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
        return [_build(one) for one in build_inputs]


PyBuilder = Builder
create = Builder.create


def refuse_hooks(**hooks: Any) -> None:
    """Refuse hooks of TVM's builders and runners. Raises ValueError if one is given."""
    given = [name for name, value in hooks.items() if value is not None]
    if given:
        raise ValueError(f"`{given[0]}` is not supported: pass a builder and a runner of your own to tune_tir")


def _build(build_input: BuilderInput) -> BuilderResult:
    from mlcc.driver import build

    try:
        artifact = build(build_input.mod, build_input.target, pipeline="")
    except MlccError as exc:
        return BuilderResult(None, str(exc))
    handle, path = tempfile.mkstemp(prefix="mlcc-", suffix=f".{artifact.loadable}")
    os.close(handle)
    artifact.save(path)
    return BuilderResult(path)

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
        """A builder by its name, of which there is `local`. Raises ValueError for others."""
        if isinstance(kind, Builder):
            return kind
        if kind != "local":
            raise ValueError(f"builder is 'local' or a Builder, not {kind!r}")
        return LocalBuilder(*args, **kwargs)


class LocalBuilder(Builder):
    """Builds on this machine, in `max_workers` processes (by default one, so that what is timed is not disturbed), each
    candidate in `timeout_sec` seconds at most. TVM: `LocalBuilder`.

    `build` itself builds here and now, into files that `mlcc.load` reads. Raises ValueError for functions to build and
    to export with: candidates are built as `mlcc.build` does.
    """

    def __init__(
        self, *, max_workers: int | None = None, timeout_sec: float = 30.0, f_build: Any = None, f_export: Any = None,
        initializer: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        without_hooks(f_build=f_build, f_export=f_export, initializer=initializer)
        self.max_workers = max_workers or 1
        self.timeout_sec = timeout_sec

    def build(self, build_inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
        return [_built(one) for one in build_inputs]


PyBuilder = Builder
create = Builder.create


def without_hooks(**hooks: Any) -> None:
    """Raises ValueError if any hook of TVM's builders and runners is given."""
    given = [name for name, value in hooks.items() if value is not None]
    if given:
        raise ValueError(f"{given[0]} has no counterpart: give tune_tir a builder and a runner of your own")


def _built(given: BuilderInput) -> BuilderResult:
    from mlcc.driver import build

    try:
        artifact = build(given.mod, given.target, pipeline="")
    except MlccError as exc:
        return BuilderResult(None, str(exc))
    handle, path = tempfile.mkstemp(prefix="mlcc-", suffix=f".{artifact.loadable}")
    os.close(handle)
    artifact.save(path)
    return BuilderResult(path)

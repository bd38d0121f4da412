"""Passes by TVM's names: `relax.transform.FuseOps(fuse_opt_level=2)(mod)` runs the pass `fuse`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from mlcc.driver import run_passes
from mlcc.errors import did_you_mean
from mlcc.ir.module import IRModule
from mlcc.passes.graph.bind_params import bind, relax_function
from mlcc.passes.manage.manager import Pass, Pipeline, pass_class
from mlcc.passes.tvm_names import COUNTERPARTS, OTHERWISE

Transformation = Callable[[IRModule], IRModule]

# TVM's names of options -> ours
_OPTIONS = {
    "binding_map": "vars", "desired_layouts": "layouts", "entry_functions": "entry", "func_name": "func",
    "fuse_opt_level": "level",
}  # fmt: skip


class Transformations:
    """The passes of one of TVM's namespaces, as functions that make them."""

    def __init__(self, path: str, made: Mapping[str, Any]) -> None:
        self._path = path
        vars(self).update(made)

    def __getattr__(self, name: str) -> Callable[..., Transformation]:
        if name in OTHERWISE:
            raise AttributeError(f"mlcc has no counterpart of `{self._path}.{name}`: {OTHERWISE[name]}")
        if name not in COUNTERPARTS:
            raise AttributeError(f"mlcc has no counterpart of `{self._path}.{name}`", did_you_mean(name, COUNTERPARTS))
        cls = pass_class(COUNTERPARTS[name])

        def make(*args: Any, **options: Any) -> Transformation:
            """Return the pass with options by position or by either name."""
            return _runner(cls(**_options(name, cls, args, options)))

        return make

    def __dir__(self) -> list[str]:
        return sorted({*COUNTERPARTS, *(n for n in vars(self) if not n.startswith("_"))})


def _runner(made: Pass) -> Transformation:
    return lambda mod: run_passes(mod, Pipeline((made,)))


def _options(name: str, cls: type[Pass], args: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a pass. Raise TypeError for one that it does not have."""
    known = [f.name for f in fields(cls)]
    given = dict(zip(known, args, strict=False))
    for key, value in options.items():
        given[_OPTIONS.get(key, key)] = value
    unknown = [key for key in given if key not in known]
    if unknown or len(args) > len(known):
        have = f"options {', '.join(known)}" if known else "no options"
        raise TypeError(f"{name} is the pass `{cls.name}` here, which has {have}")
    return {key: tuple(v) if isinstance(v, list) else v for key, v in given.items()}


def bind_params(func_name: str, params: Mapping[str, Any]) -> Transformation:
    """Return the pass that puts arrays in the place of a function's parameters, by name."""

    def run(mod: IRModule) -> IRModule:
        func = relax_function(mod, func_name, "BindParams")
        bound = mod.copy()
        bound[func_name] = bind(func, {k: np.asarray(v) for k, v in params.items()}, func_name, mod)
        return bound

    return run


def sequential(passes: Iterable[Transformation]) -> Transformation:
    """Return the pass that runs others in order."""
    steps = list(passes)

    def run(mod: IRModule) -> IRModule:
        for step in steps:
            mod = step(mod)
        return mod

    return run


def module_pass(decorated: Any = None, **options: Any) -> Any:
    """Make a pass of a class with `transform_module(mod, ctx)`, or of a function `(mod, ctx)`.

    Options have no effect.
    """
    if decorated is None:
        return module_pass
    if inspect.isclass(decorated):
        cls: Any = decorated
        cls.__call__ = _transform_module
        return cls
    return lambda mod: decorated(mod, None)


def _transform_module(self: Any, mod: IRModule) -> Any:
    return self.transform_module(mod, None)


def transform(namespace: str, **made: Any) -> Transformations:
    """Return the passes of `tvm.<namespace>.transform`."""
    return Transformations(f"tvm.{namespace}.transform", {"Sequential": sequential, "module_pass": module_pass, **made})

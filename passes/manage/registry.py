"""Passes from outside: registered classes, and the passes of a loaded Python file."""

from __future__ import annotations

import typing

from mlcc import backends, plugins
from mlcc.errors import CompileError, error
from mlcc.passes import ALIASES, PASSES
from mlcc.passes.manage.manager import Pass, invalid_pass

P = typing.TypeVar("P", bound=type[Pass])


def register(cls: P) -> P:
    """Register a pass under its name, for pipelines and the command line. Return the class, so that it decorates one.

    Raises ValueError if the class is no complete pass, or if a pass or a group of passes has its name.
    """
    problem = invalid_pass(cls)
    if problem is not None:
        raise ValueError(f"`{getattr(cls, '__name__', cls)}` {problem}")
    groups = {group for backend in backends.registered_backends() for group in backend.groups}
    other = plugins.installed(plugins.PASSES).get(cls.name)
    installed = other is not None and other.module != cls.__module__
    if cls.name in PASSES or cls.name in ALIASES or cls.name in groups or installed:
        raise plugins.NameTaken(
            f"there is a {'group of passes' if cls.name in groups else 'pass'} `{cls.name}` already"
        )
    PASSES[cls.name] = cls
    plugins.on_unload(lambda: unregister(cls.name))
    return cls


def unregister(name: str) -> None:
    """Remove a registered pass."""
    PASSES.pop(name, None)


def load_file(path: str) -> None:
    """Run a Python file and register its passes: the subclasses of `Pass` with a name that it defines.

    Operators and schedule rules it registers itself. Raises CompileError, see `plugins.load_file`.
    """
    plugins.load_file(path, _register_passes)


def _register_passes(loaded: plugins.LoadedFile) -> None:
    for cls in list(vars(loaded.module).values()):
        own = isinstance(cls, type) and cls.__module__ == loaded.module.__name__
        if not own or not issubclass(cls, Pass) or not cls.name or PASSES.get(cls.name) is cls:
            continue
        try:
            register(cls)
        except ValueError as exc:
            taken = isinstance(exc, plugins.NameTaken)
            help = "give it another `name`" if taken else None
            code = "E0551" if taken else "E0550"
            raise CompileError(error(code, str(exc), plugins.class_span(cls), help=help)) from exc

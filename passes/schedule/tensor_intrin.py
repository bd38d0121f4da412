"""Tensor intrinsics: a computation to recognize, and the code that replaces it.

An intrinsic is two PrimFuncs over the same buffers, each with one block as its body. The description states in plain
loops what an instruction or a micro-kernel computes, and the implementation invokes it. `tensorize` assumes that both
compute the same, which is up to whoever registers them.

`mlcc.register_tensor_intrin` adds to a table of the process. An intrinsic that a script registers belongs to its
schedule alone.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mlcc.errors import CompileError, did_you_mean, error
from mlcc.ir import tir
from mlcc.ir.module import IRModule
from mlcc.passes.schedule.intrins.tensor_cores import catalogue, module_of
from mlcc.passes.schedule.refusal import Refusal

if TYPE_CHECKING:
    from mlcc.passes.schedule.schedule import Schedule
    from mlcc.passes.schedule.state import State

Text = tir.PrimFunc | IRModule | str


@dataclass(frozen=True, slots=True, eq=False)
class TensorIntrin:
    """A description and its implementation."""

    name: str
    desc: tir.PrimFunc
    impl: tir.PrimFunc

    @property
    def description(self) -> tir.BlockRealize:
        return _realize(self.desc)

    @property
    def implementation(self) -> tir.BlockRealize:
        return _realize(self.impl)


_lock = threading.Lock()
_table: dict[str, TensorIntrin] = {}


def register_tensor_intrin(
    name: str, desc: Text | None = None, impl: Text | None = None, override: bool = False, *,
    file: str | os.PathLike[str] | None = None,
) -> TensorIntrin:  # fmt: skip
    """Make `sch.tensorize(block, name)` known to every schedule of the process.

    `desc` and `impl` are PrimFuncs or their texts. Without `impl`, `desc` is a text or module that holds both; so is
    `file`. There they are the functions `NAME_desc` and `NAME_impl`, else the only two whose names end in `desc` and
    `impl`, else the only two, description first. Raises CompileError: E0688 for a pair that does not fit, or a name
    that is taken and not to be overridden.
    """
    intrin = make_intrin(name, desc, impl, file=file)
    with _lock:
        if name in _table and not override:
            raise _error(name, "the name is taken", help="override=True replaces it")
        _table[name] = intrin
    return intrin


def register(
    schedule: Schedule | State, name: str, desc: Text | None = None, impl: Text | None = None, *,
    file: str | os.PathLike[str] | None = None, folder: str | None = None,
) -> TensorIntrin:  # fmt: skip
    """Register an intrinsic for one schedule and its copies, in place of an earlier one of the same name.

    A relative `file` is looked up in `folder`; if `folder` is given, nothing outside it is read (E0510).
    """
    intrin = make_intrin(name, desc, impl, file=file, folder=folder)
    state: Any = getattr(schedule, "state", schedule)
    state.intrins = {**state.intrins, name: intrin}
    return intrin


def find_intrin(state: State, name: str) -> TensorIntrin:
    """Return an intrinsic by name: the schedule's own, else the process's, else a predefined one.

    Refuse (E0687) an unknown name.
    """
    intrin = state.intrins.get(name) or _table.get(name) or _built_in(name)
    if intrin is None:
        known = {*state.intrins, *_table, *catalogue()}
        help = did_you_mean(name, known) or (
            f'register it: mlcc.register_tensor_intrin("{name}", desc, impl), '
            f'or in a script register_tensor_intrin("{name}", file="{name}.mlc")'
        )
        raise Refusal("E0687", f"no tensor intrinsic `{name}` is registered", help=help)
    return intrin


@functools.cache
def _built_in(name: str) -> TensorIntrin | None:
    module = module_of(name)
    return None if module is None else make_intrin(name, module, None)


# ---------------------------------------------------------------- construction


def make_intrin(
    name: str, desc: Text | None, impl: Text | None, *, file: str | os.PathLike[str] | None = None,
    folder: str | None = None,
) -> TensorIntrin:  # fmt: skip
    """Check an intrinsic and return it. Raises CompileError."""
    if not isinstance(name, str) or not name:
        raise _error(str(name), "the name of an intrinsic must be a nonempty string")
    if file is not None:
        if desc is not None or impl is not None:
            raise _error(name, "give either a file, or a description and an implementation")
        pair = _pair(name, _read(os.fspath(file), folder), os.fspath(file))
    elif desc is None:
        raise _error(name, "the description is missing")
    elif impl is None:
        pair = _pair(name, _module(desc, f"<{name}>"), "the text")
    else:
        pair = _single(name, desc, "description"), _single(name, impl, "implementation")
    _check(name, *pair)
    return TensorIntrin(name, *pair)


def _read(file: str, folder: str | None) -> IRModule:
    from mlcc.files import read_bytes
    from mlcc.grammar.parser import parse
    from mlcc.grammar.syntax.reader import decode

    path = os.path.join(folder or "", file)
    if folder is not None:
        root = os.path.realpath(folder)
        if os.path.commonpath([root, os.path.realpath(path)]) != root:
            raise CompileError(error("E0510", f"{file} is outside the folder of the file that names it"))
    return parse(decode(read_bytes(path), path), name=path, folder=os.path.dirname(path) or ".")


def _module(given: Text, label: str) -> IRModule:
    if isinstance(given, IRModule):
        return given
    if isinstance(given, tir.PrimFunc):
        return IRModule.from_expr(given)
    from mlcc.grammar.parser import parse

    return parse(given, name=label)


def _functions(module: IRModule) -> dict[str, tir.PrimFunc]:
    return {n: f for n, f in module.functions.items() if isinstance(f, tir.PrimFunc)}


def _single(name: str, given: Text, role: str) -> tir.PrimFunc:
    if isinstance(given, tir.PrimFunc):
        return given
    functions = _functions(_module(given, f"<{role} of {name}>"))
    if len(functions) != 1:
        raise _error(name, f"the {role} must be one PrimFunc, not {', '.join(functions) or 'none'}")
    return next(iter(functions.values()))


def _pair(name: str, module: IRModule, what: str) -> tuple[tir.PrimFunc, tir.PrimFunc]:
    """Return the description and the implementation in a module, which messages call `what`."""
    functions = _functions(module)
    names = pair_names(name, functions)
    if names is None:
        listed = ", ".join(f"`{n}`" for n in functions) or "none"
        help = f"call them `{name}_desc` and `{name}_impl`"
        raise _error(name, f"{what} does not identify the two functions: it has {listed}", help=help)
    return functions[names[0]], functions[names[1]]


def pair_names(name: str, functions: Iterable[str]) -> tuple[str, str] | None:
    """Return the names of the description and the implementation of `name` among `functions`, None if ambiguous."""
    known = list(functions)
    if f"{name}_desc" in known and f"{name}_impl" in known:
        return f"{name}_desc", f"{name}_impl"
    descs, impls = ([n for n in known if n.endswith(role)] for role in ("desc", "impl"))
    if len(descs) == len(impls) == 1:
        return descs[0], impls[0]
    return (known[0], known[1]) if len(known) == 2 and not descs and not impls else None


def _check(name: str, desc: tir.PrimFunc, impl: tir.PrimFunc) -> None:
    """Raise CompileError (E0688) unless both functions are one block over the same buffers."""
    for role, func in (("description", desc), ("implementation", impl)):
        match func.body:
            case (tir.BlockRealize(),):
                pass
            case _:
                raise _error(name, f"the body of the {role} must be one block", func)
        for param, buffer in zip(func.params, func.buffers, strict=True):
            if buffer is None:
                raise _error(name, f"the parameter `{param.name}` of the {role} is not a buffer", func)
        block = _realize(func).block
        touched = {r.buffer for r in (*block.reads, *block.writes)}
        for buffer in func.buffers:
            if buffer not in touched:
                assert buffer is not None
                help = "declare T.reads and T.writes in its outermost block"
                raise _error(name, f"the {role} neither reads nor writes its buffer `{buffer.name}`", func, help)
    if len(desc.params) != len(impl.params):
        counts = f"{len(desc.params)} buffers, but the implementation has {len(impl.params)}"
        raise _error(name, f"the description has {counts}", impl)
    for there, here in zip(desc.buffers, impl.buffers, strict=True):
        assert there is not None and here is not None
        if there.dtype is not here.dtype or len(there.shape) != len(here.shape) or there.scope != here.scope:
            raise _error(name, f"`{here.name}` is {_buffer_text(here)}, but described as {_buffer_text(there)}", impl)
        for a, b in zip(there.shape, here.shape, strict=True):
            if tir.const_int(a) is not None and tir.const_int(b) is not None and tir.const_int(a) != tir.const_int(b):
                raise _error(
                    name, f"`{here.name}` is {_buffer_text(here)}, but described as {_buffer_text(there)}", impl
                )


def _buffer_text(buffer: tir.Buffer) -> str:
    return f"{buffer.dtype} ({', '.join(map(str, buffer.shape))}) in scope {buffer.scope}"


def _realize(func: tir.PrimFunc) -> tir.BlockRealize:
    (realize,) = func.body
    assert isinstance(realize, tir.BlockRealize)
    return realize


def _error(name: str, message: str, at: tir.PrimFunc | None = None, help: str | None = None) -> CompileError:
    span = None if at is None else at.span
    return CompileError(error("E0688", f"tensor intrinsic `{name}`: {message}", span, help=help))

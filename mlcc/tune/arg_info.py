"""Descriptions of a kernel's arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlcc.ir import tir
from mlcc.ir.module import IRModule


class ArgInfo:
    """An argument. TVM: `meta_schedule.arg_info.ArgInfo`."""

    def as_json(self) -> list[Any]:
        """Return the argument in the format of TVM's records."""
        raise NotImplementedError

    @staticmethod
    def from_json(json_obj: list[Any]) -> ArgInfo:
        """Read an argument in the format of TVM's records. Raises ValueError for invalid data."""
        match json_obj:
            case ["TENSOR", str(dtype), [*shape]]:
                return TensorInfo(dtype, tuple(int(n) for n in shape))
        raise ValueError(f"not the description of an argument: {json_obj!r}")

    @staticmethod
    def from_prim_func(func: tir.PrimFunc) -> list[ArgInfo]:
        """The arguments of a function: its buffers, with -1 for sizes that are not constant."""
        buffers = [b for b in func.buffers if b is not None]
        return [TensorInfo(str(b.dtype), tuple(_size(n) for n in b.shape)) for b in buffers]

    @staticmethod
    def from_entry_func(mod: IRModule, remove_preproc: bool = True) -> list[ArgInfo]:
        """The arguments of the module's entry: `main`, or the only function. `remove_preproc` changes nothing."""
        funcs = {name: f for name, f in mod.functions.items() if isinstance(f, tir.PrimFunc)}
        func = funcs.get("main") or next(iter(funcs.values()))
        return ArgInfo.from_prim_func(func)


@dataclass(frozen=True)
class TensorInfo(ArgInfo):
    """A tensor."""

    dtype: str
    shape: tuple[int, ...]

    def as_json(self) -> list[Any]:
        return ["TENSOR", self.dtype, list(self.shape)]


def _size(extent: tir.Expr) -> int:
    known = tir.const_int(extent)
    return -1 if known is None else known

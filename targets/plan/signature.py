"""Signatures of PrimFuncs in terms of TensorIR: parameters and symbols."""

from __future__ import annotations

from dataclasses import dataclass

from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.passes.lowering.symbols import symbols_of


@dataclass(frozen=True, slots=True)
class KernelParam:
    """A parameter: its variable, and its buffer if it has one."""

    var: tir.Var
    buffer: tir.Buffer | None = None


@dataclass(frozen=True, slots=True)
class KernelSignature:
    """The arguments of a kernel: its parameters, then one value per symbol.

    Symbols are the variables that shapes, strides and offsets of the buffers introduce, except parameters, in order
    of first occurrence.
    """

    params: tuple[KernelParam, ...]
    symbols: tuple[tir.Var, ...]
    result: DType | None = None


def signature(func: tir.PrimFunc) -> KernelSignature:
    """Return the signature of a PrimFunc."""
    params = tuple(KernelParam(var, buffer) for var, buffer in zip(func.params, func.buffers, strict=True))
    return KernelSignature(params, symbols_of(func), func.ret_dtype)

"""Attributes and methods of values: `A.data`, `A.shape`, `x.astype("int32")`, `A.access_ptr("r")`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlcc.errors import did_you_mean
from mlcc.grammar.syntax import tree
from mlcc.grammar.tir.arguments import signature
from mlcc.grammar.tir.evaluation_results import Scalar, describe
from mlcc.grammar.tir.operators import OperatorEvaluator
from mlcc.ir import calls, construct, tir

Method = Callable[[OperatorEvaluator, Any, tree.Call], Any]


def attribute(ev: OperatorEvaluator, base: Any, name: str, cst: tree.Expr) -> Any:
    """`base.name`."""
    if isinstance(base, Scalar) and name in ("buffer", "source"):
        return base.buffer
    if isinstance(base, tir.Buffer) and name in _BUFFER:
        return _BUFFER[name](base)
    if isinstance(base, (tir.Expr, Scalar)) and name in ("dtype", "ty"):
        return base.buffer.dtype if isinstance(base, Scalar) else base.dtype
    if isinstance(base, tir.IterVar) and name in ("var", "dom"):
        return getattr(base, name)
    methods = _methods(base)
    if name in methods:
        return ev.walk.fail("E0300", f"`{name}` must be called", cst)
    known = [*methods, *(_BUFFER if isinstance(base, tir.Buffer) else ("dtype",))]
    from mlcc.grammar.foreign import intrinsic_hint

    whole = ev.walk.source.text[cst.start : cst.end]
    help = did_you_mean(name, known) or intrinsic_hint(name, whole.rpartition(".")[0])
    return ev.walk.fail("E0203", f"{describe(base)} has no `{name}`", cst, help=help)


def call(ev: OperatorEvaluator, base: Any, name: str, cst: tree.Call) -> Any:
    """Evaluate `base.name(...)`."""
    method = _methods(base).get(name)
    if method is not None:
        return method(ev, base, cst)
    attribute(ev, base, name, cst.function)
    return ev.walk.fail("E0300", f"`{name}` cannot be called", cst.function)


def _offset(buffer: tir.Buffer) -> tir.Expr:
    return buffer.elem_offset if buffer.elem_offset is not None else construct.const(0)


_BUFFER: dict[str, Callable[[tir.Buffer], Any]] = {
    "data": lambda b: b.data, "shape": lambda b: b.shape, "strides": lambda b: b.strides, "dtype": lambda b: b.dtype,
    "elem_offset": _offset, "name": lambda b: b.name, "data_alignment": lambda b: b.alignment,
    "offset_factor": lambda b: b.offset_factor,
    "byte_offset": lambda b: construct.mul(_offset(b), b.dtype.bytes * b.dtype.lanes),
}  # fmt: skip


def _methods(base: Any) -> dict[str, Method]:
    if isinstance(base, tir.Buffer):
        return _BUFFER_METHODS
    return _EXPR_METHODS if isinstance(base, (tir.Expr, Scalar)) else {}


# ---------------------------------------------------------------- buffers

_ACCESS = signature("access_ptr", "access_mask ptr_type= content_lanes= offset= extent=")


def _access_ptr(ev: OperatorEvaluator, buffer: tir.Buffer, cst: tree.Call) -> Any:
    arguments = _ACCESS.bind(ev.walk, cst)
    mask = ev.value(arguments["access_mask"])
    if isinstance(mask, str) and mask and set(mask) <= {"r", "w"}:
        mask = ("r" in mask) + 2 * ("w" in mask)
    if not isinstance(mask, int) or not 0 < mask < 4:
        ev.walk.fail("E0302", 'the access must be "r", "w" or "rw"', arguments["access_mask"])
    lanes = ev.integer(arguments["content_lanes"], "the number of lanes") if "content_lanes" in arguments else 1
    if not 1 <= lanes <= 1024:
        ev.walk.fail("E0302", "a vector must have 1 to 1024 lanes", arguments["content_lanes"])
    offset = ev.operand(arguments["offset"]) if "offset" in arguments else 0
    extent = ev.operand(arguments["extent"]) if "extent" in arguments else None
    return ev.build(cst, calls.access_ptr, buffer, mask, lanes, offset, extent)


def vector_indices(
    ev: OperatorEvaluator, buffer: tir.Buffer, begin: tree.Expr, lanes: int, cst: tree.Call
) -> list[tir.Expr]:
    """Indices of the element at `begin`, the last one widened to `lanes`."""
    indices = ev.indices(buffer, tree.Index(cst.start, cst.end, cst, tree.items_of(begin)))
    factor = lanes // buffer.dtype.lanes
    if factor > 1 and indices:
        indices[-1] = ev.build(cst, calls.ramp, indices[-1], 1, factor)
    return indices


def _vload(ev: OperatorEvaluator, buffer: tir.Buffer, cst: tree.Call) -> Any:
    arguments = signature("vload", "begin dtype=").bind(ev.walk, cst)
    dtype = ev.dtype(arguments["dtype"]) if "dtype" in arguments else buffer.dtype
    if dtype.element is not buffer.dtype.element or dtype.lanes % buffer.dtype.lanes:
        ev.walk.fail("E0301", f"cannot load {dtype} from `{buffer.name}` of {buffer.dtype}", cst)
    return ev.build(cst, construct.load, buffer, *vector_indices(ev, buffer, arguments["begin"], dtype.lanes, cst))


def _offset_of(ev: OperatorEvaluator, buffer: tir.Buffer, cst: tree.Call) -> Any:
    arguments = signature("offset_of", "indices").bind(ev.walk, cst)
    indices = ev.indices(buffer, tree.Index(cst.start, cst.end, cst, tree.items_of(arguments["indices"])))

    def linear() -> tir.Expr:
        total: tir.Expr = construct.const(0)
        for at, index in enumerate(indices):
            if buffer.strides:
                total = construct.add(total, construct.mul(index, buffer.strides[at]))
            else:
                total = construct.add(construct.mul(total, buffer.shape[at]), index)
        return construct.add(total, _offset(buffer))

    return [ev.build(cst, linear)]


def _ptr_to(ev: OperatorEvaluator, buffer: tir.Buffer, cst: tree.Call) -> Any:
    arguments = signature("ptr_to", "indices").bind(ev.walk, cst)
    load = ev.load(buffer, tree.Index(cst.start, cst.end, cst, tree.items_of(arguments["indices"])))
    return ev.build(cst, calls.address_of, load)


def _scope(ev: OperatorEvaluator, buffer: tir.Buffer, cst: tree.Call) -> Any:
    signature("scope", "").bind(ev.walk, cst)
    return buffer.scope


_BUFFER_METHODS: dict[str, Method] = {
    "access_ptr": _access_ptr, "vload": _vload, "offset_of": _offset_of, "ptr_to": _ptr_to, "scope": _scope,
}  # fmt: skip


# ---------------------------------------------------------------- expressions


def _astype(ev: OperatorEvaluator, value: Any, cst: tree.Call) -> Any:
    arguments = signature("astype", "dtype", "span").bind(ev.walk, cst)
    return ev.build(cst, construct.cast, ev.dtype(arguments["dtype"]), ev.as_expr(value, cst))


def _equal(ev: OperatorEvaluator, value: Any, cst: tree.Call) -> Any:
    arguments = signature("equal", "other", "span").bind(ev.walk, cst)
    return ev.build(cst, construct.equal, ev.as_expr(value, cst), ev.operand(arguments["other"]))


_EXPR_METHODS: dict[str, Method] = {"astype": _astype, "equal": _equal}

"""The predefined tensor intrinsics, mostly of tensor cores, by TVM's names; the texts are in `intrins/`.

A name says what it is of: `mma_ldmatrix_f16_b_trans_dyn`, `wmma_sync_16x16x16_f16f16f32_trans`. A text is read when a
name is first asked for. bfloat16, which TVM has no names for, goes by `bf16` where float16 goes by `f16`. Those of
warpgroups, which are many, are read from their names (`warpgroups`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

from mlcc.passes.schedule.intrins.dot_products import dots
from mlcc.passes.schedule.intrins.m16n8k8 import m16n8k8
from mlcc.passes.schedule.intrins.mfma import mfma
from mlcc.passes.schedule.intrins.simdgroups import simdgroups
from mlcc.passes.schedule.intrins.warpgroups import wgmma_text

if TYPE_CHECKING:
    from mlcc.ir.module import IRModule

Values = Mapping[str, object]

_DTYPES = {"f16": "float16", "bf16": "bfloat16", "tf32": "float32", "f32": "float32", "i8": "int8",
           "s8": "int8", "i32": "int32", "s32": "int32", "s4": "int4", "e4m3": "float8_e4m3fn",
           "e5m2": "float8_e5m2"}  # fmt: skip
_KINDS = {"f16": "fp16", "bf16": "bf16", "tf32": "tf32", "f32": "fp32", "i8": "int8", "i32": "int32",
          "e4m3": "e4m3", "e5m2": "e5m2"}  # fmt: skip
_SCOPES = {"": "shared", "_dyn": "shared.dyn"}
_DEPTHS = {"tf32": 8, "f16": 16, "bf16": 16, "i8": 32, "e4m3": 32, "e5m2": 32}  # of one instruction

# which lane and which of its elements an element (i, j) of a tile is, by the tile's shape
_PLACES = {
    (16, 8): "4 * ({i} % 8) + {j} % 4, 2 * ({j} // 4) + {i} // 8",
    (16, 16): "4 * ({i} % 8) + {j} % 8 // 2, 4 * ({j} // 8) + {i} // 8 * 2 + {j} % 2",
    (16, 32): "4 * ({i} % 8) + {j} % 16 // 4, 8 * ({j} // 16) + {i} // 8 * 4 + {j} % 4",
    (32, 16): "{i} % 16 // 4 + 4 * ({j} % 8), 8 * ({j} // 8) + {i} // 16 * 4 + {i} % 4",
}


@functools.cache
def catalogue() -> Mapping[str, tuple[str, Values]]:
    """Return all names, each with its text and the values of its placeholders."""
    listed = (*_mma(), *_wmma(), *m16n8k8(), *mfma(), *dots(), *simdgroups())
    return {name: (text, {"name": name, **values}) for name, text, values in listed}


@functools.cache
def module_of(name: str) -> IRModule | None:
    """Return the module with `desc` and `impl` of a name; None for names that are not in the catalogue."""
    from mlcc.grammar.parser import parse

    entry = catalogue().get(name)
    if entry is None:
        entry = wgmma_text(name)
        if entry is None:
            return None
    text, values = entry
    source = (files(__package__) / f"{text}.mlc").read_text(encoding="utf-8")
    filled = Template(source).substitute({k: str(v) for k, v in values.items()})
    return parse(filled, name=f"<{name}>")


def _place(shape: tuple[int, int], i: str, j: str) -> str:
    return _PLACES[shape].format(i=i, j=j)


# ---------------------------------------------------------------- mma.sync: operands in registers of a warp


def _mma() -> Iterator[tuple[str, str, Values]]:
    for kind in ("f16", "bf16"):
        for operand, trans in (("a", ""), ("b", ""), ("a", "_trans"), ("b", "_trans")):
            for suffix in _SCOPES:
                values = _ldmatrix(kind, operand, trans, suffix)
                yield f"mma_ldmatrix_{kind}_{operand}{trans}{suffix}", "mma_ldmatrix", values
    for kind in ("i8", "e4m3", "e5m2"):
        for operand, trans in (("a", ""), ("b", ""), ("b", "_trans")):
            for suffix in _SCOPES:
                values = _ldmatrix(kind, operand, trans, suffix)
                yield f"mma_ldmatrix_{kind}_{operand}{trans}{suffix}", "mma_ldmatrix", values
    for operand, trans in (("a", ""), ("b", "_trans")):  # the instruction transposes no words
        for suffix in _SCOPES:
            values = _ldmatrix("tf32", operand, trans, suffix)
            yield f"mma_ldmatrix_tf32_{operand}{trans}{suffix}", "mma_ldmatrix", values
    for kind, out in (("f16", "f32"), ("f16", "f16"), ("bf16", "f32")):
        for a, b in (("", ""), ("", "_trans_b"), ("_trans_a", ""), ("_trans_a", "_trans_b")):
            yield f"mma_{kind}{kind}{out}{a}{b}", "mma_sync", _sync(kind, out, bool(a), bool(b))
    for kind, out in (("i8", "i32"), ("e5m2", "f32"), ("e4m3", "f32")):
        for b in ("", "_trans_b"):
            yield f"mma_{kind}{kind}{out}{b}", "mma_sync", _sync(kind, out, False, bool(b))
    yield "mma_tf32tf32f32_trans_b", "mma_sync", _sync("tf32", "f32", False, True)
    for out in ("f32", "f16", "i32"):
        dtype = _DTYPES[out]
        yield f"mma_fill_16x16_{out}", "mma_fill", {"dtype": dtype, "place": _place((16, 16), "i", "j")}
        for scope in ("global", "shared", "shared.dyn"):
            values = {"dtype": dtype, "scope": scope, "place": _place((16, 16), "v0", "v1")}
            where = scope.replace(".", "_")
            yield f"mma_store_16x16_{out}_{where}_", "mma_store", values
            yield f"mma_store_16x16_{out}_{where}_simple_", "mma_store_simple", values


def _ldmatrix(kind: str, operand: str, trans: str, suffix: str) -> Values:
    """Return the substitutions for an `ldmatrix` load.

    Each lane passes the address of one row (16 bytes) of an 8 x 8 matrix, see PTX's `ldmatrix`.
    """
    k = _DEPTHS[kind]
    tall = (operand == "a") == bool(trans)  # the tile's rows go along k
    rows, columns = (k, 16) if tall else (16, k)
    half = k // 2  # elements of a row
    if k == 32 and operand == "b" and not trans:
        offset = "s0"  # bytes cannot be transposed by the instruction: only the distance of rows is asked for
    elif trans:
        line = "s0 * (tx % 8)" if k == 16 else "tx % 8 * s0"
        offset = f"s0 * 8 * (tx // 16) + {line} + {half} * (tx % 16 // 8)"
    else:
        offset = f"s0 * (tx % 16) + {half} * (tx // 16)"
    return {
        "dtype": _DTYPES[kind], "scope": _SCOPES[suffix], "rows": rows, "columns": columns, "local": 16 * k // 32,
        "place": _place((rows, columns), "v0", "v1"), "transposed": tall, "offset": offset,
    }  # fmt: skip


def _sync(kind: str, out: str, trans_a: bool, trans_b: bool) -> Values:
    k = _DEPTHS[kind]
    a_place = _place((k, 16), "vk", "vi") if trans_a else _place((16, k), "vi", "vk")
    b_place = _place((16, k), "vj", "vk") if trans_b else _place((k, 16), "vk", "vj")
    values = [f"A[{a_place}]", f"B[{b_place}]"]
    if _DTYPES[out] != _DTYPES[kind]:
        values = [f'T.Cast("{_DTYPES[out]}", {v})' for v in values]
    return {
        "dtype": _DTYPES[kind], "out": _DTYPES[out], "kind": _KINDS[kind], "out_kind": _KINDS[out], "k": k,
        "local": 16 * k // 32, "a_factor": 16 if trans_a else k, "b_factor": k if trans_b else 16,
        "c_place": _place((16, 16), "vi", "vj"), "a_place": a_place, "b_place": b_place,
        "a_value": values[0], "b_value": values[1],
    }  # fmt: skip


# ---------------------------------------------------------------- wmma: operands in fragments


def _wmma() -> Iterator[tuple[str, str, Values]]:
    for kind in ("f16", "bf16", "s8"):
        for operand in "ab":
            for trans in ("", "_trans"):
                yield from _wmma_load((16, 16, 16), kind, operand, trans)
    for out in ("f32", "f16", "s32"):
        yield from _wmma_out((16, 16, 16), out)
    for kind, out in (("f16", "f32"), ("f16", "f16"), ("bf16", "f32"), ("s8", "s32")):
        for trans in ("", "_trans"):
            yield _wmma_sync((16, 16, 16), kind, out, trans)
    for operand, trans in (("a", ""), ("b", "_trans")):  # of 4-bit integers there is one layout
        yield from _wmma_load((8, 8, 32), "s4", operand, trans)
    yield from _wmma_out((8, 8, 32), "s32")
    yield _wmma_sync((8, 8, 32), "s4", "s32", "_trans")


_Shape = tuple[int, int, int]


def _named(shape: _Shape) -> str:
    return "x".join(map(str, shape))


def _wmma_load(shape: _Shape, kind: str, operand: str, trans: str) -> Iterator[tuple[str, str, Values]]:
    m, n, k = shape
    rows, columns = (m, k) if operand == "a" else (n, k) if trans else (k, n)
    for scope in ("shared", "shared.dyn"):
        layout = "col_major" if trans else "row_major"
        values = {"m": m, "n": n, "k": k, "dtype": _DTYPES[kind], "rows": rows, "columns": columns, "scope": scope,
                  "operand": operand, "layout": layout}  # fmt: skip
        yield f"wmma_load_{_named(shape)}_{kind}_{operand}{trans}_{scope.replace('.', '_')}", "wmma_load", values


def _wmma_out(shape: _Shape, out: str) -> Iterator[tuple[str, str, Values]]:
    m, n, k = shape
    values = {"m": m, "n": n, "k": k, "dtype": _DTYPES[out]}
    yield f"wmma_fill_{_named(shape)}_{out}", "wmma_fill", values
    for scope in ("shared", "shared.dyn", "global"):
        yield f"wmma_store_{_named(shape)}_{out}_{scope.replace('.', '_')}", "wmma_store", {**values, "scope": scope}


def _wmma_sync(shape: _Shape, kind: str, out: str, trans: str) -> tuple[str, str, Values]:
    m, n, k = shape
    b_rows, b_columns = (n, k) if trans else (k, n)
    names = ["A[vii, vkk]", "B[vjj, vkk]" if trans else "B[vkk, vjj]"]
    if kind != out:
        names = [f'T.Cast("{_DTYPES[out]}", {v})' for v in names]
    values = {"m": m, "n": n, "k": k, "dtype": _DTYPES[kind], "out": _DTYPES[out], "b_rows": b_rows,
              "b_columns": b_columns, "a_value": names[0], "b_value": names[1]}  # fmt: skip
    return f"wmma_sync_{_named(shape)}_{kind}{kind}{out}{trans}", "wmma_sync", values

"""The tensor intrinsics of warpgroups: what names say, such as `wgmma_sync_64x128x16_bf16bf16f32_trans_b_dyn`.

    wgmma_fill_64xN_OUT     wgmma_store_64xN_OUT_SCOPE     wgmma_sync_64xNxK_KINDKINDOUT[_trans_a][_trans_b][_dyn]

N goes from 8 to 256 in steps of 8. Sums lie in memory of scope `warpgroup`, (128 threads, N / 2), as `sums_place` says.
Operands lie in shared memory in an order of their own (`permuted_layout`), in rows as long as what it exchanges: A in
rows of the sum's elements (64, K), with `_trans_a` the other way round, and B in rows of columns (K, N), with
`_trans_b` the other way round. Where N columns are more than such a row has, B is (N // width, K, width), and A
likewise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

Values = Mapping[str, object]

_KINDS = {"f16": ("float16", "fp16"), "bf16": ("bfloat16", "bf16"), "tf32": ("float32", "tf32"),
          "s8": ("int8", "int8"), "i8": ("int8", "int8"), "u8": ("uint8", "uint8"),
          "e4m3": ("float8_e4m3fn", "e4m3"), "e5m2": ("float8_e5m2", "e5m2")}  # fmt: skip
_OUTS = {"f16": ("float16", "fp16"), "f32": ("float32", "fp32"), "s32": ("int32", "int32"), "i32": ("int32", "int32")}
_ALONG = {"f16": 16, "bf16": 16, "tf32": 8, "s8": 32, "i8": 32, "u8": 32, "e4m3": 32, "e5m2": 32}
_FITS = {"f16": ("f16", "f32"), "bf16": ("f32",), "tf32": ("f32",), "s8": ("s32", "i32"), "i8": ("s32", "i32"),
         "u8": ("s32", "i32"), "e4m3": ("f16", "f32"), "e5m2": ("f16", "f32")}  # fmt: skip
_KIND = "|".join(_KINDS)
_OUT = "|".join(_OUTS)
_FILL = re.compile(rf"wgmma_fill_64x(\d+)_({_OUT})$")
_STORE = re.compile(rf"wgmma_store_64x(\d+)_({_OUT})_(global|shared|shared_dyn)$")
_SYNC = re.compile(rf"wgmma_sync_64x(\d+)x(\d+)_({_KIND})\3({_OUT})(_trans_a)?(_trans_b)?(_dyn)?$")
_WIDTHS = (64, 32, 16)  # elements of 16 bits that rows of 128, 64 and 32 bytes have


def wgmma_text(name: str) -> tuple[str, Values] | None:
    """Return the text of a name and the values of its placeholders; None if the name is unknown."""
    if not name.startswith("wgmma_"):
        return None
    if match := _FILL.match(name):
        n, out = int(match[1]), match[2]
        return None if not _is_width(n) else ("wgmma_fill", {"name": name, **_sums(n, out)})
    if match := _STORE.match(name):
        n, out, scope = int(match[1]), match[2], match[3].replace("_", ".")
        return None if not _is_width(n) else ("wgmma_store", {"name": name, "scope": scope, **_sums(n, out)})
    if match := _SYNC.match(name):
        values = _sync(int(match[1]), int(match[2]), match[3], match[4], bool(match[5]), bool(match[6]))
        scope = "shared.dyn" if match[7] else "shared"
        return None if values is None else ("wgmma_sync", {"name": name, "scope": scope, **values})
    return None


def _is_width(n: int) -> bool:
    return 8 <= n <= 256 and n % 8 == 0


def sums_place(i: str, j: str) -> str:
    """Return the thread and its element, as indices, that hold element (i, j) of the accumulator."""
    return f"{i} // 16 * 32 + {i} % 8 * 4 + {j} % 8 // 2, {j} // 8 * 4 + {i} % 16 // 8 * 2 + {j} % 2"


def _sums(n: int, out: str) -> dict[str, object]:
    dtype, kind = _OUTS[out]
    return {"n": n, "sums": n // 2, "parts": n // 8, "out": dtype, "out_kind": kind, "place": sums_place("i", "j")}


def _sync(n: int, k: int, kind: str, out: str, trans_a: bool, trans_b: bool) -> Values | None:
    if (
        not _is_width(n)
        or k != _ALONG[kind]
        or out not in _FITS[kind]
        or (_OUTS[out][0] == "int32" and n > 24 and n % 16)
    ):
        return None
    dtype, name = _KINDS[kind]
    size = 32 // k  # bytes of an element: instructions take 32 bytes of each row
    a = _matrix("a", "i", 64, k, size, trans_a)
    b = _matrix("b", "j", n, k, size, not trans_b)
    if a is None or b is None:
        return None
    values = [f"A[{a['a_place']}]", f"B[{b['b_place']}]"]
    if _OUTS[out][0] != dtype:
        values = [f'T.Cast("{_OUTS[out][0]}", {v})' for v in values]
    declared = "".join(
        f"    {s} = T.int32()\n" for m, x in ((a, "a"), (b, "b")) for s in str(m[f"{x}_strides"]).split(", ")
    )
    return {**_sums(n, out), **a, **b, "k": k, "dtype": dtype, "kind": name, "a_value": values[0], "b_value": values[1],
            "declared": declared, "factor": min(16, k)}  # fmt: skip


def _matrix(x: str, index: str, rows: int, k: int, size: int, turned: bool) -> dict[str, object] | None:
    """Return the substitutions for the layout and the descriptor of an operand; None for one that is not supported.

    The operand has `rows` rows of A, or columns of B. The descriptor's distances are in bytes. With `k` contiguous:
    from each 8 rows to the next. Otherwise (`turned`): from each 8 elements along `k` to the next, and from one group
    of contiguous rows to the next.
    """
    shape: tuple[int, ...]
    strides: tuple[str, ...]
    if not turned:
        shape, place, strides = (rows, k), f"{index}, k", (f"{x}0", f"{x}1")
        leading, stride = "16", f"{x}0 * {8 * size}"
    else:
        width = next((w for w in _WIDTHS if rows % w == 0), None)
        if width is None or size != 2:
            return None
        stride = f"{x}0 * {8 * size}"
        if width == rows:
            shape, place, strides = (k, rows), f"k, {index}", (f"{x}0", f"{x}1")
            leading = "16"
        else:
            shape, place = (rows // width, k, width), f"{index} // {width}, k, {index} % {width}"
            strides = (f"{x}2", f"{x}0", f"{x}1")
            leading = f"{x}2 * {size}"
    return {
        f"{x}_shape": ", ".join(map(str, shape)), f"{x}_place": place, f"{x}_strides": ", ".join(strides),
        f"{x}_region": ", ".join(f"0:{s}" for s in shape), f"{x}_leading": leading, f"{x}_stride": stride,
        f"{x}_turned": int(turned),
    }  # fmt: skip

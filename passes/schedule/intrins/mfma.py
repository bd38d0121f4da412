"""The tensor intrinsics of AMD's matrix cores (`mfma`, waves of 64 lanes) by TVM's names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

Values = Mapping[str, object]

_DTYPES = {"s8": "int8", "f16": "float16", "f32": "float32", "s32": "int32", "i32": "int32"}
_CALLS = {"f32": "f32.16x16x4f32", "f16": "f32.16x16x16f16", "s8": "i32.16x16x16i8"}


def mfma() -> Iterator[tuple[str, str, Values]]:
    """Return the names, each with its text and the values of its placeholders."""
    for out in ("f32", "i32"):
        yield f"ROCM_mfma_fill_16x16_{out}", "mfma_fill", {"dtype": _DTYPES[out]}
    for out in ("s32", "f32"):
        yield f"rocm_mfma_store_16x16_{out}", "mfma_store", {"dtype": _DTYPES[out]}
    for kind in ("s8", "f16", "f32"):
        k = 4 if kind == "f32" else 16
        common = {"dtype": _DTYPES[kind], "local": k // 4}
        a_place, b_place, a_source, b_source = _places(k)
        a = {"rows": 16, "columns": k, "place": a_place.format("v0", "v1"), "source": a_source}
        yield f"rocm_mfma_load_16x{k}_a_shared_{kind}", "mfma_load", {**common, **a}
        b = {"rows": k, "columns": 16, "place": b_place.format("v0", "v1"), "source": b_source}
        yield f"rocm_mfma_load_b_16x{k}_shared_{kind}", "mfma_load", {**common, **b}
    for kind, out in (("f32", "f32"), ("f16", "f32"), ("s8", "s32")):
        yield f"rocm_mfma_{kind}{kind}{out}", "mfma_sync", _sync(kind, out)


def _places(k: int) -> tuple[str, str, str, str]:
    """Lane and register of element (i, k) of A and of (k, j) of B, and the element that a register holds."""
    if k == 4:
        return "{1} * 16 + {0}, 0", "{0} * 16 + {1}, 0", "tx % 16, tx // 16 + local_id", "tx // 16, tx % 16 + local_id"
    at = "tx // 16 * 4 + local_id"
    return (
        "{0} + 16 * ({1} // 4), {1} % 4",
        "{1} + {0} // 4 * 16, {0} % 4",
        f"tx % 16, {at}",
        "local_id + tx // 16 * 4, tx % 16",
    )


def _sync(kind: str, out: str) -> Values:
    k = 4 if kind == "f32" else 16
    a_place, b_place, *_ = _places(k)
    at = {"a": a_place.format("vi", "vk"), "b": b_place.format("vk", "vj")}
    values: dict[str, object] = {
        "dtype": _DTYPES[kind],
        "out": _DTYPES[out],
        "local": k // 4,
        "k": k,
        "call": _CALLS[kind],
    }
    for x, place in at.items():
        term, lanes = f"{x.upper()}[{place}]", f"{x.upper()}[tx, {0 if k == 4 else 'T.Ramp(0, 1, 4)'}]"
        values[f"{x}_place"] = place
        values[f"{x}_value"] = term if kind == out else f'T.Cast("{_DTYPES[out]}", {term})'
        values[f"{x}_operand"] = f'T.reinterpret("int32", {lanes})' if kind == "s8" else lanes
    return values

"""The tensor intrinsics of `mma.m16n8k8` by TVM's names: tiles in registers whose places follow from their offsets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

Values = Mapping[str, object]

# of a tile that starts at an offset in a matrix with a stride: the first register, by the layouts of the scopes
_A = (
    "({x}.elem_offset // {s} // 32 * ({s} // 8) + {x}.elem_offset % {s} // 8) * 8"
    " + {x}.elem_offset // {s} % 32 // 16 * 4"
)
_B = (
    "({x}.elem_offset // {s} // 8 * ({s} // 32) + {x}.elem_offset % {s} // 32) * 8"
    " + {x}.elem_offset % {s} % 32 // 8 * 2"
)
_C = (
    "({x}.elem_offset // {s} // 8 // 2 * 2 * ({s} // 8) + {x}.elem_offset // {s} // 8 % 2"
    " + {x}.elem_offset % {s} // 8 * 2) * 2"
)


def m16n8k8() -> Iterator[tuple[str, str, Values]]:
    """Return the names, each with its text and the values of its placeholders."""
    dtypes = {"f16": "float16", "f32": "float32"}
    for out, dtype in dtypes.items():
        yield f"mma_init_m16n8k8_{out}", "m16n8k8_init", {"dtype": dtype}
        yield f"mma_store_m16n8k8_{out}_global", "m16n8k8_store", {"dtype": dtype}
        terms = ("A[vi, vk]", "B[vk, vj]")
        if out == "f32":
            terms = tuple(f'T.Cast("float32", {term})' for term in terms)  # type: ignore[assignment]
        places = {"a_place": _A.format(x="A", s="a0"), "b_place": _B.format(x="B", s="b0"),
                  "c_place": _C.format(x="C", s="c0")}  # fmt: skip
        values = {"out": dtype, "a_value": terms[0], "b_value": terms[1], **places}
        yield f"mma_sync_m16n8k8_f16f16{out}", "m16n8k8_sync", values
    a = {"rows": 32, "columns": 8, "transposed": False, "place": _A.format(x="dst", s="d0"), "row": "tx * s0"}
    yield "mma_load_m16n8k8_f16_A_shared_dyn", "m16n8k8_load", {"operand": "A", **a}
    row = "tx % 8 * s0 + tx // 8 * 8"
    b = {"rows": 8, "columns": 32, "transposed": True, "place": _B.format(x="dst", s="d0"), "row": row}
    yield "mma_load_m16n8k8_f16_B_shared_dyn", "m16n8k8_load", {"operand": "B", **b}

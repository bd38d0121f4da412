"""The tensor intrinsics of Metal's simdgroup matrices by TVM's names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

Values = Mapping[str, object]


def simdgroups() -> Iterator[tuple[str, str, Values]]:
    """Return the names, each with its text and the values of its placeholders."""
    for name, dtype in (
        ("make_filled_8x8x8_f16", "float16"),
        ("fill_8x8x8_f32", "float32"),
        ("fill_8x8x8_bf16", "bfloat16"),
    ):
        yield f"simdgroup_{name}", "simdgroup_fill", {"dtype": dtype}
    half: dict[str, object] = {"dtype": "float16"}
    for suffix, place, transposed in (("", "vii, vjj", False), ("_trans", "vjj, vii", True)):
        values = {**half, "scope": "shared", "place": place, "transposed": transposed}
        yield f"simdgroup_load_8x8x8_f16_shared{suffix}", "simdgroup_load", values
    for scope in ("global", "shared"):
        yield f"simdgroup_store_8x8x8_f16_{scope}", "simdgroup_store", {**half, "scope": scope}
    yield "simdgroup_multiply_accumulate_8x8x8_f16", "simdgroup_multiply", half

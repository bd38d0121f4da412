"""Intrinsics that both sides know in the differential suite: what they compute, and what runs in their place."""

from __future__ import annotations

_BUFFER = '"float32", align=64, offset_factor=1'


def _text(params: str, reads: str, writes: str, body: str) -> str:
    lines = "".join(f"        {line}\n" for line in body.strip("\n").split("\n"))
    access = f"        T.reads({reads})\n        T.writes({writes})\n"
    return f'@T.prim_func(s_tir=True)\ndef main({params}):\n    with T.sblock("root"):\n{access}{lines}'


def _params(*names: str) -> str:
    return ", ".join(f"{n}: T.Buffer((4, 4), {_BUFFER})" for n in names)


def _call(name: str, *buffers: str) -> str:
    pointers = ", ".join(f'{b}.access_ptr("{"rw" if b == buffers[0] else "r"}")' for b in buffers)
    return f'T.evaluate(T.call_extern("int32", "{name}", {pointers}))'


_MMA = """
for i, j, k in T.grid(4, 4, 4):
    with T.sblock("update"):
        vi, vj, vk = T.axis.remap("SSR", [i, j, k])
        C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""
_FILL = """
for i, j in T.grid(4, 4):
    with T.sblock("fill"):
        vi, vj = T.axis.remap("SS", [i, j])
        C[vi, vj] = T.float32(0)
"""
_COPY = """
for i, j in T.grid(4, 4):
    with T.sblock("copy"):
        vi, vj = T.axis.remap("SS", [i, j])
        C[vi, vj] = A[vi, vj]
"""
_ALL = "[0:4, 0:4]"
_READ_3 = f"C{_ALL}, A{_ALL}, B{_ALL}"

INTRINSICS = {
    "mma_4x4x4": (
        _text(_params("A", "B", "C"), _READ_3, f"C{_ALL}", _MMA),
        _text(_params("A", "B", "C"), _READ_3, f"C{_ALL}", _call("mma_4x4x4", "C", "A", "B")),
    ),
    "fill_4x4": (
        _text(_params("C"), "", f"C{_ALL}", _FILL),
        _text(_params("C"), "", f"C{_ALL}", _call("fill_4x4", "C")),
    ),
    "copy_4x4": (
        _text(_params("A", "C"), f"A{_ALL}", f"C{_ALL}", _COPY),
        _text(_params("A", "C"), f"A{_ALL}", f"C{_ALL}", _call("copy_4x4", "C", "A")),
    ),
}

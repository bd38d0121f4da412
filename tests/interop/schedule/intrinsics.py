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

_LOOPS = {
    "mma_4x4x4": "for k, i, j in T.grid(4, 4, 4):\n    C[i, j] = C[i, j] + A[i, k] * B[k, j]",
    "fill_4x4": "for j, i in T.grid(4, 4):\n    C[i, j] = T.float32(0)",
    "copy_4x4": "for j, i in T.grid(4, 4):\n    C[i, j] = A[i, j]",
}

# name -> description, implementation; each as a call of code elsewhere, and as loops that run anywhere
INTRINSICS: dict[str, tuple[str, str]] = {}
for _name, _body, _reads, _names in (
    ("mma_4x4x4", _MMA, _READ_3, "ABC"), ("fill_4x4", _FILL, "", "C"), ("copy_4x4", _COPY, f"A{_ALL}", "AC"),
):  # fmt: skip
    _head = (_params(*_names), _reads, f"C{_ALL}")
    _described = _text(*_head, _body)
    INTRINSICS[_name] = (_described, _text(*_head, _call(_name, "C", *_names[:-1])))
    INTRINSICS[f"{_name}_loops"] = (_described, _text(*_head, _LOOPS[_name]))

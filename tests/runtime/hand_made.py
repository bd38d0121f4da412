"""Artifacts made by the C compiler, so that the runtime can be tested without mlcc's own code generation."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from mlcc.runtime.abi import ABI_VERSION, MANIFEST_SECTION
from mlcc.runtime.machine import arch
from mlcc.targets.llvm.object.objfile import NewSection, finish

PRELUDE = r"""
#include <stdint.h>
#include <stddef.h>
#include <string.h>
typedef struct { int32_t type, id; } DLDevice;
typedef struct { uint8_t code, bits; uint16_t lanes; } DLDataType;
typedef struct {
    void *data; DLDevice device; int32_t ndim; DLDataType dtype; int64_t *shape, *strides; uint64_t byte_offset;
} DLTensor;
typedef union { DLTensor *t; int64_t i; double d; int64_t *s; } arg;
typedef int32_t (*packed)(void *, DLTensor **, int32_t);
int32_t m_time_run(int32_t (*run)(const arg *, const int64_t *, void *), const arg *a, const int64_t *s, void *w,
                   int64_t number, int (*clock)(int, int64_t *), int64_t *ns) {
    int64_t start[2], end[2];
    int32_t code = 0;
    clock(1, start);
    for (int64_t i = 0; i < number && !code; i++) code = run(a, s, w);
    clock(1, end);
    *ns = (end[0] - start[0]) * 1000000000 + end[1] - start[1];
    return code;
}
"""


def tensor(name: str, dtype: str, shape: list[Any], role: str = "in") -> dict[str, Any]:
    """A tensor in a manifest."""
    return {"kind": "tensor", "name": name, "dtype": dtype, "shape": shape, "role": role}


def manifest(functions: dict[str, Any], packed: list[Any] | None = None, **changes: Any) -> dict[str, Any]:
    """A whole manifest."""
    made = {
        "mlcc": {"abi": ABI_VERSION, "version": "test"}, "prefix": "m", "target": {"arch": arch(), "features": []},
        "functions": functions, "packed": packed or [], "externs": [],
    }  # fmt: skip
    made.update(changes)
    return made


def compiled(source: str, folder: Path, prelude: str = PRELUDE) -> bytes:
    """The object of a C source, as gcc or clang makes it."""
    (folder / "m.c").write_text(prelude + source)
    command = ["cc", "-std=c99", "-O1", "-fPIC", "-fno-asynchronous-unwind-tables", "-c", "m.c", "-o", "m.o"]
    subprocess.run(command, cwd=folder, check=True)
    return (folder / "m.o").read_bytes()


def artifact(source: str, facts: dict[str, Any], folder: Path) -> bytes:
    """An artifact from C code and a manifest."""
    text = json.dumps({**facts, "checksum": "00000000"}).encode() + b"\0"
    return b"".join(
        bytes(p) for p in finish(compiled(source, folder), [NewSection(MANIFEST_SECTION, 0, 1, (text,))], {}, str)
    )

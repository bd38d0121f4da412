"""The sizes of an artifact: code, data, constants and workspaces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlcc.runtime.code_size import code_size
from mlcc.runtime.elf import Data

FORMAT = 1  # the version of the data of reports


def object_sizes(data: Data, manifest: dict[str, Any]) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the sizes of an object in bytes, and the code of each kernel; versions for several CPUs are apart."""
    size = code_size(data)
    kernels = size.kernels or {}
    sizes = {
        "artifact": len(data), "code": size.code, "kernels": sum(kernels.values()), "read_only_data": size.read_only,
        "data": size.data, "zeros": size.zeros, **common_sizes(manifest),
    }  # fmt: skip
    return sizes, kernels


def text_sizes(text: str | bytes, manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the sizes of an artifact whose code is text: C source, or PTX."""
    length = len(text.encode() if isinstance(text, str) else text)
    return {"artifact": length, "code": None, "kernels": None, "read_only_data": None, "data": None, "zeros": None,
            **common_sizes(manifest)}  # fmt: skip


def common_sizes(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the bytes of constants, and those of the workspace of each function that has a constant size."""
    constants = manifest.get("constants", {})
    workspaces = {
        name: spec["workspace"] if isinstance(spec.get("workspace"), int) else None
        for name, spec in manifest["functions"].items()
        if "workspace" in spec
    }
    count = constants.get("count")
    return {"constants": constants.get("bytes", 0) if count is not None else 0, "workspaces": workspaces}

"""Convert ONNX names to identifiers."""

from __future__ import annotations

import re


def identifier(name: str, taken: set[str]) -> str:
    """Return a valid and unique identifier for a name."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII) or "_"
    plain = f"_{plain}" if plain[0].isdigit() else plain
    candidate, count = plain, 0
    while candidate in taken:
        count += 1
        candidate = f"{plain}_{count}"
    taken.add(candidate)
    return candidate


def scopes(name: str) -> list[str]:
    """Return the scopes in PyTorch's name of a node, without repetition: `layer1.0`, `conv1`, `Conv` for
    `/layer1/layer1.0/conv1/Conv`."""
    parts = [part for part in name.split("/") if part]
    return [part for part, below in zip(parts, [*parts[1:], ""], strict=True) if not below.startswith(f"{part}.")]

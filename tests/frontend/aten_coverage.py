"""Which operators of PyTorch's core opset have a converter: `python -m tests.frontend.aten_coverage`."""

from __future__ import annotations

from mlcc.frontend.aten.complex import has_complex_converter
from mlcc.frontend.aten.table import converter

# What exported programs of inference do not have: gradients, random numbers.
OUTSIDE = ("_backward", "rand", "native_dropout_backward", "bernoulli", "_to_sparse", "sym_storage")


def core_operators() -> list[str]:
    """All overloads with the tag `core`, as exported programs call them."""
    import torch

    found = []
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        for overload in packet.overloads() if hasattr(packet, "overloads") else ():
            operator = getattr(packet, overload)
            if torch.Tag.core in operator.tags:
                found.append(str(operator))
    return sorted(found)


def missing() -> list[str]:
    """Core operators without a converter, but for those that are outside."""
    return [n for n in core_operators() if not _known(n) and not any(part in n for part in OUTSIDE)]


def _known(name: str) -> bool:
    return converter(name) is not None or has_complex_converter(name)


if __name__ == "__main__":
    names = core_operators()
    have = [name for name in names if _known(name)]
    print(f"{len(have)} of {len(names)} core operators; missing:")
    for name in names:
        if name not in have:
            print(f"  {name}{'' if name in missing() else '  (outside)'}")

"""Converters supplied by users, in the form of this package or in that of TVM's importer.

A converter of mlcc is `convert(t, **arguments)`, with the arguments' names in the operator's schema; TVM's is
`convert(node, importer)`, with `node.args` and `importer.env`, `importer.block_builder`, `importer.retrieve_args`.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from mlcc.frontend.aten.graph import Argument, Ref

if TYPE_CHECKING:
    from mlcc.frontend.aten.table import Converter
    from mlcc.frontend.aten.translate import Translator

_NAMESPACES = ("aten", "operator", "higher_order", "quantized_decomposed", "torch", "torchvision")


def custom_converters(converters: Mapping[str, Converter]) -> dict[str, Converter]:
    """Return the converters by full operator names; a name without a namespace is in `aten`."""
    by_target = {}
    for name, convert in converters.items():
        has_namespace = "::" in name or name.partition(".")[0] in _NAMESPACES or name.count(".") > 1
        target = name.replace("::", ".") if has_namespace else f"aten.{name}"
        by_target[target.removeprefix("torch.ops.")] = _adapt_tvm(convert) if _has_tvm_signature(convert) else convert
    return by_target


def _has_tvm_signature(convert: Converter) -> bool:
    """Return True if a converter has TVM's signature: two parameters, a node and the importer."""
    try:
        parameters = list(inspect.signature(convert).parameters.values())
    except (TypeError, ValueError):
        return False
    plain = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty]
    return len(plain) == len(parameters) == 2 and ("node" in plain[0].name or "importer" in plain[1].name)


class _Env(dict[Argument, Any]):
    """The values of nodes; a key that is not a node maps to itself."""

    def __missing__(self, key: Argument) -> Any:
        return key


def _adapt_tvm(convert: Converter) -> Converter:
    def converted(t: Translator, **arguments: Any) -> Any:
        node = t.node
        assert node is not None
        env = _Env({Ref(name): value for name, value in t.values.items()})
        args = tuple(node.arguments.values())
        seen = SimpleNamespace(
            args=args,
            kwargs={},
            name=node.place.node,
            target=node.target,
            op="call_function",
            meta=dict(t.tvm_node_meta()),
        )
        importer = SimpleNamespace(
            env=env,
            block_builder=t.bb,
            retrieve_args=lambda _: list(arguments.values()),
            shape_of=t.op.shape_of,
            translator=t,
        )
        return convert(seen, importer)

    return converted

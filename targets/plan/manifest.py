"""The manifest of an object: signatures of its host functions, and the inputs that it was compiled from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import mlcc
from mlcc.ir import tir
from mlcc.ir.tensor_data import TensorData
from mlcc.ir.visit import substitute
from mlcc.runtime.abi import ABI_VERSION, PLACEHOLDER_PREFIX
from mlcc.targets.plan.context import AnyPlanning
from mlcc.targets.plan.dims import as_json
from mlcc.targets.plan.steps import HostFunction, Leaf, Param


def symbol_names(func: HostFunction) -> dict[tir.Var, str]:
    """Return a unique name for every symbol of a function."""
    names: dict[tir.Var, str] = {}
    for symbol in func.symbols:
        name, number = symbol.name, 1
        while name in names.values():
            name, number = f"{symbol.name}_{number}", number + 1
        names[symbol] = name
    return names


def function_facts(func: HostFunction, symbol: str) -> dict[str, Any]:
    """Return the manifest entry of a function."""
    names = symbol_names(func)
    facts: dict[str, Any] = {
        "kind": func.kind, "symbol": symbol, "symbols": list(names.values()),
        "params": [_param(p, names) for p in func.params],
    }  # fmt: skip
    if func.results is not None:
        facts["results"] = _param(func.results, names)
    facts["workspace"] = _workspace(func, names)
    if func.constraints:
        facts["constraints"] = [
            {
                "what": c.what,
                "line": c.line,
                "code": c.code,
                "have": as_json(c.have, names),
                "want": as_json(c.want, names),
            }
            for c in func.constraints
        ]
    if func.lines:
        facts["lines"] = [list(pair) for pair in func.lines.items()]
    return facts


def _workspace(func: HostFunction, names: dict[tir.Var, str]) -> Any:
    """Return the bytes of workspace as an expression; None for a long one, which `PREFIX_f_ws_size` evaluates."""
    if len(func.places) > 16:
        return None
    known: dict[tir.Var, tir.Expr] = {}
    for place, expr in func.places:
        known[place] = func.dims.simplify(substitute(expr, known))
    return as_json(known.get(func.places[-1][0], func.workspace) if func.places else func.workspace, names)


def _param(param: Param, names: dict[tir.Var, str]) -> dict[str, Any]:
    if param.leaf is None:
        return {"kind": "tuple", "name": param.name, "fields": [_param(p, names) for p in param.fields]}
    return _leaf(param.leaf, names)


def _leaf(leaf: Leaf, names: dict[tir.Var, str]) -> dict[str, Any]:
    facts: dict[str, Any] = {"kind": leaf.kind, "name": leaf.name}
    if leaf.kind == "pointer":
        return facts
    if leaf.kind == "shape":
        return facts | {"values": [as_json(d, names) for d in leaf.dims]}
    facts["dtype"] = str(leaf.dtype)
    if leaf.kind == "scalar":
        known = leaf.value is not None and not leaf.value.dtype.is_float and not leaf.written
        return facts | ({"value": as_json(leaf.value, names)} if known and leaf.value is not None else {})
    facts["shape"] = [as_json(d, names) for d in leaf.dims]
    facts["role"] = ("inout" if leaf.read else "out") if leaf.written else "in"
    if leaf.actual is not None:
        facts["at_most"] = True
    if leaf.strides is not None:
        facts["strides"] = [as_json(s, names) for s in leaf.strides]
    return facts


def object_facts(
    functions: dict[str, dict[str, Any]], shared: AnyPlanning, target: dict[str, Any], made_from: dict[str, Any],
    pool: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """Return the whole manifest, with a placeholder for the artifact's prefix.

    `pool` is the version of the thread pool that the artifact carries, 0 for none.
    """
    packed = [
        {"name": s.name, "args": None if s.args is None else list(s.args), "results": s.results, "style": s.style}
        for s in shared.packed_specs()
    ]
    return {
        "mlcc": {"abi": ABI_VERSION, "version": mlcc.__version__},
        "prefix": PLACEHOLDER_PREFIX,
        "target": target,
        "source": made_from,
        "functions": functions,
        "packed": packed,
        "externs": list(shared.ctx.externs),
        "pool": pool,
        "constants": {
            "count": len(shared.constants),
            "bytes": sum(c.nbytes for c in shared.constants),
        },
    }


def fingerprint(texts: Iterable[str], constants: Iterable[TensorData] = ()) -> str:
    """Return a hash of generated code and constants.

    The lowered module is not hashed: printing it takes as long as several passes.
    """
    digest = hashlib.sha256()
    for part in (*texts, *(str(data.sha256) for data in constants)):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()

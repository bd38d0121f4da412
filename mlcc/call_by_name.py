"""Match arrays to the parameters of a loaded function by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mlcc.array_files import names_of_parameters, read_array
from mlcc.errors import CompileError, did_you_mean, error

if TYPE_CHECKING:
    import numpy as np

    from mlcc.runtime.npz import Judge


def arguments_by_name(callee: Any, arrays: Mapping[str, Any]) -> list[Any]:
    """Return the arguments of a loaded function in order: `main(*arguments_by_name(main, {"x": x, **weights}))`.

    The fields of a tuple parameter `t` are the arrays `t.0`, `t.1`, ...; an array `a.b` also matches the parameters
    `a_b` and `p_a_b`. The outputs of a PrimFunc may be omitted and are then None. Arrays in files (`load_arrays`) are
    read here, large ones as views of the files. Raises CompileError E0004 that lists every missing and every unknown
    name, and CallError for a wrong shape or dtype.
    """
    from mlcc.runtime.arguments import array_judge

    leaves = [leaf for param in callee.spec.params for leaf in named_leaves(param, param.name)]
    names = [name for name, _ in leaves]
    judges = {name: array_judge(leaf, f"argument `{name}` of `{callee.name}`") for name, leaf in leaves}
    arguments = match_inputs(arrays, names, f"`{callee.name}`", callee.output_names, judges)
    given = dict(zip(names, arguments, strict=True))

    def value(param: Any, name: str) -> Any:
        if param.kind == "tuple":
            return tuple(value(part, f"{name}.{i}") for i, part in enumerate(param.fields))
        array = given[name]
        if array is None or param.kind == "tensor":
            return array
        return tuple(int(v) for v in array.reshape(-1)) if param.kind == "shape" else array.reshape(-1)[0].item()

    return [value(param, param.name) for param in callee.spec.params]


def named_leaves(param: Any, name: str) -> list[tuple[str, Any]]:
    """Return the name and the parameter of each array that a parameter takes; tuples are flattened."""
    if param.kind != "tuple":
        return [(name, param)]
    return [leaf for i, part in enumerate(param.fields) for leaf in named_leaves(part, f"{name}.{i}")]


def match_inputs(
    arrays: Mapping[str, np.ndarray], names: list[str], func: str, optional: tuple[str, ...] = (),
    judges: Mapping[str, Judge] | None = None,
) -> list[np.ndarray | None]:  # fmt: skip
    """Return the arrays in the order of the parameters; None for an omitted optional one.

    `judges` check the shape and dtype of an array before it is read.

    Raises CompileError E0004 that lists every missing and every unknown name.
    """
    candidates = names_of_parameters(arrays, names)
    known = {array for arrays_of in candidates.values() for array in arrays_of}
    findings = [
        error("E0004", f"no array for parameter `{n}` of {func}", help=did_you_mean(n, set(arrays) - set(names)))
        for n in names
        if not candidates[n] and n not in optional
    ]
    findings += [
        error("E0004", f"{' and '.join(f'`{a}`' for a in candidates[n])} both match parameter `{n}` of {func}")
        for n in names
        if len(candidates[n]) > 1
    ]
    findings += [
        error(
            "E0004", f"{func} has no parameter `{n}`",
            help=did_you_mean(n, names) or f"its parameters are {', '.join(names) or 'none'}",
        )
        for n in arrays
        if n not in known and n not in getattr(arrays, "weights", ())
    ]  # fmt: skip
    if findings:
        raise CompileError(findings)
    judges = judges or {}
    return [read_array(arrays, candidates[n][0], judges.get(n, _accept_any)) if candidates[n] else None for n in names]


def _accept_any(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    return False

"""Match arrays to the parameters of a loaded function by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mlcc.array_files import array_names_by_param, read_array
from mlcc.errors import CompileError, MlccError, did_you_mean, error

if TYPE_CHECKING:
    import numpy as np

    from mlcc.errors import Diagnostic
    from mlcc.runtime.manifest import Value
    from mlcc.runtime.npz import Validator


def arguments_by_name(
    callee: Any, arrays: Mapping[str, Any], ignore_extra: bool = False, spare: Mapping[str, Any] | None = None
) -> list[Any]:
    """The arguments of a loaded function in order: `main(*arguments_by_name(main, {"x": x, **weights}))`.

    The fields of a tuple parameter `t` are the arrays `t.0`, `t.1`, ...; an array `a.b` is also for the parameter `a_b`
    or `p_a_b`. What a PrimFunc writes may be left out: None stands for it. What is in files (`load_arrays`) is read
    here, large arrays as views of the files. Arrays that no parameter takes are wrong unless `ignore_extra`. `spare`
    has arrays, by the names of parameters, for those that get none. Raises CompileError E0004 that lists every missing
    and every unknown name, CallError for what does not fit.
    """
    from mlcc.runtime.arguments import array_validator

    leaves = leaves_by_name(callee)
    judges = {name: array_validator(leaf, f"argument `{name}` of `{callee.name}`") for name, leaf in leaves.items()}
    spare = spare or {}
    optional = (*optional_names(callee), *spare)
    arguments = arrays_by_param(arrays, list(leaves), f"`{callee.name}`", optional, judges, ignore_extra, leaves)
    given = {n: spare.get(n) if array is None else array for n, array in zip(leaves, arguments, strict=True)}

    def value(param: Any, name: str) -> Any:
        if param.kind == "tuple":
            return tuple(value(part, f"{name}.{i}") for i, part in enumerate(param.fields))
        array = given[name]
        if array is None or param.kind == "tensor":
            return array
        return tuple(int(v) for v in array.reshape(-1)) if param.kind == "shape" else array.reshape(-1)[0].item()

    return [value(param, param.name) for param in callee.spec.params]


def arguments_of_each(
    callees: Sequence[Any], paths: Sequence[str], arrays: Mapping[str, Any], ignore_extra: bool = False,
    spare: Callable[[Any], Mapping[str, Any]] = lambda callee: {},
) -> list[list[Any]]:  # fmt: skip
    """The arguments of several functions, by `arguments_by_name`: each takes the arrays that it has parameters for.

    An array is wrong if no function takes it. `spare` makes arrays for the parameters of a function that get none.
    With several functions, messages begin with the file that a function is from, of `paths`.
    """
    if len(callees) == 1:
        return [arguments_by_name(callees[0], arrays, ignore_extra, spare(callees[0]))]
    untaken = set(arrays)
    for callee in callees:
        taken = assign(arrays, list(leaves_by_name(callee)), optional_names(callee)).values()
        untaken -= {array for arrays_of in taken for array in arrays_of}
    untaken -= set(getattr(arrays, "weights", ()))
    findings: list[Diagnostic] = []
    arguments = []
    for callee, path in zip(callees, paths, strict=True):
        try:
            arguments.append(arguments_by_name(callee, arrays, True, spare(callee)))
        except MlccError as exc:
            findings += [replace(d, message=f"{path}: {d.message}") for d in exc.diagnostics]
    if untaken and not ignore_extra:
        names = dict.fromkeys(name for callee in callees for name in leaves_by_name(callee))
        whole = f"none of {', '.join(dict.fromkeys(paths))}"
        findings += _extra([name for name in arrays if name in untaken], whole, [*names], arrays)
    if findings:
        raise CompileError(findings)
    return arguments


def optional_names(callee: Any) -> tuple[str, ...]:
    """The parameters of a PrimFunc that need no array: those that it only writes, and all that it writes at the end."""
    only_written = {param.name for param in callee.spec.params if param.role == "out"}
    return tuple(n for n in callee.written_names if n in only_written or n in callee.output_names)


def leaves_by_name(callee: Any) -> dict[str, Value]:
    """The arrays that the parameters of a loaded function take, by name."""
    return dict(leaf for param in callee.spec.params for leaf in leaf_params(param, param.name))


def leaf_params(param: Any, name: str) -> list[tuple[str, Any]]:
    """Return the name and the parameter of each array that a parameter takes; tuples are flattened."""
    if param.kind != "tuple":
        return [(name, param)]
    return [leaf for i, part in enumerate(param.fields) for leaf in leaf_params(part, f"{name}.{i}")]


def assign(arrays: Iterable[str], names: Sequence[str], optional: Sequence[str] = ()) -> dict[str, list[str]]:
    """The arrays that are for each parameter, by name. An array of a .npy file whose name is none of a parameter is for
    the only one that lacks an array, if there is just one."""
    assigned = array_names_by_param(arrays, names)
    taken = {array for arrays_of in assigned.values() for array in arrays_of}
    loose = [array for array in getattr(arrays, "unnamed", ()) if array not in taken]
    lacking = [name for name in names if not assigned[name] and name not in optional]
    if len(loose) == len(lacking) == 1:
        assigned[lacking[0]] = loose
    return assigned


def arrays_by_param(
    arrays: Mapping[str, np.ndarray], names: list[str], func: str, optional: tuple[str, ...] = (),
    judges: Mapping[str, Validator] | None = None, ignore_extra: bool = False,
    leaves: Mapping[str, Value] | None = None,
) -> list[np.ndarray | None]:  # fmt: skip
    """Return the arrays in the order of the parameters; None for an omitted optional one.

    `judges` check the shape and dtype of an array before it is read. `leaves` say what the parameters are.

    Raises CompileError E0004 that lists every missing and every unknown name.
    """
    assigned = assign(arrays, names, optional)
    missing = [n for n in names if not assigned[n] and n not in optional]
    findings = _missing(missing, func, set(arrays) - set(names), leaves)
    findings += [
        error("E0004", f"{' and '.join(f'`{a}`' for a in assigned[n])} both match parameter `{n}` of {func}")
        for n in names
        if len(assigned[n]) > 1
    ]
    if not ignore_extra:
        taken = {array for arrays_of in assigned.values() for array in arrays_of}
        weights = getattr(arrays, "weights", ())
        findings += _extra([n for n in arrays if n not in taken and n not in weights], func, names, arrays)
    if findings:
        raise CompileError(findings)
    judges = judges or {}
    return [read_array(arrays, assigned[n][0], judges.get(n, _accept_any)) if assigned[n] else None for n in names]


def _missing(
    missing: Sequence[str], func: str, others: set[str], leaves: Mapping[str, Value] | None
) -> list[Diagnostic]:
    """An error for each parameter that has no array; the last one says how to make them, if `leaves` are known."""
    from mlcc.numpy_command import savez_command, show_leaf, size_options

    help = None
    if missing and leaves is not None:
        wanted = {name: leaves[name] for name in missing}
        help = f"run it on random arrays, --random{size_options(wanted)}; or make some for --in inputs.npz:"
        help += f"\n{savez_command(wanted)}"
    findings = []
    for name in missing:
        what = "" if leaves is None else f", {show_leaf(leaves[name])}"
        hint = did_you_mean_any_case(name, others)
        findings.append(error("E0004", f"no array for parameter `{name}` of {func}{what}", help=hint))
    if findings and help is not None:
        last = findings[-1]
        findings[-1] = replace(last, help=help if last.help is None else f"{last.help} Or {help}")
    return findings


def _extra(extra: Sequence[str], func: str, names: Sequence[str], arrays: Mapping[str, np.ndarray]) -> list[Diagnostic]:
    """An error for each array that no parameter takes. `func` names a function, or says that it is none of several."""
    has = "has a parameter" if func.startswith("none of ") else "has no parameter"
    findings = []
    for name in extra:
        help = did_you_mean_any_case(name, names) or f"its parameters are {', '.join(names) or 'none'}"
        if name in getattr(arrays, "unnamed", ()) and names:
            help = f"{help}; say which it is for: --in {names[0]}=FILE"
        elif re.fullmatch(r"arr_\d+", name) and names:
            some = ", ".join(f"{n}={n}" for n in names[:3]) + (", ..." if len(names) > 3 else "")
            help = f"give the arrays names: numpy.savez(path, {some})"
        findings.append(error("E0004", f"{func} {has} `{name}`", help=help))
    if findings:
        last = findings[-1]
        findings[-1] = replace(last, help=f"{last.help}. --ignore-extra leaves out what no parameter takes")
    return findings


def did_you_mean_any_case(word: str, known: Iterable[str]) -> str | None:
    """A help line naming the nearest known word, which may differ in case alone, or None."""
    same = next((k for k in known if k.lower() == word.lower()), None)
    return f"did you mean `{same}`?" if same is not None else did_you_mean(word, known)


def _accept_any(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    return False

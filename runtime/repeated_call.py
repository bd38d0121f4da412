"""The code of a call that differs from an earlier one in the addresses of its arrays only.

Python spends more on a loop over the arguments than on what it does with each, so the function is written out for the
signature at hand: a text, which Python compiles when a function is called again.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from mlcc.runtime.fast import COMPACT, FastPath

_BODY = """\
def repeated(args):
    try:
        area = pop()
    except IndexError:
        return None
    try:
        {arguments}= args
        {shapes}= area.shapes
        if area.run_args is None or not (
            {conditions}
        ):
            push(area)
            return None
        cells = area.cells
        {stores}
    except {unusual}:
        push(area)
        return None
    code = run(*area.run_args)
    if code:
        fail(code)
    push(area)
    return {returned}
"""
# of arrays: read-only, empty, too large for memory; of arguments: too few or too many
_UNUSUAL = "(TypeError, ValueError, BufferError, MemoryError)"


def make_repeated_call(
    path: FastPath, run: Callable[..., int], fail: Callable[[int], NoReturn]
) -> Callable[[tuple[Any, ...]], Any]:
    """Return a function of the arguments of a call that returns its results, or None if it needs another path.

    It takes arrays of the extents for which an area of `path` was checked, and fills in addresses; `run` is the native
    function, and `fail` raises the error for its code.
    """
    scope: dict[str, Any] = {
        "pop": path.areas.pop, "push": path.areas.append, "run": run, "fail": fail, "ndarray": np.ndarray,
        "empty": np.empty, "first_byte": ctypes.c_char.from_buffer, "addressof": ctypes.addressof,
    }  # fmt: skip
    scope |= {f"dtype{i}": dtype for i, dtype in enumerate(path.dtypes)}
    inputs, results = range(path.count), range(path.count, len(path.dtypes))
    conditions = [
        f"type(a{i}) is ndarray and a{i}.dtype is dtype{i} and a{i}.shape == s{i} "
        f"and a{i}.flags.num & {COMPACT} == {COMPACT}"
        for i in inputs
    ]
    stores = [f"cells[{path.data_cells[i]}] = addressof(first_byte(a{i}))" for i in inputs]
    for i in results:
        stores += [f"a{i} = empty(s{i}, dtype{i})", f"cells[{path.data_cells[i]}] = addressof(first_byte(a{i}))"]
    returned = "".join(f"a{i}, " for i in results)
    text = _BODY.format(
        arguments="".join(f"a{i}, " for i in inputs) or "() ",
        shapes="".join(f"s{i}, " for i in (*inputs, *results)),
        conditions="\n            and ".join(conditions) or "True",
        stores="\n        ".join(stores),
        returned=returned.removesuffix(", ") if path.single else f"({returned})",
        unusual=_UNUSUAL,
    )
    exec(text, scope)
    made: Callable[[tuple[Any, ...]], Any] = scope["repeated"]
    return made

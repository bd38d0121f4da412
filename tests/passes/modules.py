"""Small relax modules of one function, and the operators that they call."""

from __future__ import annotations

import mlcc
from mlcc.ir import IRModule, relax
from mlcc.relax.queries import all_bindings

F = 'R.Tensor((4, 4), "float32")'


def module_with_main(*lines: str, result: str = "gv", params: str = f"x: {F}, y: {F}, z: {F}") -> IRModule:
    body = "\n".join(f"            {line}" for line in lines)
    return mlcc.parse(
        f"@I.ir_module\nclass Module:\n    @R.function\n    def main({params}):\n        with R.dataflow():\n"
        f"{body}\n            R.output({result})\n        return {result if ',' not in result else f'({result})'}\n"
    )


def operators(module: IRModule, name: str = "main") -> list[str]:
    """The operators of a function, in order; called functions by their names."""
    names = []
    for binding, _ in all_bindings(module[name].body):
        value = binding.value  # type: ignore[attr-defined]
        if isinstance(value, relax.Call):
            callee = value.args[0] if value.op.name in ("relax.call_tir", "relax.call_dps_packed") else value.op
            names.append(callee.name.removeprefix("relax."))  # type: ignore[attr-defined]
    return names

"""Generate the type stubs of names resolved at run time: `mlcc`, its subpackages, operators and primitives.

Also generates the index of operators by the files that define them.

`python scripts/stubs.py` rewrites them from the registries; a test checks that they are up to date.
"""

from __future__ import annotations

import importlib
import inspect
import keyword
import os
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 120
HEAD = '"""{}\n\nWritten by scripts/stubs.py from what is there at run time.\n"""\n'


def stubs() -> dict[Path, str]:
    """Return the content of every stub, by path."""
    return {
        ROOT / "mlcc" / "__init__.pyi": package(),
        ROOT / "mlcc" / "relax" / "__init__.pyi": relax(),
        ROOT / "mlcc" / "relax" / "op.pyi": operators(),
        ROOT / "mlcc" / "ops" / "family_index.py": families(),
        ROOT / "runtime" / "__init__.pyi": runtime(),
        ROOT / "passes" / "schedule" / "methods.pyi": primitives(),
    }


def default(p: inspect.Parameter) -> str:
    """Return the default of a parameter as source text, ` = ...`, or an empty string."""
    if p.default is p.empty:
        return ""
    return " = " + (f'"{p.default}"' if isinstance(p.default, str) else repr(p.default))


def first_line(doc: str | None) -> str:
    """Return the summary line of a docstring."""
    return " ".join((inspect.cleandoc(doc or "").split("\n\n")[0]).split())


def function(name: str, params: list[str], returns: str, doc: str, indent: str = "") -> Iterator[str]:
    """Yield the lines of a function with its summary, wrapped to WIDTH."""
    head = f"{indent}def {name}({', '.join(params)}) -> {returns}:"
    if len(head) > WIDTH:
        yield f"{indent}def {name}("
        yield from (f"{indent}    {p}," for p in params)
        head = f"{indent}) -> {returns}:"
    yield head + ("" if doc else " ...")
    if doc:
        lines = textwrap.wrap(f'"""{doc}"""', WIDTH, initial_indent=f"{indent}    ", subsequent_indent=f"{indent}    ")
        yield from lines if len(lines) == 1 else [*lines[:-1], lines[-1].removesuffix('"""'), f'{indent}    """']


# ---------------------------------------------------------------- mlcc, relax


def package() -> str:
    import mlcc

    lines = [HEAD.format("mlcc: a compiler driver for tensor programs written as text.")]
    lines += [f"from mlcc import {name} as {name}" for name in mlcc._MODULES]
    lines += [f"from {where} import {name} as {name}" for name, where in mlcc._PUBLIC.items()]
    return "\n".join([*lines, "", "__version__: str", ""])


def runtime() -> str:
    from mlcc import runtime

    lines = [HEAD.format(first_line(runtime.__doc__))]
    lines += [f"from mlcc.runtime.{where} import {name} as {name}" for name, where in runtime._PUBLIC.items()]
    return "\n".join([*lines, ""])


CONVERTIBLE_NODES = ("PrimStructInfo", "ShapeStructInfo", "TensorStructInfo", "TupleStructInfo", "FuncStructInfo",
                     "ShapeExpr", "PrimValue", "StringImm", "DataTypeImm")  # fmt: skip


def relax() -> str:
    """Return the stub of `mlcc.relax`, whose node names are the classes of the IR.

    The constructors of CONVERTIBLE_NODES also accept numbers, lists and names.
    """
    from mlcc import relax
    from mlcc.relax import nodes

    public = {name: where for name, where in relax._PUBLIC.items() if name not in CONVERTIBLE_NODES}
    lines = [
        HEAD.format(first_line(relax.__doc__)),
        "from collections.abc import Sequence as _Sequence",
        "from typing import Any as _Any",
        "",
        "from mlcc.errors import Span as _Span",
        "from mlcc.ir import relax as _ir",
        *(f"from mlcc.relax import {name} as {name}" for name in relax._MODULES),
        *(f"from {'mlcc.ir.relax' if w == nodes.__name__ else w} import {n} as {n}" for n, w in public.items()),
        "",
    ]
    for name in CONVERTIBLE_NODES:
        kind = getattr(nodes, name)
        make_signature = inspect.signature(kind.make)
        params = ["self", *map(_node_parameter, make_signature.parameters.values())]
        lines += [f"class {name}(_ir.{name}):", *function("__init__", params, "None", first_line(kind.__doc__), "    ")]
        if name == "FuncStructInfo":
            given = ["*", *map(_node_parameter, inspect.signature(kind.opaque_func).parameters.values())]
            lines += ["    @staticmethod"]
            lines += function("opaque_func", given, "_ir.FuncStructInfo", first_line(kind.opaque_func.__doc__), "    ")
        lines.append("")
    lines += [f"{alias} = {name}" for alias, name in relax._ALIASES.items()]
    return "\n".join([*lines, ""])


def _node_parameter(p: inspect.Parameter) -> str:
    known = re.sub(r"\b(Sequence|Any|Span)\b", r"_\1", p.annotation).replace("relax.", "_ir.")
    return f"{p.name}: {known}{default(p)}"


# ---------------------------------------------------------------- relax.op

OPERANDS = '''
from collections.abc import Sequence as _Sequence
from typing import Any as _Any
from typing import Protocol as _Protocol
from typing import TypeAlias as _TypeAlias

from mlcc.ir import relax as _relax
from mlcc.ir import tir as _tir
from mlcc.ir.dtypes import DType as _DType
from mlcc.relax.calls import call_dps_packed as call_dps_packed
from mlcc.relax.calls import call_pure_packed as call_pure_packed
from mlcc.relax.calls import call_tir as call_tir
from mlcc.relax.calls import call_tir_inplace as call_tir_inplace
from mlcc.relax.op_call import call as call
from mlcc.te.scalar import Value as _Value

class _Array(_Protocol):
    """A tensor of NumPy or another library."""
    def __dlpack__(self, *args: _Any, **kwargs: _Any) -> _Any: ...

_Scalar: _TypeAlias = int | float | _relax.Expr | _tir.Expr | _Value
_Expr: _TypeAlias = _Scalar | _Array
_Exprs: _TypeAlias = _relax.Expr | _Sequence[_Expr]
_Shape: _TypeAlias = _relax.Expr | _Sequence[_Scalar]
_Info: _TypeAlias = _relax.StructInfo | _Sequence[_relax.StructInfo]
_Dtype: _TypeAlias = str | type | _DType
'''
KINDS = {
    "expr": "_Expr", "exprs": "_Exprs", "rest": "_Expr", "shape": "_Shape", "scalar": "_Scalar",
    "scalars": "_relax.Expr | _Sequence[_Scalar]", "string": "str", "datatype": "_Dtype", "dtype": "_Dtype",
    "func": "str | _relax.Expr", "types": "_Info", "typelist": "_Info", "int": "int", "ints": "int | _Sequence[int]",
    "pads": "int | _Sequence[int]", "sections": "int | _Sequence[int]", "float": "float",
    "floats": "float | _Sequence[float]", "bool": "bool", "str": "str", "any": "_Any",
}  # fmt: skip


def operators() -> str:
    """Return the stub of all operators; a dotted name is a member of a namespace class."""
    from mlcc.ops import registry
    from mlcc.relax import op

    names = sorted({*(n.removeprefix("relax.") for n in registry.names()), *registry.aliases()} - set(op._CALLS))
    lines = [HEAD.format(first_line(op.__doc__)), OPERANDS.strip(), ""]
    for name in names:
        if "." not in name:
            lines += _operator(name, name, "")
    for space in sorted({n.split(".")[0] for n in names if "." in n}):
        lines += ["", f"class _{space}:", f'    """The operators `{space}.*`."""']
        for name in (n for n in names if n.startswith(f"{space}.")):
            assert name.count(".") == 1, name
            lines += ["    @staticmethod", *_operator(name, name.split(".")[1], "    ")]
        lines += ["", f"{space}: _{space}"]
    return "\n".join([*lines, ""])


def _operator(path: str, name: str, indent: str) -> Iterator[str]:
    from mlcc.ops import signature
    from mlcc.relax import op

    assert not keyword.iskeyword(name)
    declared = signature.signature(path)
    assert declared is not None
    known = {p.name: p for p in declared.params}
    params = [_operand(p, known[p.name]) for p in op._python_signature(declared).parameters.values()]
    return function(name, params, "_relax.Call", "", indent)


def _operand(shown: inspect.Parameter, param: Any) -> str:
    kind = KINDS[param.kind]
    if shown.kind is shown.VAR_POSITIONAL:
        return f"*{shown.name}: {kind}"
    if (param.optional or param.default_from) and kind != "_Any":
        kind += " | None"
    return f"{shown.name}: {kind}{default(shown)}"


FAMILY_INDEX = '''"""Index from operators (names without prefix) to the file of `mlcc/ops` that defines them.

Written by scripts/stubs.py from what is there at run time.
"""

_TABLE = """
{}
"""
FAMILY_OF = {{name: line.split()[0] for line in _TABLE.strip().splitlines() for name in line.split()[1:]}}
'''


def families() -> str:
    """Return the index of operators: lines of names, each prefixed with the name of their file."""
    from mlcc.ops.entries import FAMILIES

    lines = []
    for family in FAMILIES:
        names = " ".join(sorted(importlib.import_module(f"mlcc.ops.{family}").OPS))
        lines += textwrap.wrap(
            names, WIDTH, initial_indent=f"{family} ", subsequent_indent=f"{family} ", break_on_hyphens=False
        )
    return FAMILY_INDEX.format("\n".join(lines))


# ---------------------------------------------------------------- primitives of schedules

ARGUMENTS = """
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from mlcc.ir import tir
from mlcc.passes.schedule.handles import BlockRV, ExprRV, LoopRV

Block: TypeAlias = BlockRV | str  # a name stands for `get_block(name)`
Int: TypeAlias = int | ExprRV | tir.IntImm
Buffer: TypeAlias = Int | str | tuple[str, Int] | tir.Buffer
IndexMap: TypeAlias = Callable[..., Any] | tir.IndexMap
"""
ARGUMENT = {"BlockRef": "Block", "LoopRef": "LoopRV", "int": "Int", "BufferArg": "Buffer", "IndexMapArg": "IndexMap",
            "list": "Sequence"}  # fmt: skip
RESULT = {"BlockRef": "BlockRV", "LoopRef": "LoopRV"}


def primitives() -> str:
    """Return the stub of the primitives as methods, which take handles in place of the referenced objects."""
    from mlcc.passes.schedule import registry

    lines = [HEAD.format("The primitives of schedules as methods of `Schedule`."), ARGUMENTS.strip(), ""]
    lines.append("class Primitives:")
    for name in sorted([*registry.names(), *registry.ALIASES]):
        primitive = registry.find(name)
        params = ["self", *map(_argument, primitive.signature.parameters.values())]
        starred = any(p.startswith("*") for p in params)
        keywords = [p for p in primitive.signature.parameters.values() if p.kind is p.KEYWORD_ONLY]
        assert starred or not keywords
        lines += function(name, params, _result(primitive), first_line(primitive.doc), "    ")
    return "\n".join([*lines, ""])


def _argument(p: inspect.Parameter) -> str:
    alternatives = dict.fromkeys(re.sub(r"\w+", lambda m: ARGUMENT.get(m[0], m[0]), p.annotation).split(" | "))
    if "LoopRV" in alternatives:
        alternatives.pop("str", None)  # a location other than a loop also has a handle
    kind = " | ".join(alternatives)
    if p.kind is p.VAR_POSITIONAL:
        return f"*{p.name}: {kind} | Sequence[{kind}]"
    return f"{p.name}: {kind}{default(p)}"


def _result(primitive: Any) -> str:
    kind = str(primitive.signature.return_annotation)
    if primitive.returns == "exprs":
        return kind.replace("int", "ExprRV")
    return "LoopRV" if kind == "LoopRef | str" else re.sub(r"\w+", lambda m: RESULT.get(m[0], m[0]), kind)


def main() -> int:
    for path, text in stubs().items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"wrote {os.path.relpath(path, ROOT)}")
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())

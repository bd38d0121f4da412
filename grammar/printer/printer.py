"""IR to text: `script` writes modules, functions, and any other node.

The text is canonical and total: every node has one, it is Python syntax, names are unique where they are visible, and
what is well-formed reads back to a structurally equal node that prints to the same text.
"""

from __future__ import annotations

import sys
import textwrap
from typing import Any

from mlcc.grammar.constants import data_lines
from mlcc.grammar.printer import relax as printer_relax
from mlcc.grammar.printer import tir as printer_tir
from mlcc.grammar.printer.buffer import declaration
from mlcc.grammar.printer.global_info import global_infos
from mlcc.grammar.printer.names import Names, identifier
from mlcc.grammar.printer.statement import statement
from mlcc.grammar.printer.writer import CANONICAL, DIALECTS, END, START, Style, Writer
from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.ir.node import Node, field_names
from mlcc.ir.tensor_data import TensorData
from mlcc.recursion import deep_recursion

_PREFIXES = {"I": "ir", "R": "relax"}


def script(node: Any, dialect: str = "mlcc", data: bool = True, style: Style = CANONICAL) -> str:
    """The text of a module, a function, or any other node, in the dialect `mlcc` or `tvm`.

    With `data`, the elements of large constants follow as comment lines; else the text has only their references
    (see `constant_data`). A comment that `style` gives is left out where it is as behind the binding before. Raises
    ValueError for an unknown dialect.
    """
    return _write(node, dialect, data, style=style)[0]


def function_lines(name: str, func: tir.PrimFunc | relax.Function, style: Style = CANONICAL) -> list[str]:
    """The lines of a function as its module has them, without indentation and without data."""
    text = script(IRModule({name: func}), data=False, style=style)
    return textwrap.dedent(text.partition("class Module:\n")[2]).splitlines()


def show(node: Any, dialect: str = "mlcc") -> None:
    """Print the text of a node, highlighted on a terminal, which is also spared the data of large constants."""
    from mlcc.colors import is_terminal
    from mlcc.grammar.printer.highlight import print_highlighted

    print_highlighted(script(node, dialect, data=not is_terminal(sys.stdout)))


def constant_data(node: Any) -> dict[str, TensorData]:
    """The constants that the text of `node` refers to, by the keys that it uses."""
    return script_and_data(node)[1]


def script_and_data(node: Any, style: Style = CANONICAL) -> tuple[str, dict[str, TensorData]]:
    """The text of a node without data, and the constants that it refers to by the keys that it uses."""
    text, out = _write(node, "mlcc", False, style=style)
    return text, out.keys.tensors


def _write(
    node: Any, dialect: str, data: bool, trail: list[Any] | None = None, style: Style = CANONICAL
) -> tuple[str, Writer]:
    if dialect not in DIALECTS:
        raise ValueError(f"there is no dialect `{dialect}`; there are {', '.join(DIALECTS)}")
    out = Writer(DIALECTS[dialect], "", trail, style)
    with deep_recursion():  # statements are written by nested calls
        if isinstance(node, IRModule):
            _module(out, node)
        elif isinstance(node, (tir.PrimFunc, relax.Function)):
            _function(out, node, str(node.attrs.get("global_symbol", "main")))
        else:
            _part(out, node)
    if isinstance(node, (IRModule, tir.PrimFunc, relax.Function)):
        out.lines[:0] = [*_header(out), ""]
    if data:
        out.lines += data_lines(out.keys.tensors)
    return "\n".join(out.lines) + "\n", out


def _header(out: Writer) -> list[str]:
    """The imports that the text would need in Python, as comments."""
    modules = {"T": out.dialect.tir_import, **_PREFIXES}
    return [f"# from tvm.script import {modules[name]} as {name}" for name in sorted(out.imports)]


def _module(out: Writer, module: IRModule) -> None:
    out.imports.add("I")
    out.module_name = identifier(module.name)
    out.names.fresh(out.module_name)
    names = Names()
    out.function_names = {name: names.fresh(name) for name in module.functions}
    out.line("@I.ir_module")
    out.line(f"class {out.module_name}:")
    out.depth = 1
    if module.attrs:
        out.line(f"I.module_attrs({out.value(module.attrs)})")
    if module.global_infos:
        out.line(f"I.module_global_infos({global_infos(out, module.global_infos)})")
    if not (module.attrs or module.global_infos or module.functions):
        out.line("pass")
    for i, (name, func) in enumerate(module.functions.items()):
        if i or module.attrs or module.global_infos:
            out.line("")
        _function(out, func, name)
    out.depth = 0


def _function(out: Writer, func: Any, name: str) -> None:
    printed_name = out.function_name(name)
    if isinstance(func, tir.PrimFunc):
        printer_tir.prim_func(out, func, printed_name)
    elif isinstance(func, relax.Function):
        printer_relax.function(out, func, printed_name)
    else:
        out.line(f"{printed_name} = {out.text(func)}")


def _part(out: Writer, node: Any) -> None:
    """A node that is neither a module nor a function, as it would stand in one, without declarations."""
    if isinstance(node, tir.Stmt):
        statement(out, node)
    elif isinstance(node, relax.BindingBlock):
        printer_relax.block(out, node)
    elif isinstance(node, relax.Binding):
        printer_relax.binding(out, node)
    elif isinstance(node, tir.Buffer):
        out.line(f"{identifier(node.name)}: {declaration(out, node)}")
    elif isinstance(node, relax.SeqExpr):
        printer_relax.sequence(out, node)
    else:
        out.line(out.text(node) if isinstance(node, Node) else out.value(node))


# ---------------------------------------------------------------- excerpts

# What is written as a part of its parent, so that no excerpt can point to it alone.
_UNSHOWN = (tir.Block, tir.IterVar, tir.Range, relax.ShapeExpr)


def excerpt(root: Any, path: list[tuple[Any, str]]) -> str:
    """The lines of `root`'s text around the place that `path` leads to, with carets under it.

    `path` is the way down from the root: each value with its label, `.field` or `[index]`.
    """
    trail: list[Any] = []
    above, steps = None, list[str]()
    for value, label in path:
        steps.append(label)
        if isinstance(value, Node):
            before = _earlier(above, steps, value) if above is not None else 0
            if not isinstance(value, _UNSHOWN):
                trail.append((value, before))
            above, steps = value, []
    text, _ = _write(root, "mlcc", False, trail)
    return _marked_lines(text)


def _earlier(above: Node, steps: list[str], node: Node) -> int:
    """Count the occurrences of `node` among the children of `above` before the path `steps`."""
    count = 0
    for name in field_names(type(above)):
        value = getattr(above, name)
        if steps[0] != "." + name:
            count += sum(1 for n in _items(value) if n is node)
            continue
        at = steps[1] if len(steps) > 1 else ""
        if isinstance(value, tuple) and at[1:-1].isdigit():
            count += sum(1 for n in value[: int(at[1:-1])] if n is node)
        return count
    return 0


def _items(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _marked_lines(text: str) -> str:
    at = text.rfind(START)
    if at < 0:
        lines = text.splitlines()
        return "\n".join(f"{i:5} | {line}" for i, line in enumerate(lines[:6], 1))
    depth, end = 0, len(text)
    for i in range(at, len(text)):
        depth += (text[i] == START) - (text[i] == END)
        if depth == 0:
            end = i
            break

    def clean(part: str) -> str:
        return part.replace(START, "").replace(END, "")

    lines = text.split("\n")
    number = text.count("\n", 0, at)
    start_of_line = text.rfind("\n", 0, at) + 1
    column = len(clean(text[start_of_line:at]))
    width = max(1, len(clean(text[at:end])))
    shown = []
    for i in range(max(0, number - 1), min(len(lines), number + 2)):
        line = clean(lines[i])
        shown.append(f"{i + 1:5} | {line}")
        if i == number:
            shown.append("      | " + " " * column + "^" * min(width, max(1, len(line) - column)))
    return "\n".join(shown)

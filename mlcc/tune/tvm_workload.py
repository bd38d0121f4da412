"""Workloads of TVM's databases as text: TVM keeps an IRModule as a graph of typed nodes in JSON.

Nothing of it is executed, and TVM need not be installed: each node of an unscheduled function is printed as TVMScript,
which mlcc's parser reads.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable
from typing import Any

from mlcc.recursion import FRAMES_WITH_C, deep_recursion

_INFIX = {
    "Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "FloorDiv": "//", "FloorMod": "%", "EQ": "==", "NE": "!=",
    "LT": "<", "LE": "<=", "GT": ">", "GE": ">=", "And": "and", "Or": "or",
}  # fmt: skip
_INTRINSICS = {"Min": "min", "Max": "max", "Mod": "truncmod"}
_COMMON_ATTRS = ('"global_symbol"', '"s_tir"')  # attributes of all TVM functions, not printed
_AXES = {0: "spatial", 2: "reduce"}


class UnsupportedContent(Exception):
    """A file has unsupported content; the message names it."""


def workload_text(encoded: str) -> str:
    """The text of a module that a line of `database_workload.json` has in base64. Raises NotRead."""
    try:
        raw = base64.b64decode(encoded, validate=True)
        graph = json.loads(raw[raw.index(b"{") :])  # after the length prefix
        with deep_recursion(FRAMES_WITH_C):
            return _Writer(graph["nodes"]).module(graph["root_index"])
    except (binascii.Error, ValueError, KeyError, IndexError, TypeError) as exc:
        raise UnsupportedContent(f"it is not a module of TVM 0.27: {type(exc).__name__}: {exc}") from exc


class _Writer:
    """Prints nodes, given by their indices; variables get unique names."""

    def __init__(self, nodes: list[Any]) -> None:
        self._nodes = nodes

    def kind(self, at: int) -> str:
        return str(self._nodes[at]["type"]).rpartition(".")[2]

    def data(self, at: int) -> Any:
        return self._nodes[at].get("data")

    def items(self, at: int) -> list[int]:
        """The elements of an array, none of a null."""
        return list(self.data(at) or [])

    def pairs(self, at: int) -> list[tuple[str, int]]:
        """The entries of a map with texts as keys."""
        flat = self.items(at)
        return [(str(self.data(k)), v) for k, v in zip(flat[::2], flat[1::2], strict=True)]

    # ------------------------------------------------------------ modules and functions

    def module(self, at: int) -> str:
        if self.kind(at) == "PrimFunc":
            return "\n".join(self.function("main", at))
        functions = self.items(self.data(at)["functions"])
        lines = []
        for var, func in zip(functions[::2], functions[1::2], strict=True):
            if self.kind(func) != "PrimFunc":
                raise UnsupportedContent(f"a workload has a {self.kind(func)}")
            lines += self.function(str(self.data(self.data(var)["name_hint"])), func)
        return "\n".join(lines) + "\n"

    def function(self, name: str, at: int) -> list[str]:
        data = self.data(at)
        params, matched, sizes = [], [], dict[str, str]()
        for param in self.items(data["params"]):
            own = self.var(param)
            if not self.is_buffer(param):
                params.append(f"{own}: T.{self.dtype(self.data(param)['ty'])}")
                continue
            shape = self.items(self.data(self.data(param)["ty"])["shape"])
            symbols = {self.var(n): f"T.{self.dtype(self.data(n)['ty'])}" for n in shape if self.kind(n) == "Var"}
            sizes.update(symbols)
            params.append(f"{own}: {self.buffer_type(param)}" if not symbols else f"{own}_handle: T.handle")
            if symbols:
                matched.append(f"    {own} = T.match_buffer({own}_handle, {self.buffer_arguments(param)})")
        attrs = self.attributes(self.data(data["attrs"])["__dict__"] if self.data(data["attrs"]) else 0)
        attrs = [entry for entry in attrs if not entry.startswith(_COMMON_ATTRS)]
        head = [f"@T.prim_func(private=True)\ndef {name}({', '.join(params)}):"]
        head += [f"    T.func_attr({{{', '.join(attrs)}}})"] if attrs else []
        head += [f"    {size} = {dtype}()" for size, dtype in sizes.items()]
        return [*head, *matched, *self.statement(data["body"], 1)]

    # ------------------------------------------------------------ statements

    def statement(self, at: int, depth: int) -> list[str]:
        write: Callable[[Any, int], list[str]] | None = getattr(self, f"stmt_{self.kind(at)}", None)
        if write is None:
            raise UnsupportedContent(f"a workload has a statement {self.kind(at)}")
        return write(self.data(at), depth)

    def stmt_SeqStmt(self, data: Any, depth: int) -> list[str]:
        return [line for stmt in self.items(data["seq"]) for line in self.statement(stmt, depth)]

    def stmt_For(self, data: Any, depth: int) -> list[str]:
        if data["kind"] != 0 or data["thread_binding"] or self.items(data["annotations"]):
            raise UnsupportedContent("a workload is scheduled already")
        bounds = f"{self.expr(data['min'])}, {self.expr(data['min'])} + {self.expr(data['extent'])}"
        zero = self.integer(data["min"]) == 0
        loop = f"T.serial({self.expr(data['extent']) if zero else bounds})"
        return [
            f"{'    ' * depth}for {self.var(data['loop_var'])} in {loop}:",
            *self.statement(data["body"], depth + 1),
        ]

    def stmt_SBlockRealize(self, data: Any, depth: int) -> list[str]:
        block, pad = self.data(data["block"]), "    " * (depth + 1)
        lines = []
        for var, value in zip(self.items(block["iter_vars"]), self.items(data["iter_values"]), strict=True):
            axis = self.data(var)
            if axis["iter_type"] not in _AXES:
                raise UnsupportedContent(f"an axis is of kind {axis['iter_type']}")
            span = self.data(axis["dom"])
            kind = _AXES[axis["iter_type"]]
            lines.append(
                f"{pad}{self.var(axis['var'])} = T.axis.{kind}({self.expr(span['extent'])}, {self.expr(value)})"
            )
        if self.integer(data["predicate"]) != 1:
            lines.append(f"{pad}T.where({self.expr(data['predicate'])})")
        if lines:
            lines.append(f"{pad}T.reads({self.regions(block['reads'])})")
            lines.append(f"{pad}T.writes({self.regions(block['writes'])})")
        entries = self.attributes(block["annotations"])
        lines += [f"{pad}T.block_attr({{{', '.join(entries)}}})"] if entries else []
        for buffer in self.items(block["alloc_buffers"]):
            lines.append(f"{pad}{self.var(buffer)} = T.alloc_buffer({self.buffer_arguments(buffer)})")
        if self.data(block["init"]) is not None:
            lines += [f"{pad}with T.init():", *self.statement(block["init"], depth + 2)]
        head = f"{'    ' * depth}with T.block({json.dumps(self.data(block['name_hint']))}):"
        return [head, *lines, *self.statement(block["body"], depth + 1)]

    def stmt_BufferStore(self, data: Any, depth: int) -> list[str]:
        return [f"{'    ' * depth}{self.access(data['buffer'], data['indices'])} = {self.expr(data['value'])}"]

    def stmt_IfThenElse(self, data: Any, depth: int) -> list[str]:
        pad = "    " * depth
        lines = [f"{pad}if {self.expr(data['condition'])}:", *self.statement(data["then_case"], depth + 1)]
        if self.data(data["else_case"]) is not None:
            lines += [f"{pad}else:", *self.statement(data["else_case"], depth + 1)]
        return lines

    # ------------------------------------------------------------ expressions

    def expr(self, at: int) -> str:
        kind, data = self.kind(at), self.data(at)
        if kind == "Var":
            return self.var(at)
        if (number := self.integer(at)) is not None:
            return self.number(number, self.dtype(data["ty"]))
        if kind == "FloatImm":
            return self.number(data["value"], self.dtype(data["ty"]))
        if kind in _INFIX:
            return f"({self.expr(data['a'])} {_INFIX[kind]} {self.expr(data['b'])})"
        if kind in _INTRINSICS:
            return f"T.{_INTRINSICS[kind]}({self.expr(data['a'])}, {self.expr(data['b'])})"
        if kind == "Not":
            return f"(not {self.expr(data['a'])})"
        if kind == "Cast":
            return f'T.Cast("{self.dtype(data["ty"])}", {self.expr(data["value"])})'
        if kind == "Select":
            parts = (self.expr(data[name]) for name in ("condition", "true_value", "false_value"))
            return f"T.Select({', '.join(parts)})"
        if kind in ("TensorLoad", "BufferLoad"):
            return self.access(data["source" if "source" in data else "buffer"], data["indices"])
        if kind == "Call" and self.kind(data["op"]) == "Op":
            name = str(self.data(data["op"])).rpartition(".")[2]
            return f"T.{name}({', '.join(map(self.expr, self.items(data['args'])))})"
        raise UnsupportedContent(f"a workload has an expression {kind}")

    def integer(self, at: int) -> int | None:
        """The value of an integer constant, which is a node of its own; None of any other expression."""
        return int(self.data(self.data(at)["value"])) if self.kind(at) == "IntImm" else None

    def number(self, value: float, dtype: str) -> str:
        if dtype == "int32":
            return str(value)
        if dtype == "bool":
            return f"T.bool({bool(value)})"
        shown = repr(value) if math.isfinite(value) else f'"{value}"'
        return f"T.{dtype}({shown})"

    def access(self, buffer: int, indices: int) -> str:
        return f"{self.var(buffer)}[{', '.join(map(self.expr, self.items(indices))) or '()'}]"

    def regions(self, at: int) -> str:
        """The buffer regions of a block."""
        texts = []
        for region in self.items(at):
            data = self.data(region)
            spans = [self.data(span) for span in self.items(data["region"])]
            parts = [f"{self.expr(s['min'])} : {self.expr(s['min'])} + {self.expr(s['extent'])}" for s in spans]
            texts.append(f"{self.var(data['source' if 'source' in data else 'buffer'])}[{', '.join(parts) or '()'}]")
        return ", ".join(texts)

    # ------------------------------------------------------------ variables, types, attributes

    def var(self, at: int) -> str:
        """Return the unique name of a variable."""
        name = str(self.data(self.data(at)["name"]))
        return f"{''.join(c if c.isalnum() and c.isascii() else '_' for c in name)}_{at}"

    def dtype(self, at: int) -> str:
        return str(self.data(at)["dtype"])

    def is_buffer(self, at: int) -> bool:
        return self.kind(self.data(at)["ty"]) == "BufferType"

    def buffer_arguments(self, at: int) -> str:
        """The shape, dtype and scope of a buffer. Raises NotRead for a buffer that is not row-major."""
        data = self.data(self.data(at)["ty"])
        if self.items(data["strides"]):
            raise UnsupportedContent("a buffer has strides")
        shape = "".join(f"{self.expr(n)}, " for n in self.items(data["shape"]))
        scope = str(self.data(data["storage_scope"]) or "")
        more = f', scope="{scope}"' if scope not in ("", "global") else ""
        return f'({shape.rstrip() if shape else ""}), "{self.dtype(data["dtype"])}"{more}'

    def buffer_type(self, at: int) -> str:
        return f"T.Buffer({self.buffer_arguments(at)})"

    def attributes(self, at: int) -> list[str]:
        """Print the entries of a map of plain values."""
        return [f"{json.dumps(key)}: {self.value(value)}" for key, value in (self.pairs(at) if at else [])]

    def value(self, at: int) -> str:
        kind, data = self.kind(at), self.data(at)
        if kind in ("String", "str"):
            return json.dumps(data)
        if kind == "StringImm":
            return self.value(data["value"])
        if kind in ("bool", "int", "float"):
            return repr(data)
        if kind == "Array":
            return f"[{', '.join(map(self.value, data))}]"
        return self.expr(at)

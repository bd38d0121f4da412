"""What a hover says: a page of the reference, or what is known of a name, as Markdown."""

from __future__ import annotations

import inspect
import re
import textwrap
from dataclasses import dataclass

from mlcc.ir import construct, relax, tir
from mlcc.lsp.check import Checked
from mlcc.lsp.document import Definition, Document
from mlcc.reference.forms import FORMS

_KINDS = {"size": "a size, of dtype int64", "loop": "a loop variable", "parameter": "a parameter"}
_PASS = re.compile(r"[\w-]+")
_ROOTS = {"relax": "R", "tir": "T", "ir": "I", "tirx": "T"}


@dataclass(frozen=True, slots=True)
class Hover:
    """Markdown about the text from `start` to `end`."""

    markdown: str
    start: int
    end: int


def hover(document: Document, offset: int, checked: Checked | None) -> Hover | None:
    """Return what is known of the word at an offset. `checked` is of this text, or of an earlier one, or None."""
    comment = document.comment_at(offset)
    if comment is not None:
        return _pass(comment, offset)
    block = document.block_at(offset)
    if block is not None:
        return Hover(_code(_block_text(block, checked, document)), block.start, block.end)
    size = document.size_at(offset)
    if size is not None:
        return Hover(_code(_definition_text(size, checked, document)), *document.string_range(offset))
    found = document.dotted_at(offset)
    if found is None:
        return None
    path, token = found
    root, _, rest = path.partition(".")
    definition = document.resolve(root, offset)
    if rest and (definition is None or definition.kind == "class" or root == "sch"):
        page = topic_page(path, document.is_script)
        if page is not None:
            start = offset_of_path(document, token.start, path)
            return Hover(page, start, start + len(path))
    call = document.call_at(offset)
    after = document.text[token.end : token.end + 2].lstrip()
    if call is not None and after.startswith("=") and not after.startswith("==") and token.value == path:
        text = _parameter_text(call.callee, path)
        if text is not None:
            return Hover(text, token.start, token.end)
    if rest and definition is not None and definition.kind == "class":
        definition = document.resolve(rest.partition(".")[0], offset)
    elif rest and root == "cls":
        definition = next((d for d in document.definitions if d.kind == "function" and d.name == rest), None)
    elif rest and token.value != root:
        return None
    if definition is None:
        return None
    return Hover(_code(_definition_text(definition, checked, document)), token.start, token.end)


def offset_of_path(document: Document, offset: int, path: str) -> int:
    """Where the dotted name that an offset is in starts."""
    start = document.text.rfind(path, max(offset - len(path), 0), offset + len(path))
    return start if start >= 0 else offset


def topic_page(path: str, script: bool = False) -> str | None:
    """Return the page of an operator, intrinsic, form or primitive as Markdown, or None."""
    from mlcc.reference.pages import pages

    root, _, rest = path.partition(".")
    root = _ROOTS.get(root, root)
    topic = f"{root}.{rest}"
    if root not in ("R", "T", "I", "sch") or (root == "sch") != script:
        return None
    found = pages(topic) if root != "I" or topic in FORMS else []
    if not found and root == "sch":
        return _method(rest)
    return markdown(found[0]) if found else None


def _method(name: str) -> str | None:
    """What a method of the schedule does that is no primitive."""
    from mlcc.passes.schedule.mls.run import METHODS
    from mlcc.passes.schedule.schedule import Schedule

    method = getattr(Schedule, name, None) if name in METHODS else None
    if method is None:
        return None
    parameters = ", ".join(list(inspect.signature(method).parameters)[1:])
    return f"{_code(f'sch.{name}({parameters})')}\n\n{inspect.getdoc(method) or ''}"


def markdown(page: str) -> str:
    """Return a page of the reference as Markdown: its first line and indented paragraphs are code."""
    head, _, rest = page.partition("\n")
    if ": " in head.partition("(")[0]:  # a pass: name and sentence
        name, _, sentence = head.partition(": ")
        head, rest = name, f"{sentence}\n{rest}"
    parts = [_code(head)]
    for part in re.split(r"\n\s*\n", rest.strip("\n")):
        lines = part.splitlines()
        if not lines:
            continue
        if all(re.match(r"  \S[^:]*: |     ", line) for line in lines) and not part.startswith("    "):
            parts.append("\n".join(re.sub(r"^  (?=\S)", "- ", line) for line in lines))
        elif any(line.startswith("  ") for line in lines):
            parts.append(_code(textwrap.dedent(part)))
        else:
            parts.append(part)
    return "\n\n".join(parts)


def _code(text: str) -> str:
    return f"```mlc\n{text}\n```"


def _pass(comment: tuple[int, int, str], offset: int) -> Hover | None:
    """The page of a pass in a `# PASSES:` line."""
    from mlcc.reference.pages import pages

    start, _, text = comment
    if not re.match(r"#\s*PASSES:", text):
        return None
    for match in _PASS.finditer(text):
        if match.start() <= offset - start <= match.end():
            word = match[0]
            known = pages(word) or (pages(f"-{word}") if re.fullmatch(r"O\d", word) else [])
            return Hover(markdown(known[0]), start + match.start(), start + match.end()) if known else None
    return None


def _parameter_text(callee: str, name: str) -> str | None:
    """What a parameter of an operator or primitive takes."""
    root, _, rest = callee.partition(".")
    if root == "sch":
        return _code(f"{callee}(..., {name}=...)")
    from mlcc.ops.signature import REQUIRED, signature

    found = signature(rest) if root in ("R", "relax") else None
    parameter = None if found is None else found.param(name)
    if parameter is None:
        return None
    default = "" if parameter.default is REQUIRED else f" = {parameter.default!r}"
    return f"{_code(f'{name}: {_kind_text(parameter.kind, parameter.count)}{default}')}\n\nParameter of `{callee}`."


def _kind_text(kind: str, count: int) -> str:
    known = {
        "expr": "a tensor", "exprs": "a tuple of tensors", "int": "an integer", "ints": "integers",
        "bool": "True or False", "float": "a number", "floats": "numbers", "str": "a string", "dtype": "a dtype",
        "shape": "a shape", "scalar": "a scalar", "scalars": "scalars", "string": "a string", "datatype": "a dtype",
        "func": "a function", "rest": "all further arguments", "types": "a type", "typelist": "types", "any": "a value",
        "sections": "a number of parts, or the places to cut at",
    }.get(kind, kind)  # fmt: skip
    return f"{known} ({count}, or one for all)" if count else known


def _definition_text(definition: Definition, checked: Checked | None, document: Document) -> str:
    if definition.kind == "function":
        start, end = definition.statement
        return textwrap.dedent(document.text[start:end])
    known = _node_text(definition, checked, document)
    if known is not None:
        return known
    kind = _KINDS.get(definition.kind)
    line = document.text[slice(*definition.statement)]
    return f"{definition.name}  # {kind}" if kind else line if "\n" not in line else definition.name


def _nodes(definition: Definition, checked: Checked | None, document: Document, start: int) -> list[object]:
    """The nodes of a definition. In a text that has changed since, the definition of the same number of its name."""
    if checked is None or checked.module is None:
        return []
    if checked.text != document.text:
        function = definition.inside.name if definition.inside is not None else None
        same = [d for d in document.definitions if _is_same(d, definition, function)]
        old = [d for d in Document(checked.text, checked.path).definitions if _is_same(d, definition, function)]
        at = same.index(definition)
        if at >= len(old):
            return []
        start += old[at].start - definition.start
        if definition.kind == "block":
            start = old[at].statement[0]
    return list(checked.nodes.get(start, ()))


def _is_same(one: Definition, other: Definition, function: str | None) -> bool:
    inside = one.inside.name if one.inside is not None else None
    return one.name == other.name and one.kind == other.kind and inside == function


def _node_text(definition: Definition, checked: Checked | None, document: Document) -> str | None:
    nodes = _nodes(definition, checked, document, definition.start)
    nodes.sort(key=lambda n: not isinstance(n, (tir.Buffer, relax.Var, tir.For, tir.IterVar)))
    name = definition.name
    match nodes[0] if nodes else None:
        case relax.Var(struct_info=info) if info is not None:
            return f"{name}: {info}"
        case tir.Buffer() as buffer:
            return f"{name}{':' if definition.kind == 'parameter' else ' ='} {buffer_text(buffer)}"
        case tir.For() as loop:
            ends = f"{loop.extent}" if _is_zero(loop.min) else f"{loop.min}, {loop.min} + {loop.extent}"
            thread = f', "{loop.thread}"' if loop.thread else ""
            kind = "thread_binding" if loop.thread else loop.kind.value
            return f"for {name} in T.{kind}({ends}{thread})  # {loop.var.dtype}"
        case tir.IterVar() as axis:
            ends = (
                f"{axis.dom.extent}"
                if _is_zero(axis.dom.min)
                else f"({axis.dom.min}, {construct.add(axis.dom.min, axis.dom.extent)})"
            )
            return f"{name} = T.axis.{axis.kind.name.lower()}({ends})  # {axis.var.dtype}"
        case tir.Var() as variable:
            return f"{name}: {'T.handle' if variable.pointer else f'T.{variable.dtype}'}"
    return None


def _is_zero(expr: tir.Expr) -> bool:
    return isinstance(expr, tir.IntImm) and expr.value == 0


def buffer_text(buffer: tir.Buffer) -> str:
    """A buffer as a call that makes it, on one line."""
    shape = ", ".join(str(n) for n in buffer.shape) + ("," if len(buffer.shape) == 1 else "")
    parts = [f"({shape})", f'"{buffer.dtype}"']
    if buffer.strides:
        parts.append(f"strides=({', '.join(str(n) for n in buffer.strides)})")
    if buffer.elem_offset is not None and not _is_zero(buffer.elem_offset):
        parts.append(f"elem_offset={buffer.elem_offset}")
    if buffer.scope != "global":
        parts.append(f'scope="{buffer.scope}"')
    return f"T.Buffer({', '.join(parts)})"


def _block_text(block: Definition, checked: Checked | None, document: Document) -> str:
    """The header of a block with its axes and what it reads and writes."""
    lines = [f'with T.block("{block.name}"):']
    for node in _nodes(block, checked, document, block.statement[0]):
        if isinstance(node, tir.Block):
            for axis in node.iter_vars:
                lines.append(f"    {axis.var.name} = T.axis.{axis.kind.name.lower()}({axis.dom.extent})")
            for word, regions in (("reads", node.reads), ("writes", node.writes)):
                if regions:
                    lines.append(f"    T.{word}({', '.join(region_text(r) for r in regions)})")
            break
    return "\n".join(lines)


def region_text(region: tir.BufferRegion) -> str:
    """A region as a text writes it: `A[i, 0:4]`."""
    parts = []
    for at in region.region:
        one = isinstance(at.extent, tir.IntImm) and at.extent.value == 1
        parts.append(str(at.min) if one else f"{at.min}:{construct.add(at.min, at.extent)}")
    return f"{region.buffer.name}[{', '.join(parts)}]"

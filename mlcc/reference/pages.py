"""The page of a topic, as `mlcc explain` prints it.

A topic is written as a user meets it: `R.nn.conv2d`, `T.exp`, `T.Buffer`, `fuse`, `sch.split`, `llvm`, `cpu`,
`MLCC_JOBS`, `-O2`, `E0312`, `exit-codes`, `reduction-axis`. A name that several kinds have gives all of their pages.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from mlcc.codes.exit_codes import EXIT_CODES, SIGNALS
from mlcc.reference.forms import FORMS
from mlcc.reference.glossary import term_page, terms
from mlcc.reference.sections import Section, intrinsic_section, operator_section

if TYPE_CHECKING:
    from mlcc.ir.intrinsics import Intrinsic
    from mlcc.machine.target import Target
    from mlcc.ops.registry import OpDef

WIDTH = 100
# how `fuse` treats an operator, by its kind
_FUSION = {
    0: "computed element by element, fuses with what comes before and after",
    1: "computed element by element with broadcasting, fuses with what comes before and after",
    2: "each element of the result is one of an operand, fuses with what comes before and after",
    3: "a reduction, takes what comes before it in",
    4: "takes in what is computed element by element from its result",
    7: "a tuple",
    8: "a kernel of its own",
}


def pages(topic: str) -> list[str]:
    """The pages of a topic, the most likely first; an empty list for an unknown one."""
    finders: list[Callable[[str], str | None]] = [
        _operator, _intrinsic, _form, _pass, _primitive, _level, _setting, _target, _term,
    ]  # fmt: skip
    found = [finder(topic) for finder in finders]
    return [page for page in found if page is not None]


def topics() -> Iterator[str]:
    """All topics, each once: names in the spelling that says their kind, and the terms of the glossary."""
    return iter(dict.fromkeys([*_names(), *terms()]))


def _names() -> Iterator[str]:
    from mlcc import backends
    from mlcc.ir.intrinsics import INTRINSICS
    from mlcc.ops.signature import EXPANDED, names
    from mlcc.passes import names as pass_names
    from mlcc.passes.manage.levels import LEVELS
    from mlcc.passes.schedule import registry
    from mlcc.runtime.settings import VARIABLES

    yield from (f"R.{name.removeprefix('relax.')}" for name in names())
    yield from (f"R.{name}" for name in EXPANDED)
    yield from (f"T.{name}" for name in INTRINSICS)
    yield from FORMS
    yield from pass_names()
    yield from (f"sch.{name}" for name in registry.names())
    yield from (f"-{name}" for name in LEVELS)
    yield from VARIABLES
    yield from (backend.kind for backend in backends.registered_backends())
    yield "exit-codes"


def _filled(text: str) -> str:
    """Paragraphs filled to the width of a terminal; indented lines stay."""
    parts = []
    for part in text.strip().split("\n\n"):
        keep = any(line.startswith((" ", "```", "- ", "|")) for line in part.splitlines())
        parts.append(part if keep else "\n".join(textwrap.wrap(" ".join(part.split()), WIDTH)))
    return "\n\n".join(parts)


def _section_text(section: Section) -> str:
    """Format a section: meaning, facts, example."""
    lines = [_filled(section.meaning)]
    if section.facts:
        column = max(len(what) for what, _ in section.facts) + 5
        lines.append("")
        for what, text in section.facts:
            head = f"  {what}:".ljust(column)
            lines += textwrap.wrap(text, WIDTH, initial_indent=head, subsequent_indent=" " * column)
    if section.example:
        lines += ["", "Example:", "", textwrap.indent(section.example.rstrip(), "    ")]
    if section.judge:
        lines += ["", "The same in Python:", "", textwrap.indent(section.judge.rstrip(), "    ")]
    return "\n".join(lines)


def _operator(topic: str) -> str | None:
    from mlcc.ops.signature import EXPANDED, short_name, signature, signature_text

    short = short_name(topic)
    section = operator_section(short)
    if signature(short) is None:
        return None if short not in EXPANDED or section is None else f"R.{short}\n\n{_section_text(section)}"
    lines = [f"R.{signature_text(short)}", ""]
    if section is not None:
        lines += [_section_text(section), ""]
    elif reference_doc(short):
        lines += [_filled(reference_doc(short)), ""]
    return "\n".join([*lines, *operator_notes(short)])


def operator_notes(short: str) -> list[str]:
    """Format the records of an operator: its other names, and how the compiler treats it."""
    from mlcc import ops
    from mlcc.ops.signature import aliases

    others = sorted(alias for alias, known in aliases().items() if known == short)
    notes = [f"Also written {', '.join(f'R.{name}' for name in others)}."] if others else []
    op = ops.get(short)
    return notes if op is None else [*notes, _compilation(short, op)]


def _compilation(short: str, op: OpDef) -> str:
    """Describe how the compiler treats an operator: loops, a step of the program, or nothing."""
    from mlcc.interp.graph import SPECIAL_OPERATORS
    from mlcc.targets.plan.calls import NATIVE_OPERATORS

    if op.impl.lower is not None or op.impl.expand is not None:
        return f"Fusion: {_FUSION[op.kind]}."
    if short in NATIVE_OPERATORS:
        return "It has no loops of its own: the compiler handles its calls."
    if short in SPECIAL_OPERATORS:
        return "It cannot be compiled: it runs in the interpreter only."
    return "It can be read, passed through and printed, but neither compiled nor interpreted."


def reference_doc(name: str) -> str:
    """The docstring of the NumPy reference of an operator from outside, which has no section."""
    from mlcc.ops.entries import entry

    reference = entry(name).numpy
    return inspect.getdoc(reference) or "" if inspect.isfunction(reference) else ""


def _intrinsic(topic: str) -> str | None:
    from mlcc.ir import intrinsics

    name = topic.removeprefix("T.")
    found = intrinsics.find(name)
    if found is None or (name == topic and operator_section(name) is not None):
        return None
    lines = [f"T.{found.name}", ""]
    section = intrinsic_section(found.name)
    if section is not None:
        lines += [_section_text(section), ""]
    lines += [f"  {what}:".ljust(13) + text for what, text in intrinsic_facts(found)]
    others = intrinsic_aliases(found.name)
    if others:
        lines += ["", f"Also written {', '.join(f'T.{other}' for other in others)}."]
    return "\n".join(lines)


def intrinsic_facts(intrinsic: Intrinsic) -> list[tuple[str, str]]:
    """Format the record of an intrinsic: arguments, result, effects."""
    result = {
        "same": "the dtype of its first argument", "second": "the dtype of its second argument",
        "explicit": "the dtype that is written before its arguments", "last": "the dtype that is written last",
        "groups": "an int32 (of floats a float32) for each 32 bits of its arguments", "place": "int64",
    }.get(intrinsic.result, intrinsic.result)  # fmt: skip
    effect = {
        "PURE": "none", "READ": "reads memory", "UPDATE": "changes memory or the outside",
        "OPAQUE": "ends or redirects the control flow",
    }[intrinsic.effect.name]  # fmt: skip
    arguments = f"{intrinsic.arity}, {_operands(intrinsic.operands)}"
    return [("arguments", arguments), ("result", result), ("effects", effect)]


def intrinsic_aliases(name: str) -> list[str]:
    """The other names of an intrinsic, sorted."""
    from mlcc.ir import intrinsics

    return sorted(alias for alias, known in intrinsics.ALIASES.items() if known == name)


def _operands(kind: str) -> str:
    return {"float": "floats", "integer": "integers or bool", "match": "numbers of one dtype"}.get(kind, "of any dtype")


def _pass(topic: str) -> str | None:
    from mlcc.options.typed import kebab
    from mlcc.passes import is_pass
    from mlcc.passes.manage.manager import help_text
    from mlcc.passes.tvm_names import counterpart, hint

    name = kebab(topic)
    if is_pass(name):
        return help_text(name)
    ours = counterpart(topic)
    return hint(topic) if ours is None else help_text(ours)


def _primitive(topic: str) -> str | None:
    from mlcc.passes.schedule import registry

    name = topic.rpartition(".")[2] if topic.startswith(("sch.", "Schedule.")) else topic
    if name not in registry.names() and name not in registry.ALIASES:
        return None
    primitive = registry.find(name)
    given = ", ".join(_parameter(p) for p in primitive.signature.parameters.values())
    return f"sch.{name}({given})\n\n{_filled(inspect.cleandoc(primitive.doc or ''))}"


def _form(topic: str) -> str | None:
    form = next((FORMS[name] for name in (topic, f"R.{topic}", f"T.{topic}", f"I.{topic}") if name in FORMS), None)
    return None if form is None else f"{form[0]}\n\n{_filled(form[1])}"


def _parameter(parameter: inspect.Parameter) -> str:
    star = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
    default = parameter.default
    stated = "" if default is parameter.empty else "=" + (f'"{default}"' if isinstance(default, str) else repr(default))
    return star + parameter.name + stated


def _level(topic: str) -> str | None:
    from mlcc import backends
    from mlcc.passes.manage.levels import DEFAULT, LEVELS, MEANING

    name = topic.lstrip("-")
    if name not in LEVELS:
        return None
    lines = [f"-{name}: {dict(part.split(' ', 1) for part in MEANING.split(', '))[name[1:]]}"]
    lines += ["", f"Levels are {MEANING}; {DEFAULT} is the default.", ""]
    for backend in backends.registered_backends():
        lines += [f"The passes for {backend.kind}:", *_listed(backend.groups[name]), ""]
    return "\n".join(lines).rstrip()


def _listed(pipeline: str) -> list[str]:
    """The text of a pipeline in lines that end between passes."""
    spaced = re.sub(r",(?![^{}]*\})", ", ", pipeline).replace(" }", "}")
    return textwrap.wrap(spaced, WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def _setting(topic: str) -> str | None:
    from mlcc.runtime.settings import VARIABLES

    if topic.replace("_", "-").lower() == "exit-codes":
        lines = [f"  {code:>3}  {meaning}" for code, meaning in EXIT_CODES.items()]
        return "\n".join(["Exit codes", "", *lines, "", f"{SIGNALS[0].upper()}{SIGNALS[1:]}."])
    variable = VARIABLES.get(topic.upper())
    if variable is None:
        return None
    return f"{topic.upper()}: {variable.words}\n\n{_filled(variable.meaning)}"


def _target(topic: str) -> str | None:
    from mlcc import backends

    for backend in backends.registered_backends():
        if topic == backend.kind:
            return (
                f"The target {backend.kind}\n\n{_filled(inspect.cleandoc(backend.options.__doc__ or ''))}\n\n"
                + _options(backend.options)
            )
    return None


def _term(topic: str) -> str | None:
    return term_page(topic, WIDTH)


def _options(cls: type[Target]) -> str:
    """The options of a kind of target with types, defaults, meanings and TVM's names."""
    import dataclasses
    import typing

    from mlcc.options.text import format_value
    from mlcc.options.typed import describe_type, kebab

    hints = typing.get_type_hints(cls)
    in_tvm = {ours: name for name, ours in cls.tvm_names.items()}
    lines = ["Options:"]
    for field in dataclasses.fields(cls):
        if field.name == "kind":
            continue
        kind, default = describe_type(hints[field.name]), format_value(field.default)
        other = f", in TVM {in_tvm[field.name].replace('_', '-')}" if field.name in in_tvm else ""
        lines.append(f"  {kebab(field.name)}: {kind} (default {default}{other})")
        meaning = cls.meanings.get(field.name, "")
        lines += textwrap.wrap(meaning, WIDTH, initial_indent="      ", subsequent_indent="      ")
    return "\n".join(lines)

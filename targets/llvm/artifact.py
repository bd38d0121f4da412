"""Artifacts for CPUs: an object file with its manifest, which can be written in several forms."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from mlcc.errors import CompileError, error
from mlcc.files import Content, byte_chunks, write_files
from mlcc.ir.tensor_data import TensorData
from mlcc.outputs import Outputs, check_suffix, kind_of, symbol_prefix
from mlcc.runtime.abi import (
    ALIGNMENT,
    CONSTANTS_SECTION,
    FAR_CONSTANTS,
    FAR_CONSTANTS_SECTION,
    MANIFEST_SECTION,
    PLACEHOLDER_PREFIX,
)  # fmt: skip
from mlcc.runtime.elf import ALLOC, FAR
from mlcc.targets.artifact import Artifact
from mlcc.targets.llvm.backend import BACKEND
from mlcc.targets.llvm.codegen.context import CONSTANTS, constants_declaration
from mlcc.targets.llvm.codegen.native_functions import Natives
from mlcc.targets.llvm.object.compile import Compiled, Machine, assembly, linked_ir
from mlcc.targets.llvm.object.link import shared_library
from mlcc.targets.llvm.object.merge import merge_objects
from mlcc.targets.llvm.object.native import compile_with
from mlcc.targets.llvm.object.objfile import Buffer, Definition, NewSection, finish
from mlcc.targets.llvm.object.passes import Code
from mlcc.targets.llvm.object.static_library import Member, defined_symbols, static_library
from mlcc.targets.llvm.object.units import Unit, UnitCompiler
from mlcc.targets.plan.exports import c_identifier
from mlcc.targets.plan.header import c_header
from mlcc.targets.plan.steps import HostFunction

KINDS = {kind.name: kind for kind in BACKEND.outputs}


@dataclass(eq=False, repr=False)
class ObjectArtifact(Artifact):
    """Machine code for a CPU. `units` are the LLVM modules; with native kernels there is only one."""

    units: tuple[Unit, ...]
    machine: Machine
    opt_level: int
    facts: dict[str, Any]
    constants: list[TensorData]
    prefix: str | None = None
    natives: Natives = Natives()
    loadable: ClassVar[str] = BACKEND.loadable.name
    _code: bytes = field(default=b"", repr=False)
    _plans: tuple[HostFunction, ...] = field(default=(), repr=False)

    @property
    def plans(self) -> tuple[HostFunction, ...]:
        return self._plans

    @property
    def manifest(self) -> dict[str, Any]:
        """Return the manifest of the artifact; see `docs/abi.md`."""
        return self._facts(self._prefix(None))

    def save(self, path: str | os.PathLike[str], emit: str | None = None) -> None:
        """Write the artifact atomically, as the kind of its suffix (.o, .so, .s or .ll) or `emit`.

        A suffix that fits nothing of that is refused. Raises CompileError.
        """
        name = os.fspath(path)
        kind = emit or kind_of(name, BACKEND.outputs, BACKEND.loadable, "pass emit=").name
        if kind in KINDS:
            check_suffix(name, kind)
        write_files(self.files(name, kind))

    def files(
        self, path: str, kind: str, outputs: Outputs | None = None, data: str | None = None
    ) -> dict[str, Content]:
        """Return the files that `save` writes, by path: a single one, with the constants in it. Raises CompileError."""
        return {path: self._pieces(kind, self._prefix(path))}

    def emit(self, kind: str = "obj", prefix: str | None = None) -> bytes:
        """Return the content of an output file: `obj`, `shared`, `asm` or `llvm-ir`. Raises CompileError."""
        return b"".join(self._pieces(kind, self._prefix(None) if prefix is None else c_identifier(prefix)))

    def pieces(self) -> Sequence[Buffer]:
        """Return the object in pieces, with constants that are not copied."""
        return self._pieces(self.loadable, self._prefix(None))

    def header(self, path: str | None = None) -> str:
        """Return a self-contained C99 header that declares every function. `path` is the object's."""
        return c_header(self._facts(self._prefix(path)))

    @property
    def text(self) -> str:
        """Return the LLVM IR of all units, before LLVM's passes."""
        return "\n".join(unit.text for unit in self.units)

    def compile(self) -> None:
        """Compile the object file with LLVM, unless it is compiled already."""
        if self._code:
            return
        if self.natives.texts:
            self._code = self._with_natives(self.text, "obj").obj
            return
        with UnitCompiler(self.machine, self.opt_level) as compiler:
            for unit in self.units:
                compiler.add(unit)
            self._code = compiler.linked()

    def _with_natives(self, text: str, kind: str) -> Compiled:
        allowed = frozenset(self.facts["externs"])
        return compile_with(text, self.natives, self.machine, self.opt_level, frozenset({kind}), allowed)

    # ------------------------------------------------------------ parts

    def _prefix(self, path: str | None) -> str:
        if self.prefix is not None:
            return c_identifier(self.prefix)
        return "mlcc" if path is None else c_identifier(symbol_prefix(path))

    def _facts(self, prefix: str) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads(json.dumps(self.facts).replace(PLACEHOLDER_PREFIX, prefix))
        return facts

    def _pieces(self, kind: str, prefix: str) -> list[Buffer]:
        if kind not in KINDS:
            raise CompileError(error("E0755", f"cannot write `{kind}`", help=f"known are {', '.join(KINDS)}"))
        if kind == "obj":
            return self._object(prefix)
        if kind == "static":
            return self._static_library(prefix)
        if kind == "shared":
            return [shared_library(self._object(prefix, for_runtime=True), self.machine.triple)]
        text = self._text(kind)
        manifest = json.dumps(self._facts(prefix))
        comment = ";" if kind == "llvm-ir" else "//" if self.machine.triple.startswith("aarch64") else "#"
        head = f"{comment} mlcc manifest: {manifest}\n"
        return [head.encode(), text.replace(PLACEHOLDER_PREFIX, prefix).encode()]

    def _static_library(self, prefix: str) -> list[Buffer]:
        """Return a static library: the object without the functions that allocate, and these in a member of their own.

        So a program that calls only others, `f_ws` in place of `f`, needs no allocator.
        """
        self.compile()
        separate = [unit.obj for unit in self.units if unit.is_separate and unit.obj]
        rest = [unit.obj for unit in self.units if not unit.is_separate and unit.obj]
        if not separate:
            return static_library([_member(f"{prefix}.o", self._object(prefix))])
        objects = [
            _member(f"{prefix}.o", self._object(prefix, code=merge_objects(list(dict.fromkeys(rest))))),
            _member(
                f"{prefix}_alloc.o",
                finish(merge_objects(separate), [], {}, lambda name: name.replace(PLACEHOLDER_PREFIX, prefix)),
            ),
        ]
        return static_library(objects)

    def _object(self, prefix: str, for_runtime: bool = False, code: bytes = b"") -> list[Buffer]:
        """Return the object; the functions that only the runtime calls are hidden, unless it is `for_runtime`.

        `code` takes the place of all the code.
        """
        self.compile()
        sections: list[NewSection] = []
        define: dict[str, Definition] = {}
        if self.constants:
            section = self._constants_section()
            define[CONSTANTS] = Definition(0, 0, section.size)
            sections.append(section)
        facts = json.dumps({**self._facts(prefix), "checksum": "00000000"}).encode() + b"\0"
        sections.append(NewSection(MANIFEST_SECTION, 0, 1, (facts,)))
        inner = set() if for_runtime else self._runtime_symbols(prefix)

        def rename(name: str) -> str:
            return name.replace(PLACEHOLDER_PREFIX, prefix)

        return finish(code or self._code, sections, define, rename, inner.__contains__)

    def _runtime_symbols(self, prefix: str) -> set[str]:
        """Return the symbols that only the runtime calls, which finds hidden ones too."""
        functions = self._facts(prefix)["functions"].values()
        names = {f"{function['symbol']}{suffix}" for function in functions for suffix in ("_query", "_run")}
        return names | {f"{prefix}_time_run", f"{prefix}_profile", f"{prefix}_profile_log"}

    def _constants_section(self) -> NewSection:
        pieces = tuple(self._constant_pieces())
        if sum(map(len, pieces)) >= FAR_CONSTANTS and self.machine.triple.startswith("x86_64"):
            return NewSection(FAR_CONSTANTS_SECTION, ALLOC | FAR, ALIGNMENT, pieces)
        return NewSection(CONSTANTS_SECTION, ALLOC, ALIGNMENT, pieces)

    def _constant_pieces(self) -> Iterator[Buffer]:
        for data in self.constants:
            if data.array is not None:
                yield from byte_chunks(data.array)
            gap = -data.nbytes % ALIGNMENT
            if gap:
                yield bytes(gap)

    def _text(self, kind: str) -> str:
        """Return assembly or LLVM IR, including the constants."""
        if self.natives.texts:
            size = sum(len(p) for p in self._constant_pieces())
            declared = f"@{CONSTANTS} = {constants_declaration(size >= FAR_CONSTANTS)}"
            compiled = self._with_natives(self.text.replace(declared, self._constants_ir()), kind)
            return compiled.asm if kind == "asm" else compiled.llvm_ir
        units = [(unit.text, unit.code) for unit in self.units]
        if self.constants:
            units.append((self._constants_ir(), Code.HOST))
        write = assembly if kind == "asm" else linked_ir
        return write(units, self.machine, self.opt_level)

    def _constants_ir(self) -> str:
        """Return the definition of the constants in LLVM IR."""
        content = b"".join(self._constant_pieces()).hex().upper()
        escaped = "".join(f"\\{content[at : at + 2]}" for at in range(0, len(content), 2))
        return f'@{CONSTANTS} = hidden constant [{len(content) // 2} x i8] c"{escaped}", align {ALIGNMENT}'


def _member(name: str, pieces: Sequence[Buffer]) -> Member:
    """Return an object as a member of a static library."""
    return Member(name, pieces, tuple(defined_symbols(b"".join(pieces))))

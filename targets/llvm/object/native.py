"""Native kernels: LLVM IR in a program (`pragma_import_llvm`), called by `T.call_extern`.

The text is never parsed in this process: it is checked, and later compiled together with the rest of the module, in a
child process, so that a crash only ends the child. Its functions become internal to the object.
"""

from __future__ import annotations

import base64
import json
import signal
import sys
from collections.abc import Iterable
from typing import Any

from mlcc.errors import CompileError, Span, error
from mlcc.ir import tir
from mlcc.ir.module import IRModule
from mlcc.ir.node import find
from mlcc.runtime import elf, externs
from mlcc.targets.llvm.codegen.context import CONSTANTS
from mlcc.targets.llvm.codegen.libm import LIBM
from mlcc.targets.llvm.codegen.native_functions import NativeFunction, Natives
from mlcc.targets.llvm.codegen.pool import RUN
from mlcc.targets.llvm.codegen.versions import CHOOSE
from mlcc.targets.llvm.object.compile import Compiled, Machine

PRAGMA, PRAGMA_C = "pragma_import_llvm", "pragma_import_c"
SECONDS = 30  # for a check, and for a compilation in addition to the time for the module's own text
MEMORY = 2 << 30

_CHILD_CODE = "import sys; sys.path[:] = {path!r}; from mlcc.targets.llvm.object.native_child import main; main()"


def import_kernels(module: IRModule, machine: Machine, allowed: frozenset[str], permitted: bool) -> Natives:
    """Return the native code that the PrimFuncs of a module carry, checked in a child process.

    Raises CompileError: E0709 if native code is not permitted or not LLVM IR, E0710 for a text that may not be linked,
    E0711 for a function that is already defined.
    """
    spans = _texts(module)
    if not spans:
        return Natives()
    if not permitted:
        span = next(iter(spans.values()))
        help = "allow it with --allow-native; such code runs with your rights, so read it first"
        raise CompileError(error("E0709", f"the program contains native code (`{PRAGMA}`)", span, help=help))
    texts = list(spans)
    reachable = sorted({*externs.ALLOWED, *allowed})
    answer = _run_child(
        {"kind": "check", "texts": texts, "allowed": reachable}, machine, SECONDS, list(spans.values())[0]
    )
    if "wrong" in answer:
        number, why = json.loads(answer["wrong"])
        code = "E0711" if "and so does another kernel" in why else "E0710"
        raise CompileError(error(code, f"native code (`{PRAGMA}`): {why}", spans[texts[number]], help=_help(why)))
    functions: dict[str, NativeFunction] = {}
    for text, kernel in zip(texts, answer["kernels"], strict=True):
        for name, facts in kernel["defines"].items():
            taken = (
                "a PrimFunc of the module" if isinstance(module.functions.get(name), tir.PrimFunc)
                else "a function of libm" if name in LIBM
                else "an allowed extern" if name in allowed else ""
            )  # fmt: skip
            if taken:
                message = f"native code (`{PRAGMA}`): it defines `{name}`, which is {taken}"
                raise CompileError(error("E0711", message, spans[text], help="give it another name"))
            functions[name] = NativeFunction(name, facts["result"], tuple(facts["params"]), facts["varargs"])
    called = {name: None for k in answer["kernels"] for name in k["calls"] if name not in externs.ALLOWED}
    return Natives(tuple(k["text"] for k in answer["kernels"]), functions, tuple(called))


def _help(why: str) -> str | None:
    if "expected type" in why or "*" in why:
        return "pointers have had no element type since LLVM 15: write `ptr`"
    if "which is neither" in why:
        return "allow it with --allow-extern NAME, or define it in the text"
    return None


def _texts(module: IRModule) -> dict[str, Span | None]:
    """Return every distinct text with its first span."""
    spans: dict[str, Span | None] = {}
    for func in module.functions.values():
        if not isinstance(func, tir.PrimFunc):
            continue
        for node in find(func.body, tir.For, tir.Block, tir.AttrStmt):
            for key, value in _annotations(node):
                if key not in (PRAGMA, PRAGMA_C):
                    continue
                span = node.span or func.span
                text = value.value if isinstance(value, tir.StringImm) else value
                if key == PRAGMA_C:
                    help = "compile it to LLVM IR: clang -O3 -S -emit-llvm, and use pragma_import_llvm"
                    raise CompileError(error("E0709", f"C code (`{PRAGMA_C}`) cannot be compiled", span, help=help))
                if not isinstance(text, str) or "define" not in text:
                    expected = "a string that defines functions in LLVM IR; files are not read"
                    raise CompileError(error("E0710", f"native code (`{PRAGMA}`) is {expected}", span))
                spans.setdefault(text, span)
    return spans


def _annotations(node: Any) -> Iterable[tuple[str, Any]]:
    match node:
        case tir.For(annotations=annotations) | tir.Block(annotations=annotations):
            return annotations.items()
        case tir.AttrStmt(key=key, value=value):
            return ((key, value),)
    return ()


def compile_with(
    text: str, natives: Natives, machine: Machine, level: int, emit: frozenset[str], allowed: frozenset[str]
) -> Compiled:
    """Compile a module together with its native kernels in a child process. Raises CompileError E0710."""
    seconds = SECONDS + len(text) // 20_000
    job = {"kind": "compile", "text": text, "texts": natives.texts, "level": level, "emit": sorted(emit)}
    answer = _run_child(job, machine, seconds, None)
    compiled = Compiled(base64.b64decode(answer["obj"]), answer["asm"], answer["llvm_ir"])
    if compiled.obj:
        _check_object(compiled.obj, allowed)
    return compiled


def _check_object(obj: bytes, allowed: frozenset[str]) -> None:
    """Check that the object, including the compiled native kernels, has only allowed sections and symbols."""
    from mlcc.errors import LoadError

    try:
        parts = elf.read_object(obj)
    except LoadError as exc:
        why = exc.diagnostics[0].message.partition(": ")[2]
        raise CompileError(
            error("E0710", f"native code (`{PRAGMA}`) does not compile to a valid object: {why}")
        ) from None
    if any(s.name == RUN and s.section != elf.UNDEFINED for s in parts.symbols):
        allowed |= externs.POOL
    if any(s.name == CHOOSE for s in parts.symbols):
        allowed |= externs.VERSIONS
    for symbol in parts.symbols:
        is_needed = symbol.section == elf.UNDEFINED and symbol.type != elf.FILE and symbol.name not in ("", CONSTANTS)
        if is_needed and symbol.name not in externs.ALLOWED | allowed:
            message = f"native code (`{PRAGMA}`) needs the symbol `{symbol.name}`, which is not available"
            raise CompileError(error("E0710", message))


def _run_child(job: dict[str, Any], machine: Machine, seconds: int, span: Span | None) -> dict[str, Any]:
    """Run a job in a child process and return its answer. Raises CompileError E0710 if it fails."""
    import subprocess

    size = MEMORY + 64 * sum(map(len, job["texts"]))
    request = {
        **job, "triple": machine.triple, "cpu": machine.cpu, "features": machine.features, "seconds": seconds,
        "bytes": size,
    }  # fmt: skip
    command = [sys.executable, "-I", "-c", _CHILD_CODE.format(path=sys.path)]
    try:
        process = subprocess.run(command, input=json.dumps(request).encode(), capture_output=True, timeout=seconds + 5)
    except subprocess.TimeoutExpired:
        raise _compile_failure(f"LLVM did not finish within {seconds} seconds", span) from None
    if process.returncode == 0:
        answer: dict[str, Any] = json.loads(process.stdout)
        return answer
    messages = process.stderr.decode(errors="replace").strip().splitlines()
    if process.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        raise _compile_failure(f"LLVM did not finish within {seconds} seconds", span)
    fatal = [line for line in messages if "LLVM ERROR" in line or "Error" in line]
    how = f"ended by {signal.Signals(-process.returncode).name}" if process.returncode < 0 else "ended"
    why = (fatal or messages or [how])[0 if fatal else -1]
    raise _compile_failure(f"LLVM failed: {why.removeprefix('LLVM ERROR: ')}", span)


def _compile_failure(why: str, span: Span | None) -> CompileError:
    return CompileError(error("E0710", f"native code (`{PRAGMA}`): {why}", span))

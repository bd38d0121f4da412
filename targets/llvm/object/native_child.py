"""The child process for native kernels: parse, check and compile untrusted LLVM IR.

LLVM may abort, crash or run too long on such text; `native` turns that into a diagnostic. One job per process, as JSON:
read from standard input, answered on a descriptor that nothing else writes to.
"""

from __future__ import annotations

import base64
import gc
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from mlcc.targets.llvm.codegen.native_functions import NATIVE_PREFIX
from mlcc.targets.llvm.object.compile import Machine, compile_text, target_machine

_STRING = re.compile(r'"[^"]*"')
_NAME = re.compile(r'@("[^"]*"|[-a-zA-Z$._0-9]+) = ')
_ATTRIBUTE = re.compile(r'"[^"]*"(?:="[^"]*")?|[a-z_0-9]+(?:=\d+|\((?:[^()"]|"[^"]*"|\([^()]*\))*\))?')
_NAMED_METADATA = re.compile(r"![-a-zA-Z$._]")

# Function attributes that are kept. Others require features of the machine (target-features), symbols that an object
# does not have (stack protectors, instrumentation), or unneeded tables.
_KEPT_ATTRIBUTES = frozenset({
    "alwaysinline", "cold", "convergent", "hot", "inlinehint", "memory", "minsize", "mustprogress", "nocallback",
    "noduplicate", "nofree", "noinline", "nomerge", "norecurse", "noreturn", "nosync", "nounwind",
    "null_pointer_is_valid", "optnone", "optsize", "speculatable", "strictfp", "willreturn",
})  # fmt: skip
_LINKAGES = frozenset({"external", "internal", "private", "linkonce_odr", "linkonce_any", "weak_odr", "weak_any"})


class Rejected(Exception):
    """A text was rejected; the message is the reason."""


def main() -> None:
    """Run the job on standard input."""
    gc.disable()
    answer = os.dup(1)
    os.dup2(2, 1)  # LLVM's remarks belong to the messages
    job = json.load(sys.stdin)
    _limit_resources(job["seconds"], job["bytes"])
    machine = Machine(job["triple"], job["cpu"], tuple(job["features"]))
    try:
        result = check(job["texts"], machine, frozenset(job["allowed"])) if job["kind"] == "check" else compiled(
            job, machine
        )  # fmt: skip
    except Rejected as exc:
        result = {"wrong": str(exc)}
    with open(answer, "w") as out:
        json.dump(result, out)
    os._exit(0)  # LLVM's modules and contexts cannot be freed in arbitrary order


def _limit_resources(seconds: int, size: int) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    limits = [n for n in resource.getrlimit(resource.RLIMIT_AS) if n != resource.RLIM_INFINITY]
    size = min([size, *limits])
    resource.setrlimit(resource.RLIMIT_AS, (size, size))


def compiled(job: dict[str, Any], machine: Machine) -> dict[str, Any]:
    output = compile_text(job["text"], machine, job["level"], frozenset(job["emit"]), job["texts"])
    return {"obj": base64.b64encode(output.obj).decode(), "asm": output.asm, "llvm_ir": output.llvm_ir}


# ---------------------------------------------------------------- checks


def check(texts: Sequence[str], machine: Machine, allowed: frozenset[str]) -> dict[str, Any]:
    """Return the texts in linkable form, each with its definitions: name -> result and parameter types.

    Raises Wrong.
    """
    kernels: list[dict[str, Any]] = []
    modules = []
    for number, text in enumerate(texts):
        try:
            module = _parse(text, machine)
            kernels.append({"defines": _exported_signatures(module)})
            modules.append(module)
        except Rejected as exc:
            raise Rejected(json.dumps([number, str(exc)])) from None
    owner: dict[str, int] = {}
    for number, kernel in enumerate(kernels):
        for name in kernel["defines"]:
            if name in owner:
                raise Rejected(json.dumps([number, f"it defines `{name}`, and so does another kernel"]))
            owner[name] = number
    for number, module in enumerate(modules):
        try:
            kernels[number]["calls"] = _called_externs(module, allowed, owner)
        except Rejected as exc:
            raise Rejected(json.dumps([number, str(exc)])) from None
        for function in list(module.functions):
            if function.name in owner and not _is_local(function):
                if not function.is_declaration:
                    function.linkage, function.visibility, function.storage_class = "external", "default", "default"
                function.name = NATIVE_PREFIX + function.name
        kernels[number]["text"] = str(module)
    return {"kernels": kernels}


def _parse(text: str, machine: Machine) -> Any:
    """Parse a module and remove the parts that do not affect its code."""
    import llvmlite.binding as llvm

    tm = target_machine(machine, 2)
    try:
        first = llvm.parse_assembly(text, llvm.create_context())
        arch = first.triple.partition("-")[0]
        if arch and arch != machine.triple.partition("-")[0]:
            raise Rejected(f"it is for {first.triple}")
        _check_module_lines(str(first))
        module = llvm.parse_assembly("\n".join(_cleaned_lines(str(first), machine)) + "\n", llvm.create_context())
        module.triple, module.data_layout = machine.triple, str(tm.target_data)
        module.verify()
    except RuntimeError as exc:
        raise Rejected(f"LLVM does not accept it: {_first_line(exc)}") from None
    return module


def _first_line(exc: Exception) -> str:
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line]
    text = (errors or lines or ["no reason given"])[0]
    index = lines.index(text) if text in lines else len(lines)
    return re.sub(r"^<string>:", "line ", text) + (
        f" `{lines[index + 1]}`" if index + 1 < len(lines) and errors else ""
    )


def _check_module_lines(text: str) -> None:
    for line in text.splitlines():
        bare = _STRING.sub('""', line)
        if line.startswith("module asm"):
            raise Rejected("it has assembly code (`module asm`)")
        if line.startswith("@"):
            match = _NAME.match(line)
            name = match.group(1).strip('"') if match else line
            words = _NAME.sub("", bare).split(" {", 1)[0].split()
            kind = next((w for w in words if w in ("global", "constant", "alias", "ifunc")), "global")
            _check_global(name, kind, words)
        if line.startswith(("@", "define")) and re.search(r'(?<![%@$.\w-])(section|partition) ""', bare):
            raise Rejected("it places a symbol in a section of its own")
        if line.startswith("define") and re.search(r'(?<![%@$.\w-])(gc "|personality |prefix |prologue )', bare):
            raise Rejected("a function has a garbage collector, a personality, or data in front of it")


def _check_global(name: str, kind: str, words: list[str]) -> None:
    if name.startswith("llvm."):
        raise Rejected(f"it has `@{name}`: kernels must not have start-up code or kept symbols")
    if kind in ("alias", "ifunc"):
        raise Rejected(f"`@{name}` is an {kind}")
    if "external" in words or "extern_weak" in words:
        raise Rejected(f"the variable `@{name}` is not defined")
    if kind != "constant" or any(w.startswith("thread_local") for w in words) or "externally_initialized" in words:
        raise Rejected(f"the variable `@{name}` is not constant: kernels must not keep state")


def _cleaned_lines(text: str, machine: Machine) -> Iterator[str]:
    """Yield the lines of a printed module without module flags, debug information, comdats and rejected attributes."""
    extra = re.sub(r"^nounwind ?", "", machine.function_attrs)
    for line in text.splitlines():
        if _NAMED_METADATA.match(line) or (line.startswith("$") and " = comdat " in line):
            continue
        if line.startswith("attributes #"):
            head, _, body = line.partition(" = {")
            attributes = _ATTRIBUTE.findall(body.rpartition("}")[0])
            attributes_kept = [a for a in attributes if re.split(r"[=(]", a)[0] in _KEPT_ATTRIBUTES]
            yield f"{head} = {{ {' '.join([*attributes_kept, extra])} }}"
        elif line.startswith(("define", "@")):
            yield re.sub(r",? comdat(\(\$(\"[^\"]*\"|[-a-zA-Z$._0-9]+)\))?(?=[ ,]|$)", "", line)
        else:
            yield line


def _exported_signatures(module: Any) -> dict[str, Any]:
    """Return the signatures of the module's exported functions. Raises Wrong for code that kernels may not have."""
    import llvmlite.binding as llvm

    defined: dict[str, Any] = {}
    for function in module.functions:
        if function.is_declaration:
            continue
        if function.linkage.name not in _LINKAGES:
            raise Rejected(f"`{function.name}` has linkage {function.linkage.name}")
        for block in function.blocks:
            for instruction in block.instructions:
                if any(o.value_kind == llvm.ValueKind.inline_asm for o in instruction.operands):
                    raise Rejected(f"`{function.name}` has inline assembly")
        if not _is_local(function):
            function_type = str(function.global_value_type)
            params = [str(a.type) for a in function.arguments]
            result = function_type.partition(" (")[0] if " (" in function_type else function_type
            defined[function.name] = {"result": result, "params": params, "varargs": "..." in function_type}
    if not defined:
        raise Rejected("it defines no function")
    return defined


def _is_local(function: Any) -> bool:
    return function.linkage.name in ("internal", "private")


def _called_externs(module: Any, allowed: frozenset[str], owner: dict[str, int]) -> list[str]:
    """Return the functions that the module uses and no kernel defines. Raises Wrong for one that is not allowed."""
    text = str(module)
    used = []
    for function in module.functions:
        name = function.name
        if not function.is_declaration or name.startswith("llvm.") or name in owner:
            continue
        if len(re.findall(rf'@"?{re.escape(name)}"?(?![-a-zA-Z$._0-9])', text)) > 1:
            if name not in allowed:
                raise Rejected(f"it calls `{name}`, which is neither among libm's functions nor allowed")
            used.append(name)
    return used


if __name__ == "__main__":
    main()

"""`mlcc inspect model.o`."""

from __future__ import annotations

import json
from typing import Any

import click


@click.command("inspect")
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help="Print the whole manifest as JSON.")
def command(file: str, as_json: bool) -> int:
    """Show the contents and requirements of an artifact from its manifest, without loading or running it.

    For code of a CPU this includes the bytes of each kernel's code, of constants, data and workspaces, and the symbols
    that it needs from outside; for GPU kernels registers and spills, if ptxas is installed.
    """
    from mlcc.cli.options import artifact_source

    manifest = complete_manifest(artifact_source(file))
    if as_json:
        click.echo(json.dumps(manifest, indent=2, sort_keys=True))
        return 0
    for line in summary(manifest):
        click.echo(line)
    return 0


def complete_manifest(source: str | bytes) -> dict[str, Any]:
    """Return the manifest of an artifact with what its code tells: sizes, or the findings of the target's tools."""
    from mlcc.runtime.loader import read_manifest

    manifest = read_manifest(source)
    if "kernels" in manifest:
        add_tool_findings(source, manifest)
    else:
        add_code_size(source, manifest)
    return manifest


def add_tool_findings(source: str | bytes, manifest: dict[str, Any]) -> None:
    """Add the findings of the target's own tools on the code of an artifact to its manifest."""
    from mlcc import backends
    from mlcc.machine.target import KINDS

    kind = manifest["target"].get("kind")
    inspect = backends.get(kind).inspect if kind in KINDS else None
    if inspect is not None:
        inspect(source, manifest)


def add_code_size(source: str | bytes, manifest: dict[str, Any]) -> None:
    """Add `code` to the manifest of an object or library: the bytes of its kernels, other code, and data; imports."""
    from mlcc.runtime.code_size import code_size
    from mlcc.runtime.loader import content_of
    from mlcc.runtime.stack_usage import stack_bounds

    content = content_of(source)
    versions = [version["cpu"] for version in manifest["target"].get("versions", ())]
    size = code_size(content.data if content.file is None else content.file.data, versions)
    manifest["code"] = {
        "bytes": size.code, "kernels": size.kernels, "other_bytes": None if size.kernels is None else size.rest,
        "read_only_data_bytes": size.read_only, "writable_data_bytes": size.writable, "data_bytes": size.data,
        "bss_bytes": size.zeros, "imports": None if size.imports is None else list(size.imports),
    }  # fmt: skip
    entries = [f"{f['symbol']}{end}" for f in manifest["functions"].values() for end in ("", "_ws")]
    bounds = stack_bounds(content.data if content.file is None else content.file.data, entries)
    if bounds is not None:
        manifest["code"]["stack"] = {name: {"bytes": b.bytes, "calls": list(b.calls)} for name, b in bounds.items()}


def format_code(code: dict[str, Any]) -> list[str]:
    """Return a line on the code of each kernel, the largest first, and one on everything."""
    kernels: dict[str, int] = code["kernels"] or {}
    ordered = sorted(kernels.items(), key=lambda pair: -pair[1])
    lines = [f"    kernel {name}: {size} bytes of code" for name, size in ordered]
    parts = (
        ""
        if code["kernels"] is None
        else (f" ({sum(kernels.values())} in kernels, {code['other_bytes']} in entry points, checks and helpers)")
    )
    sizes = f"read-only data {code['read_only_data_bytes']}, data {code['data_bytes']}, bss {code['bss_bytes']} bytes"
    lines.append(f"code: {code['bytes']} bytes{parts}; {sizes}")
    lines += [format_stack(name, bound) for name, bound in code.get("stack", {}).items()]
    if code["imports"] is not None:
        lines.append(f"needs from outside: {', '.join(code['imports']) or 'nothing'}")
    return lines


def format_stack(name: str, bound: dict[str, Any]) -> str:
    """Return a line on the stack that a call of a C function uses."""
    most = "unknown: it calls through a pointer" if bound["bytes"] is None else f"at most {bound['bytes']} bytes"
    return f"stack of {name}: {most}{', and that of ' * bool(bound['calls'])}{', '.join(bound['calls'])}"


def format_workspace(raw: Any, symbol: str | None) -> str:
    """Return the bytes of a function's workspace, from the expression in the manifest."""
    from mlcc.runtime.manifest import show

    def as_dim(tree: Any) -> Any:
        return tuple(map(as_dim, tree)) if isinstance(tree, list) else tree

    if raw is None:
        return f"workspace of {symbol}_ws_size(...) bytes" if symbol else "workspace of a size known at the call"
    return f"{show(as_dim(raw))} bytes of workspace" if raw else "no workspace"


def format_kernel(name: str, facts: dict[str, Any]) -> str:
    """Return a line on a kernel: threads of a block, shared memory, and ptxas's counts of registers and spills."""
    threads = " x ".join(str(n) if n else "?" for n in facts["block"])
    line = f"    kernel {name}: {threads} threads, {facts['shared']} bytes of shared memory"
    dynamic = facts.get("dynamic_shared", 0)
    if dynamic:
        line += f" and {dynamic if dynamic > 0 else 'more'} set at launch"
    assembled = facts.get("assembled")
    if assembled is None:
        return line
    spills = assembled["spill_stores"] + assembled["spill_loads"]
    stack = f", {assembled['stack']} bytes of local memory" if assembled["stack"] else ""
    return (
        f"{line}, {assembled['registers']} registers{stack}, {f'{spills} bytes of spills' if spills else 'no spills'}"
    )


def summary(manifest: dict[str, Any]) -> list[str]:
    """Format the manifest for reading: functions first, then everything else by name."""
    from mlcc.runtime.manifest import read

    facts = read(manifest)
    lines = []
    for function in facts.functions.values():
        params = ", ".join(f"{p.name}: {format_value(p)}" for p in function.params)
        result = f" -> {format_value(function.results)}" if function.results is not None else ""
        lines.append(f"{function.name}({params}){result}")
        kind = f"{function.kind} function"
        if "workspace" in manifest["functions"][function.name]:
            symbol = None if "kernels" in manifest else function.symbol
            kind += f", {format_workspace(manifest['functions'][function.name]['workspace'], symbol)}"
        lines.append(f"    {kind}" if "kernels" in manifest else f"    C symbol {function.symbol}, {kind}")
    lines += [format_kernel(name, kernel) for name, kernel in manifest.get("kernels", {}).items()]
    if "code" in manifest:
        lines += format_code(manifest["code"])
    if "count" in manifest.get("constants", {}):
        count = manifest["constants"]["count"]
        lines.append(f"constants: {count} tensor{'' if count == 1 else 's'}, {manifest['constants']['bytes']} bytes")
    if facts.versions:
        lines.append(f"kernels in versions for: {', '.join(facts.versions)}")
    if facts.packed:
        lines.append(f"packed functions: {', '.join(p.name for p in facts.packed)}")
    if facts.externs:
        lines.append(f"extern symbols: {', '.join(facts.externs)}")
    shown = {"functions", "packed", "externs", "kernels", "code"}
    for key, value in manifest.items():
        if key not in shown and not (key == "constants" and "count" in value):
            text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
            lines.append(f"{key}: {text}")
    return lines


def format_value(value: Any) -> str:
    """Format a parameter or result as a type."""
    from mlcc.runtime.manifest import show_shape

    if value.kind == "tuple":
        return f"({', '.join(map(format_value, value.fields))})"
    if value.kind == "tensor":
        role = "" if value.role == "in" else f" {value.role}"
        return f"{value.dtype}{show_shape(value.dims)}{role}"
    if value.kind == "shape":
        return f"shape{show_shape(value.dims)}"
    return value.dtype or str(value.kind)

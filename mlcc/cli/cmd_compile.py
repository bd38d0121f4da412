"""`mlcc compile model.mlc -t llvm -o model.o --header model.h`."""

from __future__ import annotations

import os

import click

from mlcc.cli.options import build_object, extern_options, level_option, pipeline_option, target_option

EMITS = {"obj": ".o", "asm": ".s", "llvm-ir": ".ll", "shared": ".so"}


@click.command("compile")
@click.argument("file", default="-")
@target_option("llvm")
@click.option("-o", "--output", help="The file to write (default: FILE with the suffix of what is emitted).")
@click.option("--emit", type=click.Choice(list(EMITS)), help="What to write; otherwise the output's suffix decides.")
@click.option("--header", help="Also write a C header for the object.")
@click.option("--prefix", help="Start of the exported C symbols (default: the output's name without suffix).")
@level_option
@pipeline_option
@extern_options
def command(
    file: str, target: str, output: str | None, emit: str | None, header: str | None, prefix: str | None, level: int,
    pipeline: str | None, allow_extern: tuple[str, ...], allow_native: bool,
) -> int:  # fmt: skip
    """Compile FILE (default: standard input) for a target."""
    from mlcc.files import write_atomic

    suffixes = {suffix: kind for kind, suffix in EMITS.items()}
    emit = emit or suffixes.get(os.path.splitext(output or "")[1], "obj")
    if output is None:
        if file == "-":
            raise click.UsageError("the input is standard input: name the output with -o")
        output = os.path.splitext(file)[0] + EMITS[emit]
    if prefix is None:
        stem = os.path.splitext(os.path.basename(output if output != "-" else file))[0]
        prefix = stem if stem != "-" else "mlcc"
    if emit == "obj":
        from mlcc.runtime.manifest import extract

        made = build_object(file, target, level, pipeline, allow_extern, allow_native, prefix)
        facts = None if header is None else extract(made)
    else:
        from mlcc.driver import build, parse_file

        artifact = build(
            parse_file(file), target=target, opt_level=level, pipeline=pipeline, prefix=prefix,
            allow_extern=allow_extern, allow_native=allow_native,
        )  # fmt: skip
        made = artifact.emit(emit)
        facts = None if header is None else artifact.manifest
    write_atomic(output, made)
    if header is not None and facts is not None:
        from mlcc.targets.llvm.header import c_header

        write_atomic(header, c_header(facts))
    return 0

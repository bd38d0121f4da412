"""`mlcc compile model.mlc -t llvm -o model.o --header model.h`."""

from __future__ import annotations

import os

import click

from mlcc.cli.options import (
    build_artifact,
    build_object,
    extern_options,
    level_option,
    pipeline_option,
    target_option,
    warnings_option,
)

EMITS = {"obj": ".o", "asm": ".s", "llvm-ir": ".ll", "shared": ".so", "ptx": ".ptx", "mlca": ".mlca",
         "cuda-c": ".cu", "metal": ".metal"}  # fmt: skip


@click.command("compile")
@click.argument("file", default="-")
@target_option("llvm")
@click.option("-o", "--output", help="The file to write (default: FILE with the suffix of what is emitted).")
@click.option("--emit", type=click.Choice(list(EMITS)), help="What to write; otherwise the output's suffix decides.")
@click.option("--header", help="Also write a C header for the object.")
@click.option("--prefix", help="Start of the exported C symbols (default: the output's name without suffix).")
@click.option("--sanitize", is_flag=True, help="Check every access as it is made (docs/sanitize.md); slower.")
@level_option
@pipeline_option
@extern_options
@warnings_option
def command(
    file: str, target: str, output: str | None, emit: str | None, header: str | None, prefix: str | None,
    sanitize: bool, level: int, pipeline: str | None, allow_extern: tuple[str, ...], allow_native: bool,
) -> int:  # fmt: skip
    """Compile FILE (default: standard input) for a target.

    Code for a GPU (-t cuda) is .ptx, with constants in an .npz beside it, or .mlca, one file with everything. Kernels
    as source text to read are .cu (CUDA C) and .metal.
    """
    from mlcc.files import write_atomic
    from mlcc.target import Target

    suffixes = {suffix: kind for kind, suffix in EMITS.items()}
    gpu = Target.parse(target).kind == "cuda"
    if gpu and header is not None:
        raise click.UsageError("--header is for the target llvm: a program in C cannot call an artifact for CUDA")
    emit = emit or suffixes.get(os.path.splitext(output or "")[1], "ptx" if gpu else "obj")
    if output is None:
        if file == "-":
            raise click.UsageError("the input is standard input: name the output with -o")
        output = os.path.splitext(file)[0] + EMITS[emit]
    if prefix is None:
        stem = os.path.splitext(os.path.basename(output if output != "-" else file))[0]
        prefix = stem if stem != "-" else "mlcc"
    if emit == "obj" and not gpu:
        from mlcc.runtime.manifest import extract

        made = build_object(file, target, level, pipeline, allow_extern, allow_native, prefix, sanitize=sanitize)
        write_atomic(output, made)
        facts = None if header is None else extract(made)
    else:
        artifact = build_artifact(file, target, level, pipeline, allow_extern, allow_native, prefix, sanitize)
        artifact.save(output, emit)
        facts = None if header is None else artifact.manifest
    if header is not None and facts is not None:
        from mlcc.targets.llvm.header import c_header

        write_atomic(header, c_header(facts))
    return 0

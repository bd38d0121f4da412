"""`mlcc compile model.mlc -t llvm -o model.o --header model.h`."""

from __future__ import annotations

import os

import click

from mlcc.cli.options import (
    CommandWithDumps,
    build_artifact,
    build_object,
    data_option,
    dump_observers,
    dump_options,
    extern_options,
    force_option,
    level_option,
    pipeline_files,
    pipeline_option,
    target_option,
    warnings_option,
)  # fmt: skip

CPU = {"obj": ".o", "asm": ".s", "llvm-ir": ".ll", "shared": ".so"}
GPU = {"ptx": ".ptx", "mlca": ".mlca", "llvm-ir": ".ll", "cuda-c": ".cu", "metal": ".metal"}
EMITS = {**CPU, **GPU}


@click.command("compile", cls=CommandWithDumps)
@click.argument("file", default="-")
@target_option("llvm")
@click.option("-o", "--output", help="The file to write (default: FILE with the suffix of what is emitted).")
@click.option("--emit", type=click.Choice(list(EMITS)), help="What to write; otherwise the output's suffix decides.")
@click.option("--header", help="Also write a C header for the object.")
@click.option("--prefix", help="Start of the exported C symbols (default: the output's name without suffix).")
@data_option
@force_option
@click.option("--sanitize", is_flag=True, help="Check every access as it is made (docs/sanitize.md); slower.")
@level_option
@pipeline_option
@dump_options
@extern_options
@warnings_option
def command(
    file: str, target: str, output: str | None, emit: str | None, header: str | None, prefix: str | None,
    data: str | None, force: bool, sanitize: bool, level: int, pipeline: str | None, allow_extern: tuple[str, ...],
    allow_native: bool, dump_after: str | None, dump_dir: str | None, timing: bool,
) -> int:  # fmt: skip
    """Compile FILE (default: standard input) for a target.

    Code for a GPU (-t cuda) is .ptx, with constants in an .npz beside it, or .mlca, one file with everything. Kernels
    as source text to read are .cu (CUDA C) and .metal.
    """
    from mlcc.files import Content
    from mlcc.machine.target import Target
    from mlcc.outputs import Outputs

    gpu = Target.parse(target).kind == "cuda"
    if gpu and header is not None:
        raise click.UsageError("--header is for the target llvm: a program in C cannot call an artifact for CUDA")
    output, emit = _output(file, output, emit, gpu)
    if data is not None and emit != "ptx":
        raise click.UsageError("--data is for the constants of a .ptx; all other artifacts hold theirs")
    outputs = Outputs(force, watch=True)
    outputs.read(file, *pipeline_files(pipeline))
    outputs.write(output, "-o", emit)
    outputs.write(header, "--header", "header")
    outputs.write(data, "--data", "arrays")
    outputs.settle()
    if prefix is None:
        stem = os.path.splitext(os.path.basename(output if output != "-" else file))[0]
        prefix = stem if stem != "-" else "mlcc"
    made: dict[str, Content]
    observers = dump_observers(None, dump_after, dump_dir, timing, outputs.save_part)
    if emit == "obj" and not gpu and not observers:
        from mlcc.runtime.manifest import extract

        code = build_object(file, target, level, pipeline, allow_extern, allow_native, prefix, sanitize=sanitize)
        made, facts = {output: code}, None if header is None else extract(code)
    else:
        artifact = build_artifact(
            file, target, level, pipeline, allow_extern, allow_native, prefix, sanitize, observers=observers
        )
        made = artifact.files(output, emit, outputs, data) if gpu else artifact.files(output, emit)
        facts = None if header is None else artifact.manifest
    if header is not None and facts is not None:
        from mlcc.targets.llvm.object.header import c_header

        made = {**made, header: c_header(facts)}
    outputs.save(made)
    return 0


def _output(file: str, output: str | None, emit: str | None, gpu: bool) -> tuple[str, str]:
    """Where to write and what, by the options, the suffix, and the target. Raises CompileError E0012, UsageError."""
    from mlcc.errors import CompileError, error
    from mlcc.outputs import kind_of

    usual, among = ("ptx", GPU) if gpu else ("obj", CPU)
    if emit is None:
        others = {kind: suffix for kind, suffix in EMITS.items() if kind not in among}
        emit = usual if output is None else kind_of(output, {**among, **others}, usual)
    if emit not in among:
        where = "CUDA" if gpu else "the target llvm"
        raise CompileError(error("E0755", f"cannot write `{emit}` for {where}", help=f"known are {', '.join(among)}"))
    if output is None:
        if file == "-":
            raise click.UsageError("the input is standard input: name the output with -o")
        output = os.path.splitext(file)[0] + EMITS[emit]
    return output, emit

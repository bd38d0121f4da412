"""`mlcc bench a.o b.o c.mlc --in x.npz`."""

from __future__ import annotations

import click

from mlcc.cli.options import env_option, extern_options, level_option, pipeline_option, target_option


@click.command("bench")
@click.argument("files", nargs=-1, required=True)
@click.option("--in", "inputs", multiple=True, metavar="NPZ", help="Arrays by parameter name (default: ones are made).")
@click.option("--func", default="main", show_default=True, help="The function to time.")
@click.option("--number", type=click.IntRange(1), help="Calls per sample (default: enough for a millisecond).")
@click.option("--repeat", type=click.IntRange(2), default=25, show_default=True, help="Samples per competitor.")
@target_option("llvm{cpu=native}")
@level_option
@pipeline_option
@extern_options
@env_option
def command(
    files: tuple[str, ...], inputs: tuple[str, ...], func: str, number: int | None, repeat: int, target: str, level: int,
    pipeline: str | None, allow_extern: tuple[str, ...], allow_native: bool, envs: tuple[str, ...],
) -> int:  # fmt: skip
    """Time a function of each FILE (text or artifact) inside native code.

    Several files are competitors: their samples are interleaved. Shows the median, the middle half, and the ratio to
    the first.
    """
    raise NotImplementedError

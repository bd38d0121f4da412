"""`mlcc report model.mlc --json -o report.json`."""

from __future__ import annotations

import json
from typing import Any

import click

from mlcc.cli.options import (
    extern_options,
    level_option,
    load_option,
    parse_symbol_sizes,
    pipeline_files,
    pipeline_option,
    records_option,
    size_option,
    target_option,
)


@click.command("report")
@click.argument("file", metavar="FILE")
@click.option("-o", "--output", metavar="FILE", default="-", help="The file for the report (default: stdout).")
@click.option("--json", "as_json", is_flag=True, help="Write the data of the report as JSON (docs/report-format.md).")
@size_option
@target_option("llvm{cpu=native}")
@level_option
@pipeline_option
@load_option
@records_option
@extern_options
def command(
    file: str, output: str, as_json: bool, sizes: tuple[str, ...], target: str, level: int | None,
    pipeline: str | None, db: str | None, allow_extern: tuple[str, ...], allow_native: bool,
) -> int:  # fmt: skip
    """Compile FILE and report how it was compiled."""
    from mlcc.frontend.source import read_module
    from mlcc.outputs import Outputs
    from mlcc.report.collect import Request, collect

    outputs = Outputs(watch=True)
    outputs.read(file, db, *pipeline_files(pipeline, target))
    outputs.write(output, "-o", "json")
    outputs.check()
    module = read_module(file)
    known = parse_symbol_sizes(sizes)
    data = collect(Request(file, module, target, level, pipeline, allow_extern, allow_native, db, known))
    outputs.save({output: dump(data)})
    return 0


def dump(data: dict[str, Any]) -> str:
    """Return data as JSON text, with a line for each entry of the top."""
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in data.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"

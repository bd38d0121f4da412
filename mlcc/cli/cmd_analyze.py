"""`mlcc analyze k.mlc -t cuda`: memory traffic and conflicts of a kernel on a GPU, by emulation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from mlcc.cli.options import level_option, pipeline_option, target_option

if TYPE_CHECKING:
    import numpy as np

    from mlcc.runtime.manifest import Value


@click.command("analyze")
@click.argument("file", default="-")
@click.option(
    "--in", "inputs", multiple=True, metavar="ARRAYS", help="Arrays by parameter name (default: random ones)."
)
@click.option(
    "--size", "sizes", multiple=True, metavar="NAME=N", help="The value of a symbolic size, such as n=1024; repeatable."
)
@click.option("--func", help="The function to run (default: main, or the only one).")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@target_option("cuda")
@level_option
@pipeline_option
def command(
    file: str, inputs: tuple[str, ...], sizes: tuple[str, ...], func: str | None, as_json: bool, target: str,
    level: int | None, pipeline: str | None,
) -> int:  # fmt: skip
    """Report the cost of each memory access of the kernels of FILE on a GPU: sectors of global memory, bank conflicts
    of shared memory, and occupancy.

    A run is emulated on the CPU, on random arrays where none are given, and its addresses are counted. Data races and
    invalid accesses are reported as well (exit code 1).
    """
    from mlcc.cli.cmd_run import call_by_name, find_function
    from mlcc.cli.main import report
    from mlcc.cli.options import build_artifact, load_inputs, need_gpu
    from mlcc.errors import MlccError
    from mlcc.machine.gpu_tables import GpuFacts
    from mlcc.runtime.loader import load
    from mlcc.targets.emulate.report import MeasuringDevice

    need_gpu(target, "E0747")
    artifact = build_artifact(file, target, level, pipeline)
    device = MeasuringDevice(artifact.launch.kernels, GpuFacts.of(target))
    exe = load(artifact, device=device)
    name = func or (next(iter(exe.functions)) if len(exe.functions) == 1 else "main")
    callee = find_function(exe, name)
    arrays = made_up(callee, load_inputs(inputs), known_sizes(sizes))
    call_by_name(exe, name, arrays)
    device.report.assembled(artifact.assembled())
    if as_json:
        import json

        click.echo(json.dumps(device.report.data(), indent=1))
    else:
        click.echo(device.report.text(), nl=False)
    if device.report.findings:
        report(MlccError(device.report.findings))
        return 1
    return 0


def known_sizes(texts: tuple[str, ...]) -> dict[str, int]:
    """Parse the values of symbolic sizes. Raises CompileError."""
    from mlcc.errors import CompileError, error

    sizes = {}
    for text in texts:
        name, _, number = text.partition("=")
        if not (name.isidentifier() and number.isdigit()):
            raise CompileError(error("E0747", f"`{text}` is not a size", help="write --size n=1024"))
        sizes[name] = int(number)
    return sizes


def made_up(callee: Any, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Return the arrays, with random ones for all other inputs: floats from 0 to 1, integers and bools 0 or 1.

    Raises CompileError for symbols without a value.
    """
    from mlcc.errors import CompileError, error
    from mlcc.runtime.manifest import symbols_of

    params = {p.name: p for p in callee.spec.params if p.kind in ("tensor", "scalar")}
    symbols = dict(sizes)
    for name, array in arrays.items():
        dims = params[name].dims if name in params else ()
        symbols.update({d: n for d, n in zip(dims, array.shape, strict=False) if isinstance(d, str)})
    inputs = dict(arrays)
    missing: dict[str, None] = {}
    for name, param in params.items():
        if name in inputs or param.role == "out":
            continue
        unknown = [s for d in param.dims for s in symbols_of(d) if s not in symbols]
        missing.update(dict.fromkeys(unknown))
        if not unknown:
            inputs[name] = _random_array(param, symbols)
    if missing:
        text = f"no value is given for the size {', '.join(f'`{s}`' for s in missing)}"
        help = "pass " + " ".join(f"--size {s}=1024" for s in missing) + ", or arrays with --in"
        raise CompileError(error("E0747", text, help=help))
    return inputs


def _random_array(param: Value, symbols: Mapping[str, int]) -> np.ndarray:
    import numpy as np

    from mlcc.ir.dtypes import DType
    from mlcc.ir.narrow import encode
    from mlcc.runtime.manifest import evaluate

    shape = tuple(evaluate(d, symbols) for d in param.dims)
    random = np.random.default_rng(0)
    dtype = DType.of(param.dtype)
    if dtype.is_float:
        return encode(random.random(shape), dtype)
    return random.integers(0, 2, shape).astype(str(dtype))

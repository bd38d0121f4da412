"""`mlcc import model.onnx -o model.mlc --weights w.safetensors`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mlcc.cli.options import TOLERANCE, check_data_option, data_option, echo_stderr, force_option, model_options

if TYPE_CHECKING:
    from mlcc.array_files import ArrayFile
    from mlcc.ir.module import IRModule
    from mlcc.ir.tensor_data import TensorData

DIFFERENT = 3


@click.command("import")
@click.argument("file")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    default="-",
    help="The file for the text; weights go into FILE.npz beside it (default: stdout).",
)
@data_option
@click.option(
    "--weights", multiple=True, metavar="ARRAYS",
    help="Values for the weights, by the model's names: .npz, .safetensors, an index of several, or a folder of them; "
    "repeatable. The text refers to a file below the output's folder instead of copying it.",
)  # fmt: skip
@click.option(
    "--link-weights", is_flag=True,
    help="Hard-link files of --weights from elsewhere into the output's folder, and refer to them instead of copying.",
)  # fmt: skip
@click.option("--weights-as-inputs", is_flag=True, help="Make the weights parameters of `main` (`run --params`).")
@model_options
@click.option(
    "--dtype", metavar="DTYPE",
    help="float16 or bfloat16: convert weights, inputs, results and values between; sums stay in float32.",
)  # fmt: skip
@click.option(
    "--compare", is_flag=True,
    help="Also run the model in its own framework, with its own weights, on generated inputs; if a result differs, "
    "write nothing and exit with 3. This runs the code in the file with your rights: use it only for files you trust.",
)  # fmt: skip
@click.option("--size", "sizes", multiple=True, metavar="NAME=N", help="A size for --compare, such as b=2; repeatable.")
@click.option(
    "--rtol",
    type=TOLERANCE,
    metavar="NUMBER",
    default=1e-4,
    show_default=True,
    help="The tolerance of --compare, relative to the largest element.",
)
@click.option(
    "--seed", metavar="N", default=0, show_default=True, help="The seed of the generated inputs of --compare."
)
@force_option
def command(
    file: str, output: str, data: str | None, weights: tuple[str, ...], link_weights: bool, weights_as_inputs: bool,
    shapes: tuple[str, ...], dims: tuple[str, ...], maps: tuple[str, ...], allow_packed: bool, state_as_inputs: bool,
    dtype: str | None, compare: bool, sizes: tuple[str, ...], rtol: float, seed: int, force: bool,
) -> int:  # fmt: skip
    """Import a model of another framework, FILE.onnx or FILE.pt2, as text.

    No code in FILE is run. If anything cannot be imported, all of it is listed and nothing is written. Comments in the
    text name the modules and source lines of the model.
    """
    from mlcc.array_files import load_files
    from mlcc.cli.options import model_request
    from mlcc.cli.progress import progress_shown
    from mlcc.driver import write_module
    from mlcc.frontend.location import STYLE
    from mlcc.frontend.precision import convert_precision
    from mlcc.frontend.request import parse_sizes
    from mlcc.frontend.source import read_model
    from mlcc.frontend.weights import link_files, require_weights
    from mlcc.frontend.weights import weights_as_inputs as with_weights_as_inputs
    from mlcc.outputs import Outputs

    check_data_option(data, output, "mlcc")
    for option, given in (("--weights-as-inputs", weights_as_inputs), ("--link-weights", link_weights)):
        if given and output == "-":
            raise click.UsageError(f"{option} needs -o FILE, because the weights are stored beside it")
    if compare and file == "-":
        raise click.UsageError("--compare reads the model twice: name a file")
    wanted = parse_sizes(sizes)
    outputs = Outputs(force, watch=True)
    files = [part for path in weights for part in load_files(path)]
    outputs.read(file, *(part.path for part in files), *maps)
    outputs.write_module(output, "-o", "mlcc", data)
    outputs.check()
    with progress_shown():
        module = read_model(file, model_request(shapes, dims, maps, allow_packed, state_as_inputs))
    if compare and not _compare(file, module, wanted, rtol, seed):
        return DIFFERENT
    module = _with_file_weights(convert_precision(module, dtype), files)
    require_weights(module)
    apart: dict[str, TensorData] = {}
    if weights_as_inputs:
        module, apart = with_weights_as_inputs(module)
    if link_weights:
        link_files(files, output, force)
    write_module(module, output, data=data, outputs=outputs, style=STYLE, files=files, apart=apart)
    return 0


def _with_file_weights(module: IRModule, files: list[ArrayFile]) -> IRModule:
    """Return the module with the weights of the files. Report weights without a counterpart."""
    if not files:
        return module
    from mlcc.array_files import MergedArrays
    from mlcc.frontend.weights import format_names, replace_weights

    module, left, unused = replace_weights(module, MergedArrays(files))
    if left:
        echo_stderr(f"note: these weights are not in the files and keep the model's own values: {format_names(left)}")
    if unused:
        echo_stderr(f"note: the model has no weights of these names: {format_names(unused)}")
    return module


def _compare(path: str, module: IRModule, sizes: dict[str, int], rtol: float, seed: int) -> bool:
    """Compare the module's results with those of the model's own framework, and print them. True if they agree."""
    from mlcc.frontend.compare import Comparison
    from mlcc.frontend.runners import framework_runner

    comparison: Any = Comparison(module, framework_runner(path), rtol, seed).run(sizes)
    for line in comparison.lines():
        echo_stderr(line)
    return bool(comparison.agrees)

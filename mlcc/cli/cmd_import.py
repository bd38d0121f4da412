"""`mlcc import model.onnx -o model.mlc --weights w.safetensors`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mlcc.cli.options import check_data_option, data_option, force_option, model_options, say

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
    default="-",
    help="Where the text goes; weights then go into FILE.npz beside it (default: stdout).",
)
@data_option
@click.option(
    "--weights", multiple=True, metavar="ARRAYS",
    help="Values for the weights, by the model's names: .npz, .safetensors, an index of several, or a folder of them; "
    "repeatable. A file under the output's folder is referred to as it is.",
)  # fmt: skip
@click.option(
    "--link-weights", is_flag=True,
    help="Link files of --weights that lie elsewhere into the output's folder, and refer to them: nothing is copied.",
)  # fmt: skip
@click.option("--weights-as-inputs", is_flag=True, help="Let `main` take the weights as parameters (`run --params`).")
@model_options
@click.option(
    "--dtype", metavar="DTYPE",
    help="float16 or bfloat16: weights, inputs, results and what is computed from them; sums stay in float32.",
)  # fmt: skip
@click.option(
    "--compare", is_flag=True,
    help="Run the model by its own framework, too, on generated inputs, with the weights that it has; exit 3 and write "
    "nothing if a result differs. This runs what the file says with your rights: not for files of strangers.",
)  # fmt: skip
@click.option("--size", "sizes", multiple=True, metavar="NAME=N", help="A size for --compare, such as b=2; repeatable.")
@click.option("--rtol", default=1e-4, show_default=True, help="What --compare allows, of the largest element.")
@click.option("--seed", default=0, show_default=True, help="Of the inputs of --compare.")
@force_option
def command(
    file: str, output: str, data: str | None, weights: tuple[str, ...], link_weights: bool, weights_as_inputs: bool,
    shapes: tuple[str, ...], dims: tuple[str, ...], maps: tuple[str, ...], allow_packed: bool, state_as_inputs: bool,
    dtype: str | None, compare: bool, sizes: tuple[str, ...], rtol: float, seed: int, force: bool,
) -> int:  # fmt: skip
    """Import a model of another framework, FILE.onnx or FILE.pt2, as text.

    Nothing of FILE is run. What cannot be imported is listed at once, and nothing is written. The text names the
    modules and lines of the model behind its bindings.
    """
    from mlcc.array_files import load_files
    from mlcc.cli.options import model_request
    from mlcc.cli.progress import progress_shown
    from mlcc.driver import write_module
    from mlcc.frontend.place import STYLE
    from mlcc.frontend.precision import in_dtype
    from mlcc.frontend.request import parse_sizes
    from mlcc.frontend.source import read_model
    from mlcc.frontend.weights import link_files, need_weights
    from mlcc.frontend.weights import weights_as_inputs as with_weights_as_inputs
    from mlcc.outputs import Outputs

    check_data_option(data, output, "mlcc")
    for option, given in (("--weights-as-inputs", weights_as_inputs), ("--link-weights", link_weights)):
        if given and output == "-":
            raise click.UsageError(f"{option} needs -o FILE: the weights lie beside it")
    wanted = parse_sizes(sizes)
    outputs = Outputs(force, watch=True)
    files = [part for path in weights for part in load_files(path)]
    outputs.read(file, *(part.path for part in files), *maps)
    outputs.write_module(output, "-o", "mlcc", data)
    outputs.settle()
    with progress_shown():
        module = read_model(file, model_request(shapes, dims, maps, allow_packed, state_as_inputs))
    if compare and not _agrees(file, module, wanted, rtol, seed):
        return DIFFERENT
    module = _with_files(in_dtype(module, dtype), files)
    need_weights(module)
    apart: dict[str, TensorData] = {}
    if weights_as_inputs:
        module, apart = with_weights_as_inputs(module)
    if link_weights:
        link_files(files, output, force)
    write_module(module, output, data=data, outputs=outputs, style=STYLE, files=files, apart=apart)
    return 0


def _with_files(module: IRModule, files: list[ArrayFile]) -> IRModule:
    """Return the module with the weights of files. Reports weights without a counterpart."""
    if not files:
        return module
    from mlcc.array_files import Joined
    from mlcc.frontend.weights import listed, with_weights

    module, left, unused = with_weights(module, Joined(files))
    if left:
        say(f"note: the model's own values stay where the files have none: {listed(left)}")
    if unused:
        say(f"note: the model has no weights of these names: {listed(unused)}")
    return module


def _agrees(path: str, module: IRModule, sizes: dict[str, int], rtol: float, seed: int) -> bool:
    """Compare the module's results with those of the model's own framework, and print them. True if they agree."""
    from mlcc.frontend.compare import Comparison
    from mlcc.frontend.runners import runner_of

    comparison: Any = Comparison(module, runner_of(path), rtol, seed).run(sizes)
    for line in comparison.lines():
        say(line)
    return bool(comparison.agrees)

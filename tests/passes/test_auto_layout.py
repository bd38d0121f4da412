"""The layout of images: what is chosen, and that numbers stay."""

from __future__ import annotations

import numpy as np
import pytest

import mlcc
from bench.speed.chains import conv_chain
from mlcc.interp import run_function
from mlcc.ir.module import IRModule
from mlcc.passes.auto_schedule import tiles
from tests.passes.networks import Network

AVX512 = "llvm{cpu=skylake-avx512}"


def leaves(value: object) -> list[np.ndarray]:
    return [x for part in value for x in leaves(part)] if isinstance(value, (tuple, list)) else [value]  # type: ignore[list-item]


def function(params: dict[str, tuple[object, ...]], lines: list[str], dataflow: bool = True) -> IRModule:
    """`main`, whose last line binds the result."""
    of = ", ".join(f'{n}: R.Tensor(({", ".join(map(str, s))},), "float32")' for n, s in params.items())
    result = lines[-1].partition(" = ")[0]
    pad = "            " if dataflow else "        "
    head = "        with R.dataflow():\n" if dataflow else ""
    tail = f"{pad}R.output({result})\n" if dataflow else ""
    body = "".join(f"{pad}{line}\n" for line in lines)
    module = "@I.ir_module\nclass Module:\n    @R.function\n"
    return mlcc.parse(f"{module}    def main({of}):\n{head}{body}{tail}        return {result}\n")


def arrays(module: IRModule, sizes: dict[str, int] | None = None) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    dims = [[(sizes or {}).get(str(d)) or d.value for d in p.struct_info.dims] for p in module["main"].params]
    return [random.uniform(-1, 1, shape).astype(np.float32) for shape in dims]


def laid_out(module: IRModule) -> str:
    return mlcc.run_passes(module, "auto-layout", target=AVX512).script()


def chain(size: int, channels: int, batch: object = 1) -> IRModule:
    weights = {f"w{i}": (channels, channels, 3, 3) for i in range(3)}
    x, lines = "x", []
    for i in range(3):
        lines += [f"c{i} = R.nn.conv2d({x}, w{i}, padding=1)", f"r{i} = R.nn.relu(R.add(c{i}, {x}))"]
        x = f"r{i}"
    return function({"x": (batch, channels, size, size), **weights}, [*lines, f"y = R.mean({x}, axis=[2, 3])"])


def test_a_chain_at_a_small_image_turns_its_input_once() -> None:
    made = laid_out(chain(7, 64))
    assert made.count("permute_dims") == 1 and made.count('out_layout="NHWC"') == 3
    assert made.count('kernel_layout="OIHW"') == 3 and "axis=[1, 2]" in made


def test_what_does_not_pay_stays() -> None:
    wide = function({"x": (1, 32, 64, 64), "w": (10, 32, 1, 1)}, ["y = R.nn.conv2d(x, w)"])
    groups = function({"x": (1, 64, 16, 16), "w": (64, 2, 3, 3)}, ["y = R.nn.conv2d(x, w, groups=32)"])
    for module in (wide, groups):
        made = mlcc.run_passes(module, "auto-layout", target=AVX512)
        assert mlcc.structural_equal(made, module)


def test_groups_are_chosen_one_by_one() -> None:
    """A chain at a small image beside a single convolution whose result is narrow."""
    lines = ["a = R.nn.conv2d(x, w, padding=1)", "b = R.nn.conv2d(a, w, padding=1)", "c = R.nn.conv2d(z, v)"]
    params = {"x": (1, 64, 7, 7), "w": (64, 64, 3, 3), "z": (1, 32, 64, 64), "v": (10, 32, 1, 1)}
    made = laid_out(function(params, [*lines, "y = (b, c)"]))
    assert made.count('out_layout="NHWC"') == 2 and "R.nn.conv2d(z, v" in made


def test_transposes_of_the_program_disappear() -> None:
    """A program whose images have the channels last, written around an operator that wants them first."""
    lines = [
        "a = R.permute_dims(x, axes=[0, 3, 1, 2])", "b = R.nn.conv2d(a, w, padding=1)",
        "c = R.permute_dims(b, axes=[0, 2, 3, 1])", "d = R.nn.relu(c)",
        "e = R.permute_dims(d, axes=[0, 3, 1, 2])", "f = R.nn.conv2d(e, w, padding=1)",
        "g = R.permute_dims(f, axes=[0, 2, 3, 1])", "y = R.nn.relu(g)",
    ]  # fmt: skip
    module = function({"x": (1, 14, 14, 64), "w": (64, 64, 3, 3)}, lines)
    made = mlcc.run_passes(module, "auto-layout", target=AVX512)
    assert "permute_dims" not in made.script()
    given = arrays(module)
    np.testing.assert_allclose(run_function(made, "main", given), run_function(module, "main", given), 1e-4, 1e-4)


def test_an_image_of_few_channels_is_read_as_it_comes() -> None:
    module = function(
        {"x": (1, 3, 32, 32), "w": (64, 3, 3, 3)}, ["c = R.nn.conv2d(x, w)", "y = R.mean(c, axis=[2, 3])"]
    )
    made = mlcc.run_passes(module, "auto-layout{always=true}").script()
    assert 'data_layout="NCHW"' in made and 'out_layout="NHWC"' in made and "permute_dims" not in made


def test_weights_of_grouped_convolutions_lie_side_by_side() -> None:
    """Depthwise between two convolutions: nothing but the weight, the input and the result is turned."""
    params = {"x": (1, 16, 7, 7), "a": (96, 16, 1, 1), "d": (96, 1, 3, 3), "b": (16, 96, 1, 1)}
    lines = [
        "u = R.nn.conv2d(x, a)",
        "v = R.nn.relu6(R.nn.conv2d(u, d, padding=1, groups=96))",
        "y = R.nn.conv2d(v, b)",
    ]
    module = function(params, lines)
    made = mlcc.run_passes(module, "auto-layout", target=AVX512)
    assert made.script().count('kernel_layout="HWIO"') == 1 and made.script().count("permute_dims") == 3
    given = arrays(module)
    np.testing.assert_allclose(run_function(made, "main", given), run_function(module, "main", given), 1e-4, 1e-4)


@pytest.mark.parametrize("scales", ["8", "1, 8, 7, 7", "1, 2, 7, 7", "1, 1, 1, 1", ""])
def test_quantized_values_follow_the_layout(scales: str) -> None:
    """Scales for each channel, for groups of channels, or for all."""
    parameter = f'R.Tensor(({scales}{"," if scales else ""}), "float32")'
    lines = [
        'a = R.quantize(R.nn.conv2d(x, w, padding=1), s, R.const(3, "int8"), axis=1, out_dtype="int8")',
        'b = R.nn.relu(R.dequantize(a, s, R.const(3, "int8"), axis=1))', "y = R.nn.conv2d(b, w, padding=1)",
    ]  # fmt: skip
    module = function({"x": (1, 8, 7, 7), "w": (8, 8, 3, 3), "s": (8,)}, lines)
    module = mlcc.parse(module.script().replace('s: R.Tensor((8,), dtype="float32")', f"s: {parameter}"))
    made = mlcc.run_passes(module, "auto-layout{always=true}")
    text = made.script()
    assert text.count("permute_dims") == 2 + (scales.count(",") == 3)  # of the input, of scales with its axes, of `y`
    assert text.count("axis=3") == 2
    given = arrays(module)
    given[2] = np.abs(given[2]) + np.float32(0.1)
    np.testing.assert_allclose(run_function(made, "main", given), run_function(module, "main", given), 1e-4, 1e-4)


def test_no_dataflow_block_is_needed() -> None:
    lines = ["a = R.nn.conv2d(x, w, padding=1)", "y = R.nn.conv2d(a, w, padding=1)"]
    assert 'out_layout="NHWC"' in laid_out(function({"x": (1, 64, 7, 7), "w": (64, 64, 3, 3)}, lines, dataflow=False))


LINES = {
    "conv1d": ((1, 16, 9), (16, 16, 3), ["a = R.nn.conv1d(x, w, padding=1)", "y = R.nn.leakyrelu(a)"]),
    "conv3d": ((1, 4, 5, 4, 3), (4, 4, 3, 3, 3), ["a = R.nn.conv3d(x, w, padding=1)", "y = R.clip(a, -0.5, 0.5)"]),
    "pad": ((2, 8, 5, 6), (8, 8, 3, 3), ["a = R.nn.conv2d(x, w)", "y = R.nn.pad(a, [0, 0, 1, 0, 2, 1, 0, 3])"]),
    "concat": ((2, 8, 5, 6), (8, 8, 3, 3), ["a = R.nn.conv2d(x, w, padding=1)", "y = R.concat((x, a), axis=1)"]),
    "where": ((1, 8, 5, 6), (8, 8, 1, 1), ["a = R.nn.conv2d(x, w)", "y = R.where(R.greater(x, a), a, x)"]),
    "log_softmax": ((1, 8, 5, 6), (8, 8, 1, 1), ["a = R.nn.conv2d(x, w)", "y = R.nn.log_softmax(a, axis=1)"]),
}


@pytest.mark.parametrize("name", LINES)
def test_operators_around_follow_the_layout(name: str) -> None:
    x, w, lines = LINES[name]
    module = function({"x": x, "w": w}, lines)
    made = mlcc.run_passes(module, "auto-layout{always=true}")
    text, given = made.script(), arrays(module)
    assert text.index("permute_dims", text.index("data_layout")) > text.index(lines[-1].split()[2].partition("(")[0])
    np.testing.assert_allclose(run_function(made, "main", given), run_function(module, "main", given), 1e-4, 1e-4)


@pytest.mark.parametrize("seed", range(20))
def test_results_do_not_change(seed: int) -> None:
    network = Network(seed, length=9)
    module, given = mlcc.parse(network.text()), network.inputs()
    made = mlcc.run_passes(module, "auto-layout{always=true}")
    pairs = zip(leaves(run_function(made, "main", given)), leaves(run_function(module, "main", given)), strict=True)
    for got, want in pairs:
        np.testing.assert_allclose(got, want, 1e-4, 1e-4)


def test_a_batch_of_any_size_compiled() -> None:
    """Chosen, scheduled and compiled, against the program as it stands."""
    module = chain(7, 17, '"n"')
    compiled = mlcc.load(mlcc.build(mlcc.run_passes(module, "auto-layout{always=true}"), opt_level=3))
    for batch in (1, 3):
        given = arrays(module, {"n": batch})
        np.testing.assert_allclose(compiled["main"](*given), run_function(module, "main", given), 1e-4, 1e-4)


NORM = "n = R.nn.batch_norm(c, k, k, k, k, axis=1, training={training})"


@pytest.mark.parametrize(("training", "more", "stays"), [(False, [], 0), (True, [], 1), (False, ["z = R.exp(c)"], 1)])
def test_norms_fold_strictly(training: bool, more: list[str], stays: int) -> None:
    """Only with the moving mean, and if that saves something."""
    lines = ["c = R.nn.conv2d(x, w)", NORM.format(training=training), *more, "m = n[0]"]
    ones = {"w": "R.const([[[[1.0]], [[2.0]]]], 'float32')", "k": "R.const([2.0], 'float32')"}
    for name, value in ones.items():
        lines = [line.replace(f"{name})", f"{value})").replace(f"{name},", f"{value},") for line in lines]
    module = function({"x": (1, 2, 4, 4)}, [*lines, f"y = (m, {'z' if more else 'm'})"])
    assert mlcc.run_passes(module, "fold-batch-norm{strict=true}").script().count("nn.batch_norm") == stays
    assert mlcc.run_passes(module, "fold-batch-norm").script().count("nn.batch_norm") == 0


def test_layers_of_one_shape_are_rated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rated: list[object] = []
    whole = tiles.tiles
    monkeypatch.setattr(tiles, "tiles", lambda *args: rated.append(args) or whole(*args))
    counts = []
    for layers in (4, 8):
        tiles.best_tile.cache_clear()
        rated.clear()
        mlcc.run_passes(mlcc.parse(conv_chain(layers).source), "auto-layout", target=AVX512)
        counts.append(len(rated))
    assert counts[0] == counts[1] == len(set(map(repr, rated)))

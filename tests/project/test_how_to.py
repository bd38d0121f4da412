"""The recipes of docs/how-to.md: those for PyTorch run in order, and all commands exist with their options."""

from __future__ import annotations

import importlib
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

from mlcc.cli.main import COMMANDS, cli
from tests.pages import ROOT, environment, examples, follow, needs, run_bash

PAGE = ROOT / "docs" / "how-to.md"

CHECKPOINT = """
import torch

model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
torch.save(model.state_dict(), "checkpoint.pt")
"""

BY_HAND = """
@R.function
def main(x: R.Tensor(("n", 8), "float32"),
         p_0_weight: R.Tensor((16, 8), "float32"), p_0_bias: R.Tensor((16,), "float32"),
         p_2_weight: R.Tensor((3, 16), "float32"), p_2_bias: R.Tensor((3,), "float32")):
    h = R.nn.relu(R.linear(x, p_0_weight, p_0_bias))
    y = R.linear(h, p_2_weight, p_2_bias)
    return y
"""


@needs("torch")
def test_recipes_for_pytorch(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "net_by_hand.mlc").write_text(BY_HAND)
    (work / "checkpoint.py").write_text(CHECKPOINT)
    env = environment(tmp_path / "bin")
    assert run_bash("python3 checkpoint.py", work, env)[0] == 0
    follow(PAGE, tmp_path, "A model from PyTorch", "Weights")
    np.savez(work / "batch.npz", input=np.ones((2, 8), "float32"), x=np.ones((2, 8), "float32"))
    run = "mlcc run trained.mlc --in batch.npz --ignore-extra --out imported.npz\n"
    run += "mlcc run trained_by_hand.mlc --in batch.npz --ignore-extra --expect imported.npz\n"
    assert run_bash(run, work, env) == (0, "")


@needs("onnx")
def test_recipe_for_onnx(tmp_path: Path) -> None:
    import onnx
    from onnx import helper

    x, y = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["n", 8]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "net", [x], [y])
    (tmp_path / "work").mkdir()
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.save(model, str(tmp_path / "work" / "net.onnx"))
    follow(PAGE, tmp_path, "A model from ONNX")


def commands() -> list[str]:
    """Return the `mlcc` commands of the page, in fences and in the text."""
    page = PAGE.read_text()
    fences = [line for fence in re.findall(r"^```sh\n(.*?)^```", page, re.S | re.M) for line in fence.splitlines()]
    return [c for c in (*fences, *re.findall(r"`(mlcc [^`\n]+)`", page)) if re.match(r"mlcc \w+ ", c)]


@pytest.mark.parametrize("line", commands())
def test_commands_parse(line: str) -> None:
    """The command line is read as it stands, with every option and value."""
    name, *arguments = shlex.split(line)[1:]
    if name == "explain":
        return
    assert name in COMMANDS
    known = {option for parameter in cli.params for option in parameter.opts}
    arguments = [a for a in arguments if a not in known]
    command = importlib.import_module(f"mlcc.cli.cmd_{name}").command
    command.make_context(name, arguments)


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_c_recipe_compiles(tmp_path: Path) -> None:
    (recipe,) = (e.text for e in examples(PAGE, "Embedded C") if e.kind == "c")
    memory, _, body = recipe.partition("\n\n")
    program = (
        f'#include <stdio.h>\n#include "net.h"\n{memory}\nint run(DLTensor in, DLTensor out) {{{body}return code; }}\n'
    )
    (tmp_path / "net.mlc").write_text('@R.function\ndef main(x: R.Tensor((4, 8), "float32")):\n    return R.exp(x)\n')
    (tmp_path / "program.c").write_text(program)
    build = "mlcc compile net.mlc -o net.o --header net.h\ncc -std=c11 -Wall -Werror -c program.c"
    status, output = run_bash(build, tmp_path, environment(tmp_path / "bin"))
    assert status == 0, output

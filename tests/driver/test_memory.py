"""Weights are not copied on their way from an .npz into an object: peaks of memory of commands, by their rusage."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mlcc.driver import parse_file
from mlcc.ir import relax
from mlcc.ir.node import walk

SIZE = 2048  # 16 MiB a matrix
LAYERS = 6
BYTES = LAYERS * SIZE * SIZE * 4


def text(layers: int, constant: str) -> str:
    """Products with constant matrices, each of them `constant` of what the file has."""
    data = [f'    w{i} = R.data("w{i}", R.Tensor(({SIZE}, {SIZE}), "float32"))' for i in range(layers)]
    lines = []
    for i in range(layers):
        lines += [f"        c{i} = {constant.format(w=f'w{i}')}", f"        x{i + 1} = R.matmul(x{i}, c{i})"]
    head = f'@R.function\ndef main(x0: R.Tensor((1, {SIZE}), "float32")):'
    return "\n".join([head, *data, "    with R.dataflow():", *lines, f"        R.output(x{layers})",
                      f"    return x{layers}", ""])  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("memory")
    np.savez(made / "w.npz", **{f"w{i}": np.full((SIZE, SIZE), i, np.float32) for i in range(LAYERS)})
    return made


def peak(*arguments: str) -> int:
    """Bytes that a command of mlcc takes at most."""
    environment = {**os.environ, "MLCC_CACHE": "0", "OPENBLAS_NUM_THREADS": "1"}
    child = subprocess.Popen([sys.executable, "-m", "mlcc", *arguments], env=environment)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = status
    assert status == 0
    return usage.ru_maxrss * 1024


def compiled(folder: Path, layers: int, constant: str, level: int) -> int:
    path = folder / f"m{layers}.mlc"
    path.write_text("# mlcc.data-file w.npz\n" + text(layers, constant))
    header = str(folder / "m.h")
    return peak("compile", str(path), "-t", "llvm", f"-O{level}", "-o", str(folder / "m.o"), "--header", header)


@pytest.mark.parametrize(
    ("constant", "level", "most"), [("{w}", 1, 0.4), ("{w}", 3, 2.2), ("R.permute_dims({w})", 3, 2.7)]
)
def test_compiling_takes_the_weights_not_often(folder: Path, constant: str, level: int, most: float) -> None:
    """As they are: not at all, a piece at a time; packed, or computed with: once or twice."""
    one, all_of_them = (compiled(folder, layers, constant, level) for layers in (1, LAYERS))
    assert all_of_them - one < most * BYTES * (LAYERS - 1) / LAYERS


def test_weights_that_were_only_looked_at_take_no_memory(folder: Path) -> None:
    path = folder / "looked.mlc"
    path.write_text("# mlcc.data-file w.npz\n" + text(LAYERS, "{w}"))
    module = parse_file(str(path))
    weights = [n.data for f in module.functions.values() for n in walk(f) if isinstance(n, relax.Constant)]
    assert sum(data.nbytes for data in weights) == BYTES
    for data in weights:
        assert data.sha256 is not None
    assert resident_file_bytes() < resident_before(weights)
    assert [float(data.array[3, 5]) for data in weights if data.array is not None] == list(range(LAYERS))


def resident_file_bytes() -> int:
    """Bytes of files that are in the memory of this process."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("RssFile"))


def resident_before(weights: list[object]) -> int:
    """The same, with the weights."""
    for data in weights:
        data.array.sum()  # type: ignore[attr-defined]
    return resident_file_bytes() - BYTES // 2

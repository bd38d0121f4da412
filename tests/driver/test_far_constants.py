"""Constants of more than 1 GiB lie apart, where code reaches them by 64-bit addresses: here from far fewer bytes on."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import mlcc
from mlcc.errors import LoadError
from mlcc.ir.tensor_data import TensorData
from mlcc.runtime import abi, elf
from mlcc.targets.llvm import artifact
from mlcc.targets.plan import context

LAYERS, SIZE = 6, 64
X = np.random.default_rng(0).standard_normal((3, SIZE)).astype(np.float32)


def weights() -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.standard_normal((SIZE, SIZE)).astype(np.float32) / 8 for _ in range(LAYERS)]


def module() -> mlcc.IRModule:
    data = {f"w{i}": TensorData.of(array, key=f"w{i}") for i, array in enumerate(weights())}
    lines = [f'        x{i + 1} = R.matmul(x{i}, R.data("w{i}", R.Tensor(({SIZE}, {SIZE}), "float32")))'
             for i in range(LAYERS)]  # fmt: skip
    head = f'@R.function\ndef main(x0: R.Tensor((3, {SIZE}), "float32")):\n    with R.dataflow():'
    text = "\n".join([head, *lines, f"        R.output(x{LAYERS})", f"    return x{LAYERS}"])
    from mlcc.grammar.parser import parse

    return parse(text, data=data)


def expected() -> np.ndarray:
    y = X
    for array in weights():
        y = y @ array
    return y


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    for part in (abi, context, artifact):
        monkeypatch.setattr(part, "FAR_CONSTANTS", 1 << 14)
    monkeypatch.setattr(elf, "MAX_MEMORY", 1 << 16)  # all constants are 96 KiB


def check(path: str) -> None:
    np.testing.assert_allclose(mlcc.load(path)["main"](X), expected(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_objects_with_far_constants_run(tmp_path: Path, level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = mlcc.build(module(), "llvm{cpu=native}", opt_level=level)
    path = str(tmp_path / "m.o")
    made.save(path)
    sections = elf.read_object(Path(path).read_bytes()).sections
    far = [s for s in sections if s.is_far]
    assert len(far) == 1 and far[0].size >= LAYERS * SIZE * SIZE * 4
    check(path)
    monkeypatch.setattr("mlcc.runtime.large_file.LARGE", 1 << 12)
    check(path)
    monkeypatch.setattr(elf, "MAX_MEMORY", 1 << 12)  # of everything else
    with pytest.raises(LoadError, match="beside its constants|impossible size"):
        mlcc.load(path)


def test_other_machines_have_far_sections() -> None:
    made = mlcc.build(module(), "llvm{triple=aarch64-linux-gnu}")
    assert any(s.is_far for s in elf.read_sections(made.emit("obj")))


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_programs_in_c_and_shared_libraries(tmp_path: Path) -> None:
    made = mlcc.build(module(), "llvm{cpu=native}")
    made.save(str(tmp_path / "m.so"))
    check(str(tmp_path / "m.so"))
    made.save(str(tmp_path / "m.o"))
    (tmp_path / "m.h").write_text(made.header(str(tmp_path / "m.h")))
    values = ", ".join(map(repr, X.reshape(-1).tolist()))
    (tmp_path / "app.c").write_text(f"""
#include <stdio.h>
#include "m.h"
static float x[] = {{{values}}}, y[{3 * SIZE}];
int main(void) {{
    int64_t shape[] = {{3, {SIZE}}};
    DLTensor in = {{x, {{1, 0}}, 2, {{2, 32, 1}}, shape, 0, 0}}, out = {{y, {{1, 0}}, 2, {{2, 32, 1}}, shape, 0, 0}};
    if (m_main(&in, &out)) return 1;
    for (int i = 0; i < {3 * SIZE}; i++) printf("%.8g\\n", y[i]);
    return 0;
}}
""")
    subprocess.run(["cc", "app.c", "m.o", "-o", "app", "-lm"], cwd=tmp_path, check=True)
    found = subprocess.run([tmp_path / "app"], capture_output=True, text=True, check=True).stdout.split()
    np.testing.assert_allclose(np.array(found, np.float32).reshape(3, SIZE), expected(), rtol=1e-4, atol=1e-5)


def test_text_of_the_code_has_the_constants() -> None:
    made = mlcc.build(module(), "llvm")
    assert "_constants = hidden constant [" in made.emit("llvm-ir").decode()

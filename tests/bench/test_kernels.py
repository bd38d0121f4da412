"""`python -m bench kernels`: every kernel that a graph calls is timed, in its order."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import kernels

TEXT = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((SIZE, 8), "float32"), w: R.Tensor((8, 8), "float32")):
        with R.dataflow():
            a = R.nn.softmax(R.matmul(x, w))
            b = R.matmul(a, w)
            R.output(b)
        return b
"""


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLCC_NUM_THREADS", "1")  # what the command sets is undone


def test_kernels_are_timed_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.mlc"
    path.write_text(TEXT.replace("SIZE", "4"))
    assert kernels.main([str(path), "--rounds", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = sorted(line.split(maxsplit=3)[3].rstrip("0123456789") for line in lines[1:-1])
    assert names == ["0: matmul", "1: softmax", "2: matmul"]
    assert lines[-1].endswith("all")


def test_sizes_have_to_be_known(tmp_path: Path) -> None:
    path = tmp_path / "m.mlc"
    path.write_text(TEXT.replace("SIZE", '"n"'))
    with pytest.raises(SystemExit, match="bind-symbolic-vars"):
        kernels.main([str(path)])

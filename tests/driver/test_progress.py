"""What a compile says of its own work: the line on a terminal, the table of `compile --time`."""

from __future__ import annotations

import io
from pathlib import Path

import mlcc
from mlcc.cli.main import run
from mlcc.cli.progress import DELAY_SECONDS, REFRESH_SECONDS, ProgressLine
from mlcc.passes.manage.compile_times import MAX_KERNEL_ROWS, CompileTimes
from mlcc.progress import Announcer, Listener, Work, listening, working

TEXT = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((32, 32), "float32"), w: R.Tensor((32, 32), "float32")):
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.nn.softmax(R.add(y, x))
            R.output(z)
        return z
"""


class Recorder(Listener):
    def __init__(self) -> None:
        self.begins: list[Work] = []
        self.ends: list[Work] = []

    def started(self, work: Work) -> None:
        self.begins.append(work)

    def done(self, work: Work, seconds: float) -> None:
        assert seconds >= 0
        self.ends.append(work)


def test_kernels_are_announced() -> None:
    heard = Recorder()
    with listening(heard):
        mlcc.build(mlcc.parse(TEXT), target="llvm{cpu=native}")
    kernels = [work.kernel for work in heard.begins if work.stage == "auto-schedule"]
    assert len(kernels) == 2 and {work.kernel for work in heard.begins if work.stage == "emit"} == set(kernels)
    scheduled = [(w.at, w.count) for w in heard.ends if w.stage == "auto-schedule"]
    assert scheduled == [(0, 2), (1, 2)]
    assert any(work.stage == "LLVM" for work in heard.ends)
    heard.begins.clear()
    mlcc.build(mlcc.parse(TEXT), target="llvm{cpu=native}")
    assert not heard.begins  # only inside


def test_the_line_appears_late_and_goes_away() -> None:
    now = [0.0]
    stream = io.StringIO()
    line = ProgressLine(stream, lambda: now[0])
    with listening(line):
        for at in range(4):
            with working("auto-schedule", f"kernel{at}", at, 4):
                now[0] += DELAY_SECONDS / 2
            if at == 0:
                assert stream.getvalue() == ""
    shown = [part for part in stream.getvalue().split("\r\033[K") if part]
    assert shown[0].startswith("auto-schedule 2/4, about 1 s left: kernel1")
    assert shown[-1] == "auto-schedule 4/4: kernel3"
    line.close()
    assert stream.getvalue().endswith("\r\033[K")


def test_the_line_is_not_written_all_the_time() -> None:
    now = [0.0]
    stream = io.StringIO()
    line = ProgressLine(stream, lambda: now[0])
    now[0] = DELAY_SECONDS
    with listening(line):
        for at in range(1000):
            Announcer().done("LLVM", "kernel", REFRESH_SECONDS / 100, at, 1000)
            now[0] += REFRESH_SECONDS / 100
    assert 9 <= stream.getvalue().count("\r") <= 11


def test_nothing_is_written_before_its_time() -> None:
    stream = io.StringIO()
    line = ProgressLine(stream, lambda: 0.0)
    with listening(line):
        Announcer().done("LLVM", "kernel", 1.0)
    line.close()
    assert stream.getvalue() == ""


def test_times_of_passes_and_kernels(tmp_path: Path, capsys: object) -> None:
    text = tmp_path / "m.mlc"
    text.write_text(TEXT)
    for target, output in (("llvm", "m.o"), ("cuda", "m.mlca")):
        assert run(["compile", str(text), "-t", target, "--time", "-o", str(tmp_path / output)]) == 0
        said = capsys.readouterr().err  # type: ignore[attr-defined]
        passes, kernels = said.split("\n\n")
        for word in ("read", "auto-schedule", "emit", "LLVM", "in all"):
            assert any(line.endswith(f"%  {word}") for line in passes.splitlines()), (word, said)
        assert len(kernels.splitlines()) >= 3 and "fused" in kernels
        assert (tmp_path / output).stat().st_size > 0


def test_the_table_names_what_took_longest() -> None:
    said: list[str] = []
    times = CompileTimes(said.append)
    with listening(times):
        for at in range(2 * MAX_KERNEL_ROWS):
            Announcer().done("LLVM", f"kernel{at:03}", float(at))
    times.report()
    rows = said[0].splitlines()
    assert rows[-1] == f"and {MAX_KERNEL_ROWS} more" and rows[-2].endswith(f"kernel{MAX_KERNEL_ROWS:03}")

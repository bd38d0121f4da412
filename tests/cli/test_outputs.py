"""What a command writes never destroys what the user has: inputs, other outputs, files of another kind."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import mlcc as package
from mlcc.errors import CompileError
from tests.cli.test_cli import SCALE, Tool

ROOT = Path(__file__).resolve().parents[2]
MODEL = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 32), "float32"), w: R.Tensor((32, 32), "float32")):
        with R.dataflow():
            y = R.matmul(x, w)
            R.output(y)
        return y
"""
RULES = """
@R.function
def pattern(x: R.Tensor, y: R.Tensor):
    return R.add(x, y)
"""
SCRIPT = 'def schedule(sch):\n    i, = sch.get_loops("B")\n    sch.split(i, factors=[None, 4])\n'
BIND = "bind-params{params=w.npz}"


@pytest.fixture
def tool(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tool:
    monkeypatch.chdir(tmp_path)
    made = Tool(tmp_path, capfd)
    made.file("a.mlc", SCALE)
    made.file("net.mlc", MODEL)
    made.file("s.mls", SCRIPT)
    made.file("env.py", "")
    made.npz("x.npz", A=np.arange(8, dtype=np.float32))
    made.npz("y.npz", out=np.arange(8, dtype=np.float32) * 2)
    made.npz("w.npz", w=np.eye(32, dtype=np.float32))
    return made


def contents() -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in Path().rglob("*") if p.is_file()}


# (command, the input among its words that is given as output, too)
WRITERS = [
    (["compile", "a.mlc", "--emit", "llvm-ir", "-o"], "a.mlc"),
    (["compile", "a.mlc", "-o", "a.o", "--header"], "a.mlc"),
    (["compile", "-p", BIND, "net.mlc", "-o"], "w.npz"),
    (["compile", "a.mlc", "-p", "schedule{script=s.mls},lower-to-tir", "-o", "a.o", "--header"], "s.mls"),
    (["passes", "a.mlc", "-p", "", "-o"], "a.mlc"),
    (["passes", "net.mlc", "-p", BIND, "-o", "o.mlc", "--data"], "w.npz"),
    (["passes", "net.mlc", "-p", "schedule{script=s.mls}", "-o"], "s.mls"),
    (["passes", "net.mlc", "-p", "rewrite{rules=a.mlc}", "-o"], "a.mlc"),
    (["passes", "net.mlc", "-p", "", "--check-each", "x.npz", "-o", "o.mlc", "--data"], "x.npz"),
    (["run", "a.mlc", "--in", "x.npz", "--out"], "x.npz"),
    (["run", "a.mlc", "--in", "x.npz", "--expect", "y.npz", "--out"], "y.npz"),
    (["run", "a.mlc", "--in", "x.npz", "--env", "env.py", "--out"], "env.py"),
    (["schedule", "a.mlc", "--script", "s.mls", "-o"], "a.mlc"),
    (["schedule", "a.mlc", "--script", "s.mls", "-o", "o.mlc", "--trace"], "s.mls"),
    (["schedule", "a.mlc", "--script", "s.mls", "-o"], "s.mls"),
    (["schedule", "a.mlc", "--auto", "-o"], "a.mlc"),
]


@pytest.mark.parametrize(("words", "victim"), WRITERS, ids=lambda v: " ".join(v) if isinstance(v, list) else v)
@pytest.mark.parametrize("spelling", ["same", "dotted", "up", "absolute", "link", "hard link", "linked folder"])
def test_an_output_is_no_input(tool: Tool, words: list[str], victim: str, spelling: str) -> None:
    Path("sub").mkdir()
    Path("folder").symlink_to(".")
    suffix = Path(victim).suffix
    Path(f"link{suffix}").symlink_to(victim)
    os.link(victim, f"hard{suffix}")
    name = {
        "same": victim, "dotted": f"./{victim}", "up": f"sub/../{victim}", "absolute": str(Path(victim).absolute()),
        "link": f"link{suffix}", "hard link": f"hard{suffix}", "linked folder": f"folder/{victim}",
    }[spelling]  # fmt: skip
    before = contents()
    tool(*words, name, code=1)
    assert "[E0010]" in tool.err or "[E0012]" in tool.err
    assert contents() == before


def test_standard_streams_are_files_too(tool: Tool) -> None:
    """A model that comes in through standard input, a result that goes out through standard output."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = f"{sys.executable} -m mlcc"
    before = contents()
    for line in (
        f"{command} passes - -p '' -o a.mlc < a.mlc", f"{command} passes a.mlc -p '' >> a.mlc",
        f"{command} passes a.mlc -p '' -o /dev/stdout >> a.mlc", f"{command} compile - --emit asm -o a.mlc < a.mlc",
    ):  # fmt: skip
        done = subprocess.run(["bash", "-c", line], env=env, capture_output=True, text=True)
        assert done.returncode == 1 and "E001" in done.stderr, line
        assert contents() == before


@pytest.mark.parametrize(
    "words",
    [
        ["compile", "a.mlc", "-o", "m.out", "--emit", "obj", "--header", "./m.out"],
        ["compile", "a.mlc", "-o", "-", "--header", "-"],
        ["compile", "a.mlc", "-o", "-", "--emit", "asm", "--header", "/dev/stdout"],
        ["passes", "net.mlc", "-p", BIND, "-o", "m.out", "--data", "sub/../m.out"],
        ["schedule", "a.mlc", "--script", "s.mls", "--trace", "t.out", "-o", "t.out"],
        ["schedule", "a.mlc", "--script", "s.mls", "--trace", "-"],
        ["schedule", "a.mlc", "--script", "s.mls", "--trace", "one.out", "-o", "two.out"],
    ],
)
def test_two_outputs_are_two_files(tool: Tool, words: list[str]) -> None:
    Path("sub").mkdir()
    Path("one.out").write_text("")
    os.link("one.out", "two.out")
    before = contents()
    assert tool(*words, code=1) == ""
    assert "[E0011]" in tool.err
    assert contents() == before


SUFFIXES = [
    *((["compile", "a.mlc", *emit, "-o"], f"x{suffix}") for emit in ([], ["--emit", "obj"], ["--emit", "shared"])
      for suffix in (".mlc", ".mls", ".py", ".c", ".npz", ".h", ".cpp", ".json", ".md", ".npy", ".safetensors",
                     ".onnx", ".C", ".MLC", ".cu")),
    (["compile", "a.mlc", "--emit", "asm", "-o"], "x.o"),
    (["compile", "a.mlc", "--emit", "obj", "-o"], "x.so"),
    *((["compile", "a.mlc", "-o", "x.o", "--header"], f"x{suffix}") for suffix in (".mlc", ".c", ".o", ".npz", ".py")),
    *((["compile", "a.mlc", "-t", "cuda", "-o"], f"x{suffix}") for suffix in (".mlc", ".c", ".npz", ".py")),
    *((["run", "a.mlc", "--in", "x.npz", "--out"], f"z{suffix}") for suffix in (".mlc", ".o", ".py", ".c", ".mls")),
    *((["passes", "a.mlc", "-p", "", "-o"], f"z{suffix}") for suffix in (".o", ".npz", ".c", ".mls", ".ptx", ".py")),
    *((["schedule", "a.mlc", "--script", "s.mls", "-o"], f"z{suffix}") for suffix in (".o", ".npz", ".c", ".mls")),
    *((["schedule", "a.mlc", "--script", "s.mls", "-o", "o.mlc", "--trace"], f"z{suffix}")
      for suffix in (".o", ".npz", ".mlc")),
    (["compile", "a.mlc", "-o"], "x"),
    (["compile", "a.mlc", "-o"], "x.xyz"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "name"), SUFFIXES, ids=lambda v: " ".join(v) if isinstance(v, list) else v)
def test_a_suffix_fits_what_is_written(tool: Tool, words: list[str], name: str) -> None:
    Path(name).write_text("mine")
    before = contents()
    tool(*words, name, code=1)
    assert "[E0012]" in tool.err or "[E0755]" in tool.err  # the latter: what the target does not write at all
    assert contents() == before


def test_an_unknown_suffix_asks_for_what_to_write(tool: Tool) -> None:
    tool("compile", "a.mlc", "-o", "x.xyz", code=1)
    assert "--emit" in tool.err
    for name in ("x.xyz", "x", "lib.so.1"):
        tool("compile", "a.mlc", "--emit", "shared" if "so" in name else "obj", "-o", name)
        assert Path(name).read_bytes().startswith(b"\x7fELF")


def test_a_link_is_judged_by_its_file(tool: Tool) -> None:
    Path("mine.mlc").write_text(SCALE)
    Path("x.o").symlink_to("mine.mlc")
    tool("compile", "a.mlc", "-o", "x.o", code=1)
    assert "[E0012]" in tool.err and Path("mine.mlc").read_text() == SCALE


# ---------------------------------------------------------------- what is written by implication


def test_constants_replace_only_what_mlcc_wrote_for_them(tool: Tool) -> None:
    words = ["passes", "net.mlc", "-p", BIND, "-o", "o.mlc"]
    tool.npz("o.npz", mine=np.zeros(3))
    before = contents()
    tool(*words, code=1)
    assert "[E0013]" in tool.err and "--data" in tool.err and contents() == before
    tool(*words, "--force")
    made = contents()
    tool(*words)  # its own it replaces
    assert contents() == made
    Path("o.npz").unlink()
    tool(*words)
    assert contents() == made
    package.load(package.build(package.parse(Path("o.mlc").read_text(), name="o.mlc", folder=".")))


def test_results_are_not_replaced_by_constants(tool: Tool) -> None:
    tool("run", "a.mlc", "--in", "x.npz", "--out", "o.npz")
    before = contents()
    tool("passes", "net.mlc", "-p", BIND, "-o", "o.mlc", code=1)
    assert "[E0013]" in tool.err and contents() == before


def test_constants_of_a_text_and_of_kernels_are_two_things(tool: Tool) -> None:
    tool("passes", "net.mlc", "-p", BIND, "-o", "o.mlc")
    before = contents()
    tool("compile", "net.mlc", "-t", "cuda", "-p", f"{BIND},O0", "-o", "o.ptx")  # it finds its own there
    before["o.ptx"] = Path("o.ptx").read_bytes()
    assert contents() == before
    tool.npz("w.npz", w=2 * np.eye(32, dtype=np.float32))
    before = contents()
    tool("compile", "net.mlc", "-t", "cuda", "-p", f"{BIND},O0", "-o", "o.ptx", code=1)
    assert "E0013" in tool.err
    assert contents() == before
    tool("compile", "net.mlc", "-t", "cuda", "-p", f"{BIND},O0", "-o", "o.ptx", "--data", "k.npz")
    del before["o.ptx"]
    assert contents().items() >= before.items()
    tool("inspect", "o.ptx")
    tool.npz("in.npz", x=np.ones((2, 32), np.float32))
    tool("run", "o.ptx", "--emulate", "--in", "in.npz", "--out", "k.npz", code=1)
    assert "[E0010]" in tool.err


def test_constants_that_are_there_stay(tool: Tool) -> None:
    """An archive that holds what the text needs is left as it is, be it an input."""
    Path("net.npz").write_bytes(Path("w.npz").read_bytes())
    before = contents()
    tool("passes", "net.mlc", "-p", "bind-params{params=net.npz}", "-o", "net.mlc", code=1)
    assert contents() == before
    Path("n").mkdir()
    Path("n/net.npz").symlink_to("../net.npz")
    tool("passes", "net.mlc", "-p", "bind-params{params=net.npz}", "-o", "n/net.mlc")
    assert {k: v for k, v in contents().items() if not k.startswith("n/")} == before
    assert Path("n/net.npz").is_symlink()


def test_data_of_another_name(tool: Tool) -> None:
    Path("data").mkdir()
    tool("passes", "net.mlc", "-p", BIND, "-o", "o.mlc", "--data", "data/o w.npz")
    assert not Path("o.npz").exists()
    tool.npz("in.npz", x=np.ones((2, 32), np.float32))
    tool("run", "o.mlc", "--in", "in.npz", "--out", "r.npz")
    np.testing.assert_array_equal(np.load("r.npz")["out"], np.ones((2, 32)))
    assert "# mlcc.data-file data/o%20w.npz" in tool("fmt", "o.mlc")
    for where in ("../o.npz", str(tool.folder.parent / "o.npz")):
        tool("passes", "net.mlc", "-p", BIND, "-o", "o.mlc", "--data", where, code=1)
        assert "[E0906]" in tool.err
    tool("passes", "o.mlc", "-p", "", "-o", "p.mlc", "--data", "data/o w.npz", code=1)
    assert "[E0010]" in tool.err
    tool("passes", "net.mlc", "-p", BIND, "--data", "o.npz", code=2)
    tool("passes", "net.mlc", "-p", BIND, "--data", "o.npz", "-o", "o.py", "--dialect", "tvm", code=2)
    tool("compile", "net.mlc", "-o", "o.o", "--data", "o.npz", code=2)


def test_data_that_the_input_reads_are_an_input(tool: Tool) -> None:
    tool("passes", "net.mlc", "-p", BIND, "-o", "o.mlc")
    before = contents()
    tool("run", "o.mlc", "--in", "x.npz", "--out", "o.npz", code=1)
    assert "[E0010]" in tool.err
    tool("passes", "o.mlc", "-p", "", "-o", "p.mlc", "--data", "o.npz", code=1)
    assert "[E0010]" in tool.err and contents() == before


def test_results_beside_a_text_without_data(tool: Tool) -> None:
    """Only what is read is an input, and not whatever has the name."""
    for _ in range(2):
        tool("run", "a.mlc", "--in", "x.npz", "--out", "a.npz")


def test_dumps_replace_dumps_alone(tool: Tool) -> None:
    words = ["passes", "net.mlc", "-p", "fuse,lower-to-tir", "--dump-dir", "d", "-o", "o.mlc"]
    tool(*words)
    tool(*words)
    first = sorted(Path("d").iterdir())[0]
    tool("passes", first, "-p", "fuse", "--dump-dir", "d", "-o", "o.mlc", code=1)
    assert "[E0010]" in tool.err
    first.write_text(SCALE)
    before = contents()
    tool(*words, code=1)
    assert "[E0013]" in tool.err and contents() == before
    first.unlink()
    tool(*words[:-1], first, code=1)
    assert "[E0011]" in tool.err


# ---------------------------------------------------------------- devices, links, permissions


def test_devices_and_pipes_work(tool: Tool) -> None:
    for words in (["compile", "a.mlc", "-o", "/dev/null", "--header", "/dev/null"],
                  ["passes", "net.mlc", "-p", BIND, "-o", "/dev/null"],
                  ["run", "a.mlc", "--in", "x.npz", "--out", "/dev/null"],
                  ["schedule", "a.mlc", "--script", "s.mls", "--trace", "/dev/null", "-o", "/dev/null"]):  # fmt: skip
        tool(*words)
    assert not Path("/dev/null.npz").exists()
    assert tool("passes", "a.mlc", "-p", "", "-o", "/dev/stdout") == tool("passes", "a.mlc", "-p", "")
    os.mkfifo("pipe.mlc")
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(Path("pipe.mlc").read_bytes()))
    reader.start()
    tool("compile", "a.mlc", "-o", "pipe.mlc")
    reader.join()
    assert got[0].startswith(b"\x7fELF") and stat.S_ISFIFO(os.stat("pipe.mlc").st_mode)


def test_redirected_standard_output_by_its_device(tool: Tool) -> None:
    """`/dev/stdout` appends to what a shell has open; it does not put another file in its place."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    line = f"(echo first; {sys.executable} -m mlcc passes a.mlc -p '' -o /dev/stdout; echo last) > all.txt"
    subprocess.run(["bash", "-c", line], env=env, check=True)
    made = Path("all.txt").read_text()
    assert made.startswith("first\n") and made.endswith("last\n") and "T.prim_func" in made


def test_links_are_written_through(tool: Tool) -> None:
    Path("real").mkdir()
    for name, target in (("m.o", "real/m.o"), ("two.o", "m.o")):
        Path(name).symlink_to(target)
    tool("compile", "a.mlc", "-o", "two.o")  # where nothing is yet
    assert Path("real/m.o").read_bytes().startswith(b"\x7fELF") and not Path("real/m.o").is_symlink()
    assert Path("two.o").is_symlink() and Path("m.o").is_symlink()
    assert [p.name for p in Path("real").iterdir()] == ["m.o"]
    Path("f.mlc").write_text("@T.prim_func\ndef  f( ) :\n  T.evaluate( 1 )\n")
    Path("f-link.mlc").symlink_to("f.mlc")
    tool("fmt", "-i", "f-link.mlc")
    assert Path("f-link.mlc").is_symlink() and "def f()" in Path("f.mlc").read_text()
    Path("loop.o").symlink_to("loop.o")
    tool("compile", "a.mlc", "-o", "loop.o", code=1)
    assert "[E0002]" in tool.err


def test_existing_permissions_are_kept(tool: Tool) -> None:
    for mode in (0o600, 0o755, 0o640):
        Path("m.o").write_bytes(b"")
        os.chmod("m.o", mode)
        tool("compile", "a.mlc", "-o", "m.o")
        assert stat.S_IMODE(os.stat("m.o").st_mode) == mode
    old = os.umask(0o027)
    try:
        tool("compile", "a.mlc", "-o", "new.o")
    finally:
        os.umask(old)
    assert stat.S_IMODE(os.stat("new.o").st_mode) == 0o640


def test_a_folder_is_no_output(tool: Tool) -> None:
    Path("d.o").mkdir()
    for name in ("d.o", "", "no/m.o", "a.mlc/m.o"):
        tool("compile", "a.mlc", "-o", name, "--emit", "obj", code=1)
        assert "[E0002]" in tool.err


def test_both_outputs_are_written_or_neither(tool: Tool) -> None:
    """Where one of two outputs cannot be written, the other is as before."""
    Path("m.o").write_bytes(b"before")
    tool("compile", "a.mlc", "-o", "m.o", "--header", "/dev/full", code=1)
    assert "[E0002]" in tool.err and Path("m.o").read_bytes() == b"before"
    assert not [p for p in Path().iterdir() if p.name.startswith(".")]


def test_binaries_stay_away_from_terminals(tool: Tool) -> None:
    import pty

    main, terminal = pty.openpty()
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    name = os.ttyname(terminal)
    for words, fits in ((["compile", "a.mlc", "-o", "-"], False), (["compile", "a.mlc", "-o", name], False),
                        (["compile", "a.mlc", "--emit", "shared", "-o", "/dev/stdout"], False),
                        (["compile", "a.mlc", "-t", "cuda", "--emit", "mlca", "-o", "-"], False),
                        (["run", "a.mlc", "--in", "x.npz", "--out", "-"], False),
                        (["compile", "a.mlc", "-t", "cuda", "-o", "-"], True)):  # fmt: skip
        done = subprocess.run([sys.executable, "-m", "mlcc", *words], env=env, stdout=terminal, stderr=subprocess.PIPE)
        assert (done.returncode == 0) == fits, done.stderr
        assert fits or b"E0014" in done.stderr
    os.close(terminal)
    os.close(main)


def test_an_interruption_leaves_no_half_file(tool: Tool) -> None:
    """Whenever Ctrl-C comes, an output is as it was or whole, and nothing lies beside it."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    Path("m.o").write_bytes(b"before")
    names = {p.name for p in Path().iterdir()}
    for delay in (0.1, 0.3, 0.5, 0.7):
        process = subprocess.Popen(
            [sys.executable, "-m", "mlcc", "compile", "a.mlc", "-o", "m.o"], env=env, stderr=subprocess.DEVNULL
        )
        try:
            process.wait(delay)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
        process.wait()
        made = Path("m.o").read_bytes()
        assert made == b"before" or made.startswith(b"\x7fELF")
        assert {p.name for p in Path().iterdir()} == names


# ---------------------------------------------------------------- the Python interface


def test_save_has_the_same_rules(tmp_path: Path) -> None:
    artifact = package.build(package.parse(SCALE))
    for name in ("m.mlc", "m.c", "m.npz", "m", "m.xyz", "m.ptx"):
        (tmp_path / name).write_text("mine")
        with pytest.raises(CompileError, match="E0012|E0755"):
            artifact.save(tmp_path / name)
        assert (tmp_path / name).read_text() == "mine"
    artifact.save(tmp_path / "m.xyz", emit="obj")
    with pytest.raises(CompileError, match="E0012"):
        artifact.save(tmp_path / "m.c", emit="obj")


def test_c_source_is_asked_for_by_name(tool: Tool) -> None:
    """A .c file may be somebody's program: its name alone does not choose the target that writes C."""
    tool("compile", "a.mlc", "--emit", "c", "-o", "m.c", "--header", "m.h")
    source, header = Path("m.c").read_text(), Path("m.h").read_text()
    assert "int32_t m_" in header and "int32_t m_" in source
    tool("compile", "a.mlc", "-t", "c", "-o", "n.c", "--prefix", "m")
    assert Path("n.c").read_text() == source
    for words in (["-o", "x.c"], ["-t", "llvm", "--emit", "c", "-o", "x.c"]):
        tool("compile", "a.mlc", *words, code=1)
        assert "[E0755]" in tool.err and "-t c" in tool.err and not Path("x.c").exists()

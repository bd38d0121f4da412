"""The command line end to end: results, exit codes, messages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mlcc.cli.main import run

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "samples" / "digits"

SCALE = """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi] * T.float32(2)
"""

GRAPH = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("n", 4), "float32")):
        with R.dataflow():
            a = R.multiply(x, y)
            b = R.add(a, y)
            R.output(b)
        return b
"""


DEEP = "@T.prim_func\ndef f():\n" + "".join(" " * (4 + n) + "if True:\n" for n in range(2000)) + " " * 2004 + "pass\n"


class Tool:
    """Runs `mlcc` in this process, in a folder of its own."""

    def __init__(self, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capfd = folder, capfd

    def __call__(self, *argv: str | Path, code: int = 0) -> str:
        """Standard output; the exit code must be `code`. Messages are kept in `self.err`."""
        self.capfd.readouterr()
        got = run([str(a) for a in argv])
        out, self.err = self.capfd.readouterr()
        assert got == code, f"exit code {got}, not {code}:\n{out}{self.err}"
        assert "Traceback" not in self.err
        return out

    def file(self, name: str, text: str | bytes) -> Path:
        path = self.folder / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def npz(self, name: str, **arrays: np.ndarray) -> Path:
        np.savez(self.folder / name, **arrays)
        return self.folder / name


@pytest.fixture
def mlcc(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tool:
    monkeypatch.chdir(tmp_path)
    return Tool(tmp_path, capfd)


def f32(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


NUMBERS = [
    ("bisect", "--rtol"), ("bisect", "--atol"), ("bisect", "--time"), ("reduce", "--rtol"), ("reduce", "--atol"),
    ("reduce", "--time"), ("run", "--rtol"), ("run", "--atol"), ("passes", "--rtol"), ("passes", "--atol"),
    ("import", "--rtol"), ("tune", "--until"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "option"), NUMBERS)
@pytest.mark.parametrize("value", ["nan", "inf", "-1", "-inf", "x"])
def test_numbers_are_finite_and_within_bounds(mlcc: Tool, command: str, option: str, value: str) -> None:
    mlcc(command, "model.mlc", option, value, code=2)
    assert f"Invalid value for '{option}'" in mlcc.err


# ---------------------------------------------------------------- what works


def test_help_lists_every_command(mlcc: Tool) -> None:
    from mlcc.cli.main import COMMANDS

    text = mlcc("--help")
    for name in COMMANDS:
        assert name in text
        assert "Usage" in mlcc(name, "--help")
    assert "for cuda ptx, mlca," in " ".join(mlcc("compile", "--help").split())


def test_run_text_and_object(mlcc: Tool) -> None:
    a = f32(8)
    mlcc.npz("x.npz", A=a)
    text = mlcc.file("m.mlc", SCALE)
    mlcc("run", text, "--in", "x.npz", "--out", "y.npz")
    np.testing.assert_array_equal(np.load("y.npz")["B"], a * 2)
    mlcc("compile", text, "-t", "llvm", "-o", "m.o", "--header", "m.h")
    mlcc("run", "m.o", "--in", "x.npz", "--out", "z.npz", "--expect", "y.npz")
    assert "m_main" in Path("m.h").read_text()
    assert "A" in mlcc("inspect", "m.o")
    assert json.loads(mlcc("inspect", "m.o", "--json"))["functions"]


def test_expect_finds_a_difference(mlcc: Tool) -> None:
    mlcc.npz("x.npz", A=f32(8))
    mlcc.npz("ref.npz", out=f32(8) * 2 + np.eye(8, dtype=np.float32)[3])
    mlcc("run", mlcc.file("m.mlc", SCALE), "--in", "x.npz", "--expect", "ref.npz", code=3)
    assert "1 of 8 elements differ" in mlcc.err and "[3]" in mlcc.err


@pytest.mark.parametrize(
    ("emit", "start"), [("llvm-ir", b";"), ("asm", b"\t"), ("obj", b"\x7fELF"), ("shared", b"\x7fELF")]
)
def test_compile_emits_every_format(mlcc: Tool, emit: str, start: bytes) -> None:
    mlcc("compile", mlcc.file("m.mlc", SCALE), "--emit", emit, "-o", "out.bin")
    raw = Path("out.bin").read_bytes()
    assert raw.startswith(start) or emit in ("llvm-ir", "asm")
    assert b"main" in raw


def test_shared_library_runs(mlcc: Tool) -> None:
    mlcc.npz("x.npz", A=f32(8))
    mlcc("compile", mlcc.file("m.mlc", SCALE), "-o", "m.so")
    mlcc("run", "m.so", "--in", "x.npz", "--out", "y.npz")
    np.testing.assert_array_equal(np.load("y.npz")["B"], f32(8) * 2)


def test_passes_print_what_parses(mlcc: Tool) -> None:
    path = mlcc.file("g.mlc", GRAPH)
    text = mlcc("passes", path, "-p", "fuse,lower-to-tir,fuse-tir")
    assert "T.prim_func" in text and "R.call_tir" in text
    again = mlcc("passes", mlcc.file("h.mlc", text), "-p", "")
    assert again == text
    assert "s_tir=True" in mlcc("passes", path, "-p", "lower-to-tir", "--dialect", "tvm")


def test_passes_dumps_diffs_and_times(mlcc: Tool) -> None:
    path = mlcc.file("g.mlc", GRAPH)
    mlcc("passes", path, "-p", "fuse,lower-to-tir", "--dump-after", "--diff", "--time", "-o", "out.mlc")
    assert "# --- after fuse" in mlcc.err and "# --- after lower-to-tir" in mlcc.err
    assert "# --- changed by fuse" in mlcc.err and "all passes" in mlcc.err
    mlcc("passes", path, "-p", "fuse,lower-to-tir", "--dump-after=fuse", "-o", "out.mlc")
    assert "after fuse" in mlcc.err and "after lower-to-tir" not in mlcc.err
    mlcc("passes", path, "-p", "fuse,lower-to-tir", "--dump-dir", "dumps", "-o", "out.mlc")
    dumped = sorted(Path("dumps").iterdir())
    assert [p.name for p in dumped] == ["01-after-fuse.mlc", "02-after-lower-to-tir.mlc"]
    for part in dumped:
        mlcc("check", part)
    mlcc("passes", path, "-p", "fuse", "--dump-dir", path, code=1)
    assert "error[E0002]: cannot make the folder" in mlcc.err
    mlcc("passes", path, "-p", "fuse", "--dump-after=fuze", code=1)
    assert "did you mean `fuse`" in mlcc.err


def test_check_each_compares_after_every_pass(mlcc: Tool) -> None:
    mlcc.npz("x.npz", x=f32(3, 4), y=f32(3, 4))
    path = mlcc.file("g.mlc", GRAPH)
    mlcc("passes", path, "-O2", "--check-each", "x.npz", "-o", "out.mlc")
    mlcc("passes", path, "-O2", "--check-each", "x.npz", "--check-work", "0", "-o", "out.mlc")
    assert "`main` is compiled" in mlcc.err


@pytest.mark.parametrize("options", [(), ("--check-work", "0"), ("-t", "cuda"), ("-t", "cuda", "--check-work", "0")])
def test_check_each_step_of_lowering(mlcc: Tool, options: tuple[str, ...]) -> None:
    mlcc.npz("x.npz", A=f32(16, 16))
    text = """
@T.prim_func
def main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16,), "float32")):
    for i, k in T.grid(16, 16):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk]
"""
    mlcc("passes", mlcc.file("k.mlc", text), "-O2", *options, "--check-each", "x.npz", "-o", "out.mlc")
    assert "check-each: flatten-buffers: results unchanged" in mlcc.err


def test_a_pipeline_with_files_means_the_groups_of_its_target(mlcc: Tool) -> None:
    """Also where a command looks for the files that passes read."""
    mlcc.file("m.mlc", GRAPH)
    mlcc.npz("w.npz", y=np.ones((2, 4), np.float32))
    pipeline = "bind-params{params=w.npz},O2,lower-gpu"
    mlcc("compile", "m.mlc", "-t", "cuda", "-p", pipeline, "-o", "m.ptx")
    mlcc.npz("in.npz", x=f32(2, 4))
    mlcc("run", "m.mlc", "--emulate", "-t", "cuda", "-p", pipeline, "--in", "in.npz")


def test_passes_are_listed_and_explained(mlcc: Tool) -> None:
    listed = mlcc("passes", "--list")
    for name in ("bind-params", "fold-constants", "canonicalize", "dead-code", "remove-unused", "ewise-fma", "fuse",
                 "fuse-matmul-add", "fuse-dense-add", "lower-to-tir", "fuse-tir"):  # fmt: skip
        assert name in listed
        mlcc("passes", "--help-pass", name)
    assert mlcc("passes", "--help-pass", "fuse_tir") == mlcc("passes", "--help-pass", "fuse-tir")
    assert mlcc("passes", "--help-pass", "lower").startswith("lower: remove-unused-functions,init-empty-reductions")
    mlcc("passes", "-p", "lower{a=1}", mlcc.file("g.mlc", GRAPH), code=1)
    assert "`lower` is a group of passes, which takes no options" in mlcc.err
    mlcc("passes", "--help-pass", "fuze", code=1)
    assert "fuse" in mlcc.err
    assert "lower-to-tir" in mlcc("passes", "-O3", "--print-pipeline")


def test_fmt_formats_and_keeps_comments(mlcc: Tool) -> None:
    messy = (
        "# kept\n@T.prim_func\ndef  main( A:T.Buffer((8,),'float32') ) :\n"
        "  # inside\n  for i in range( 8 ):\n     A[ i ]=T.float32( 1 )\n"
    )
    path = mlcc.file("m.mlc", messy)
    mlcc("fmt", "--check", path, code=1)
    mlcc("fmt", "-i", path)
    mlcc("fmt", "--check", path)
    made = path.read_text()
    assert "# kept" in made and "# inside" in made and made != messy
    mlcc("check", path)


def test_explain_knows_every_code(mlcc: Tool) -> None:
    from mlcc.codes import codes

    for code in codes():
        assert code in mlcc("explain", code)
    mlcc("explain", "E9999", code=1)
    mlcc("explain", "compile", code=1)
    assert "`mlcc help compile`" in mlcc.err


def test_bench_interleaves_its_artifacts(mlcc: Tool) -> None:
    mlcc.npz("x.npz", A=f32(8))
    path = mlcc.file("m.mlc", SCALE)
    mlcc("compile", path, "-o", "m.o")
    found = json.loads(mlcc("bench", "m.o", path, "--in", "x.npz", "--repeat", "3", "--number", "5", "--json"))
    assert [len(entry["seconds"]) for entry in found] == [3, 3]
    assert "median" in mlcc("bench", "m.o", "--in", "x.npz", "--repeat", "2", "--number", "2")


def test_pipes_carry_constants(tmp_path: Path) -> None:
    """Weights bound in the first stage travel through standard streams to the last."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    tool = f"{sys.executable} -m mlcc"
    line = (
        f"{tool} passes - -p 'bind-params{{params={DIGITS}/mlp.npz}}' < {DIGITS}/mlp_tir.mlc"
        f" | {tool} passes - -p canonicalize,dead-code | {tool} compile - -t llvm -o a.o"
        f" && {tool} run a.o --in {DIGITS}/test.npz --out y.npz"
    )
    subprocess.run(["bash", "-o", "pipefail", "-c", line], cwd=tmp_path, env=env, check=True)
    scores = np.load(tmp_path / "y.npz")["out"]
    assert np.mean(scores.argmax(1) == np.load(DIGITS / "labels.npz")["labels"]) > 0.97


def test_output_carries_constants_beside_it(mlcc: Tool) -> None:
    mlcc("passes", DIGITS / "mlp.mlc", "-p", "canonicalize", "-o", "made.mlc")
    assert Path("made.npz").exists() and "mlcc.data" not in Path("made.mlc").read_text()
    mlcc("run", "made.mlc", "--in", DIGITS / "test.npz", "--out", "y.npz")
    assert "mlcc.data" in mlcc("passes", DIGITS / "mlp.mlc", "-p", "canonicalize")


def test_three_forms_agree(mlcc: Tool) -> None:
    common = ["--in", DIGITS / "test.npz", "--out"]
    mlcc("run", DIGITS / "mlp.mlc", *common, "a.npz")
    same = ["--expect", "a.npz", "--rtol", "1e-4", "--atol", "1e-4"]
    mlcc("run", DIGITS / "mlp_tir.mlc", "--in", DIGITS / "mlp.npz", *common, "b.npz", *same)
    mlcc(
        "run", DIGITS / "mlp_mixed.mlc", "--env", DIGITS / "env.py", "--in", DIGITS / "mlp.npz", *common, "c.npz", *same
    )
    labels = np.load(DIGITS / "labels.npz")["labels"]
    assert np.mean(np.load("a.npz")["out"].argmax(1) == labels) == pytest.approx(0.9833, abs=1e-3)


def test_equal_input_gives_equal_bytes(tmp_path: Path) -> None:
    """Different folders, different hash seeds: the same object and header."""
    made = []
    for number, seed in enumerate(("0", "12345")):
        folder = tmp_path / f"folder{number}"
        folder.mkdir()
        for name in ("mlp.mlc", "mlp.npz"):
            (folder / name).write_bytes((DIGITS / name).read_bytes())
        env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed}
        argv = [sys.executable, "-m", "mlcc", "compile", "mlp.mlc", "-o", "mlp.o", "--header", "mlp.h"]
        subprocess.run(argv, cwd=folder, env=env, check=True)
        made.append(((folder / "mlp.o").read_bytes(), (folder / "mlp.h").read_bytes()))
    assert made[0] == made[1]


# ---------------------------------------------------------------- bad input


def test_wrong_arrays_are_refused(mlcc: Tool) -> None:
    path = mlcc.file("m.mlc", SCALE)
    for arrays, words in (
        ({}, "A"),
        ({"A": f32(8), "C": f32(2)}, "C"),
        ({"A": f32(9)}, "9"),
        ({"A": f32(8, 1)}, "dimension"),
        ({"A": f32(8).astype(np.float64)}, "float64"),
        ({"A": f32(8).astype(np.int8)}, "int8"),
    ):
        mlcc.npz("x.npz", **arrays)
        mlcc("run", path, "--in", "x.npz", code=1)
        assert words in mlcc.err


def test_bad_npz_files_are_refused(mlcc: Tool) -> None:
    path = mlcc.file("m.mlc", SCALE)
    good = mlcc.npz("x.npz", A=f32(8)).read_bytes()
    mlcc.npz("objects.npz", A=np.array([{}], dtype=object))
    for name, raw in (("cut.npz", good[: len(good) // 2]), ("empty.npz", b""), ("text.npz", b"no arrays"),
                      ("flip.npz", good[:60] + bytes([good[60] ^ 255]) + good[61:])):  # fmt: skip
        mlcc.file(name, raw)
        mlcc("run", path, "--in", name, code=1)
        assert "[E0003]" in mlcc.err, mlcc.err
    mlcc("run", path, "--in", "objects.npz", code=1)
    assert "never loaded" in mlcc.err
    mlcc("run", path, "--in", "missing.npz", code=1)
    assert "missing.npz" in mlcc.err


def test_symbolic_sizes_must_agree(mlcc: Tool) -> None:
    mlcc.npz("x.npz", x=f32(7, 4), y=f32(8, 4))
    mlcc("run", mlcc.file("g.mlc", GRAPH), "--in", "x.npz", code=1)
    assert "7" in mlcc.err and "8" in mlcc.err and "n" in mlcc.err


def test_objects_for_another_machine_are_refused(mlcc: Tool) -> None:
    import platform

    other = "x86_64" if platform.machine() == "aarch64" else "aarch64"
    mlcc.npz("x.npz", A=f32(8))
    mlcc("compile", mlcc.file("m.mlc", SCALE), "-t", f"llvm{{triple={other}-linux-gnu}}", "-o", "m.o")
    mlcc("inspect", "m.o")
    mlcc("run", "m.o", "--in", "x.npz", code=6)
    assert other in mlcc.err


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (GRAPH.replace("R.add", "R.ad"), "add"),
        (GRAPH.replace("(a, y)", "(aa, y)"), "aa"),
        (SCALE.replace("range(8)", "range(7)"), "7"),
        (SCALE.replace("A[vi]", "A[vj]"), "vj"),
        (SCALE.replace("T.float32(2)", "T.floot32(2)"), "float32"),
        ("@T.prim_func\ndef f():\n    T.evaluate(" + "(" * 10_000 + "1" + ")" * 10_000 + ")\n", "deep"),
        (DEEP, "deep"),
        ("[" * 10_000, ""),
        ("", ""),
        (b"\x7fELF\x02\x01\x01\x00\xff\xfe" * 100, ""),
        (b"\x00" * 1000, ""),
        ("@T.prim_func\ndef f(:\n", ""),
        (GRAPH.replace("\"n\", 4), \"float32\")", "\"n\", 4), \"float33\")"), "float33"),
    ],
    ids=["unknown op", "dangling name", "127 for 128", "unknown index", "unknown dtype function", "10,000 brackets",
         "2,000 levels", "open brackets", "empty", "binary", "zeros", "cut", "unknown dtype"],
)  # fmt: skip
def test_wrong_texts_end_in_diagnostics(mlcc: Tool, text: str | bytes, word: str) -> None:
    path = mlcc.file("bad.mlc", text)
    for command in (["check"], ["passes", "-O2"], ["compile", "-o", "bad.o"]):
        mlcc(command[0], path, *command[1:], code=1)
        assert "[E" in mlcc.err and word in mlcc.err
        assert not Path("bad.o").exists()


def test_diagnostics_are_printed_as_json(mlcc: Tool) -> None:
    path = mlcc.file("bad.mlc", SCALE.replace("A[vi]", "A[vj]"))
    mlcc("--diagnostics=json", "check", path, code=1)
    found = [json.loads(line) for line in mlcc.err.splitlines()]
    assert found[0]["code"].startswith("E") and found[0]["primary"]["line"] == 7


def test_several_errors_in_one_run(mlcc: Tool) -> None:
    text = SCALE.replace("A[vi]", "A[vj]") + SCALE.replace("main", "other").replace("T.float32", "T.flot32")
    mlcc("check", mlcc.file("bad.mlc", text), code=1)
    assert mlcc.err.count("error[") >= 2


def test_wrong_usage_ends_with_code_2(mlcc: Tool) -> None:
    mlcc("compil", code=2)
    assert "compile" in mlcc.err
    mlcc("compile", "--no-such-option", code=2)
    mlcc("check", "missing.mlc", code=1)
    mlcc("compile", mlcc.file("m.mlc", SCALE), "-t", "llvn", "-o", "m.o", code=1)
    assert "llvm" in mlcc.err
    mlcc("passes", "m.mlc", "-p", "fuze", code=1)
    assert "fuse" in mlcc.err
    mlcc("passes", "m.mlc", "-p", "bind-params{parms=x.npz}", code=1)
    assert "params" in mlcc.err


def test_outputs_are_whole_or_absent(mlcc: Tool) -> None:
    path = mlcc.file("m.mlc", SCALE)
    mlcc("compile", path, "-o", "no/such/folder/m.o", code=1)
    Path("m.o").write_bytes(b"before")
    mlcc("compile", mlcc.file("bad.mlc", SCALE.replace("A[vi]", "A[vj]")), "-o", "m.o", code=1)
    assert Path("m.o").read_bytes() == b"before"
    mlcc("compile", path, "-o", "m.o")
    assert sorted(p.name for p in Path().iterdir()) == ["bad.mlc", "m.mlc", "m.o"]


# ---------------------------------------------------------------- what runs code, and what never does


def test_externs_must_be_allowed(mlcc: Tool) -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((1,), "int32")):
    A[0] = T.call_extern("int32", "NAME", A[0])
"""
    for name in ("system", "abort", "getpid"):
        path = mlcc.file("m.mlc", text.replace("NAME", name))
        mlcc("check", path)
        mlcc("passes", path, "-O2")
        mlcc("compile", path, "-o", "m.o", code=1)
        assert name in mlcc.err and "--allow-extern" in mlcc.err
    mlcc("compile", path, "--allow-extern", "getpid", "-o", "m.o")
    mlcc.npz("x.npz", A=np.zeros(1, np.int32))
    mlcc("run", "m.o", "--in", "x.npz", code=1)  # the object was made so; running it needs the word again
    assert "getpid" in mlcc.err


def test_llvm_ir_in_a_text_is_refused(mlcc: Tool) -> None:
    text = SCALE.replace("range(8)", 'T.serial(8, annotations={"pragma_import_llvm": "define void @f() { ret void }"})')
    path = mlcc.file("m.mlc", text)
    mlcc("check", path)
    mlcc("compile", path, "-o", "m.o", code=1)
    assert "native code" in mlcc.err


def test_references_stay_under_their_folder(mlcc: Tool, tmp_path: Path) -> None:
    """A pipeline that comes from a text reads nothing outside the text's folder."""
    (tmp_path / "inner").mkdir()
    mlcc.npz("secret.npz", x=f32(3, 4))
    path = mlcc.file("inner/g.mlc", "# PASSES: bind-params{params=../secret.npz}\n" + GRAPH)
    mlcc("passes", path, code=1)
    assert "secret" in mlcc.err
    (tmp_path / "inner" / "link.npz").symlink_to(tmp_path / "secret.npz")
    mlcc("passes", mlcc.file("inner/h.mlc", "# PASSES: bind-params{params=link.npz}\n" + GRAPH), code=1)
    mlcc("passes", path, "-p", "bind-params{params=secret.npz}")  # a person may


def test_nothing_in_a_text_runs(mlcc: Tool) -> None:
    """Python in a text is text: an error, and no effect."""
    for line in ("__import__('os').system('touch owned')", "open('owned', 'w')", "exec('open(1)')", "import os"):
        path = mlcc.file("m.mlc", f"{line}\n{SCALE}")
        for command in (["check"], ["fmt"], ["passes", "-O2"], ["compile", "-o", "m.o"]):
            run([command[0], str(path), *command[1:]])
        path = mlcc.file("n.mlc", SCALE.replace("T.float32(2)", line))
        mlcc("check", path, code=1)
    assert not Path("owned").exists()


def test_environments_come_from_the_command_line_only(mlcc: Tool) -> None:
    mlcc.file("env.py", "open('owned', 'w').write('x')")
    path = mlcc.file("m.mlc", "# PASSES: canonicalize\n# --env env.py\n" + GRAPH)
    mlcc("passes", path)
    mlcc("check", path)
    assert not Path("owned").exists()


def test_a_failing_environment_is_the_users(mlcc: Tool) -> None:
    """An exception of a packed function is shown with its place; it is no bug of ours."""
    env = mlcc.file(
        "env.py", "import mlcc\n\n\ndef linear(x, w, b, out):\n    raise ValueError('odd')\n\n\n"
        "mlcc.register_func('env.linear', linear, override=True)\n"
    )  # fmt: skip
    argv = ["run", DIGITS / "mlp_mixed.mlc", "--in", DIGITS / "test.npz", "--in", DIGITS / "mlp.npz", "--env", env]
    mlcc(*argv, code=1)
    assert "packed function `env.linear` raised ValueError: odd" in mlcc.err and "env.py:5, in linear" in mlcc.err


def test_fast_math_is_a_part_of_the_target(tmp_path: Path) -> None:
    (tmp_path / "s.mlc").write_text(SCALE)
    for flags, wanted in (([], False), (["--fast-math"], True)):
        out = tmp_path / "s.o"
        assert run(["compile", str(tmp_path / "s.mlc"), "-t", "llvm{cpu=x86-64-v3}", *flags, "-o", str(out)]) == 0
        from mlcc.runtime.manifest import extract

        assert ("fast-math=true" in extract(out.read_bytes())["target"]["text"]) == wanted
    assert run(["compile", str(tmp_path / "s.mlc"), "-t", "cuda", "--fast-math", "-o", str(tmp_path / "s.ptx")]) == 2

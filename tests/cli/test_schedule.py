"""`mlcc schedule` and the pass `schedule{script=...}`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mlcc
from tests.cli.test_cli import Tool

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "samples" / "matmul"
KERNEL = """
@T.prim_func
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(16):
        with T.block("B"):
            vi = T.axis.spatial(16, i)
            B[vi] = A[vi] * T.float32(2)
"""
SPLIT = 'def schedule(sch, n=4):\n    i, = sch.get_loops("B")\n    sch.split(i, factors=[None, n])\n'


@pytest.fixture
def tool(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tool:
    monkeypatch.chdir(tmp_path)
    made = Tool(tmp_path, capfd)
    made.file("k.mlc", KERNEL)
    made.file("s.mls", SPLIT)
    return made


def expected() -> mlcc.IRModule:
    return mlcc.apply_schedule(mlcc.parse(KERNEL), SPLIT)


def test_result_goes_to_standard_output_or_a_file(tool: Tool) -> None:
    mlcc.assert_structural_equal(mlcc.parse(tool("schedule", "k.mlc", "--script", "s.mls")), expected())
    assert tool("schedule", "k.mlc", "--script", "s.mls", "-o", "out.mlc") == ""
    mlcc.assert_structural_equal(mlcc.parse(Path("out.mlc").read_text()), expected())
    text = tool("schedule", "k.mlc", "--script", "s.mls", "--dialect", "tvm")
    assert "T.sblock" in text
    mlcc.assert_structural_equal(mlcc.parse(text), expected())


def test_script_is_read_from_standard_input(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    import io
    import sys
    from types import SimpleNamespace

    def give(text: str) -> None:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text.encode())))

    give(KERNEL)
    mlcc.assert_structural_equal(mlcc.parse(tool("schedule", "--script", "s.mls")), expected())
    give(SPLIT)
    mlcc.assert_structural_equal(mlcc.parse(tool("schedule", "k.mlc", "--script", "-")), expected())
    give("x = ")
    tool("schedule", "k.mlc", "--script", "-", code=1)
    assert "<stdin>:1:" in tool.err
    tool("schedule", "-", "--script", "-", code=2)
    tool("schedule", "k.mlc", code=2)


def test_show_each_prints_every_step(tool: Tool) -> None:
    tool("schedule", "k.mlc", "--script", "s.mls", "--show-each")
    assert tool.err == (
        "# --- before the script\n"
        "main:\n  block root\n    for i in 16\n      block B(vi = i)\n        B[...] = ...\n"
        '# --- s.mls:2: i, = sch.get_loops("B")\n'
        "(no change)\n"
        "# --- s.mls:3: sch.split(i, factors=[None, n])\n"
        "main:\n  block root\n    for i_0 in 4\n      for i_1 in 4\n"
        "        block B(vi = i_0 * 4 + i_1)\n          B[...] = ...\n"
    )


def test_show_each_leaves_other_functions_out(tool: Tool) -> None:
    other = KERNEL.replace("main", "other")
    tool.file("two.mlc", KERNEL + other)
    tool.file("o.mls", 'sch.work_on("other")\nfor l in sch.get_loops("B"):\n    sch.parallel(l)\n')
    out = tool("schedule", "two.mlc", "--script", "o.mls", "--show-each")
    shown = tool.err.split("# --- o.mls:3: sch.parallel(l)\n")[1]
    assert shown.startswith("other:\n") and "main:" not in shown
    mod = mlcc.parse(out)
    mlcc.assert_structural_equal(mod["main"], mlcc.parse(KERNEL)["main"])
    tool.file("p.mls", 'sch.parallel(sch.get_loops("B")[0])')
    tool("schedule", "two.mlc", "--script", "p.mls", "--func", "other", "-o", "out.mlc")
    mlcc.assert_structural_equal(mlcc.parse(Path("out.mlc").read_text()), mod)
    tool("schedule", "two.mlc", "--script", "p.mls", "--func", "othr", code=1)
    assert "did you mean `other`" in tool.err


def test_written_trace_replays(tool: Tool) -> None:
    script = SAMPLE / "matmul-sampled.mls"
    kernel = SAMPLE / "matmul.mlc"
    made = tool("schedule", kernel, "--script", script, "--seed", "5", "--trace", "t.mls")
    assert "decision=" in Path("t.mls").read_text()
    assert tool("schedule", kernel, "--script", "t.mls", "--seed", "6") == made
    assert tool("schedule", kernel, "--script", script, "--seed", "5") == made
    texts = {tool("schedule", kernel, "--script", script, "--seed", str(n)) for n in range(6)}
    assert len(texts) > 1


def test_refused_steps_write_nothing(tool: Tool) -> None:
    tool.file("bad.mls", SPLIT + "    sch.parallel(i)\n")
    assert tool("schedule", "k.mlc", "--script", "bad.mls", "-o", "o.mlc", "--trace", "t.mls", code=1) == ""
    assert "bad.mls:4:18: error[E0611]" in tool.err and "`i` has ended" in tool.err
    assert not Path("o.mlc").exists() and not Path("t.mls").exists()
    tool("schedule", "k.mlc", "--script", "nosuch.mls", code=1)
    assert "nosuch.mls" in tool.err
    tool.file("binary.mls", b"\xff\xfe")
    tool("schedule", "k.mlc", "--script", "binary.mls", code=1)
    assert "E0108" in tool.err


def test_programs_that_do_not_verify_are_refused(tool: Tool) -> None:
    tool.file("wrong.mlc", KERNEL.replace("T.axis.spatial(16", "T.axis.spatial(17"))
    tool("schedule", "wrong.mlc", "--script", "s.mls", code=1)
    assert "wrong.mlc:" in tool.err


def test_show_prints_to_standard_error(tool: Tool) -> None:
    tool.file("show.mls", "sch.show()")
    out = tool("schedule", "k.mlc", "--script", "show.mls")
    assert tool.err == out


@pytest.mark.parametrize("name", ["matmul-tiled.mls", "matmul-sampled.mls"])
def test_samples_compute_the_same(tool: Tool, name: str) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((128, 128)).astype("float32") for _ in range(2))
    tool.npz("x.npz", A=a, B=b)
    tool.npz("ref.npz", out=np.maximum(a @ b, 0))
    tool("schedule", SAMPLE / "matmul.mlc", "--script", SAMPLE / name, "-o", "s.mlc")
    tool("check", "s.mlc")
    tool("run", "s.mlc", "--in", "x.npz", "--expect", "ref.npz", "--rtol", "1e-4", "--atol", "1e-4")


# ---------------------------------------------------------------- the pass


def test_pass_runs_the_script(tool: Tool) -> None:
    out = tool("passes", "k.mlc", "-p", "schedule{script=s.mls seed=3}")
    mlcc.assert_structural_equal(mlcc.parse(out), expected())
    tool("passes", "k.mlc", "-p", "schedule{script=t.mls}", code=1)
    assert "t.mls" in tool.err
    tool.file("bad.mls", "\nsch.splt(1)")
    tool("passes", "k.mlc", "-p", "schedule{script=bad.mls}", code=1)
    assert "bad.mls:2:1: error[E0610]" in tool.err


def test_pass_on_what_other_passes_made(tool: Tool) -> None:
    graph = '@R.function\ndef main(x: R.Tensor((4, 8), "float32")):\n    y = R.add(x, x)\n    return y\n'
    tool.file("g.mlc", graph)
    tool.file("g.mls", 'for l in sch.get_loops(sch.get_block("T_add", "add")): sch.unroll(l)')
    out = tool("passes", "g.mlc", "-p", "lower-to-tir,schedule{script=g.mls}")
    assert out.count("T.unroll") == 2


def test_scripts_named_in_a_text_stay_in_its_folder(tool: Tool) -> None:
    (tool.folder / "inner").mkdir()
    tool.file("inner/k.mlc", "# PASSES: schedule{script=../s.mls}\n" + KERNEL)
    tool("passes", "inner/k.mlc", code=1)
    assert "E0510" in tool.err
    tool.file("inner/k.mlc", "# PASSES: schedule{script=s.mls}\n" + KERNEL)
    tool.file("inner/s.mls", 'register_tensor_intrin("x", file="../k.mlc")')
    tool("passes", "inner/k.mlc", code=1)
    assert "E0510" in tool.err and "inner/s.mls:1:1" in tool.err


TMM = """
@T.prim_func
def tmm_desc(a: T.handle, b: T.handle):
    A = T.match_buffer(a, (4,), "float32", offset_factor=1)
    B = T.match_buffer(b, (4,), "float32", offset_factor=1)
    with T.block("root"):
        T.reads(A[0:4])
        T.writes(B[0:4])
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi] * T.float32(2)

@T.prim_func
def tmm_impl(a: T.handle, b: T.handle):
    A = T.match_buffer(a, (4,), "float32", offset_factor=1)
    B = T.match_buffer(b, (4,), "float32", offset_factor=1)
    with T.block("root"):
        T.reads(A[0:4])
        T.writes(B[0:4])
        for i in T.vectorized(4):
            B[i] = A[i] * T.float32(2)
"""
TENSORIZE = """
register_tensor_intrin("tmm", file="../texts/tmm.mlc")
def schedule(sch):
    i, = sch.get_loops("B")
    _, inner = sch.split(i, factors=[None, 4])
    sch.tensorize(inner, "tmm")
"""


def test_intrinsics_lie_beside_the_script(tool: Tool) -> None:
    for folder in ("texts", "scripts", "traces"):
        (tool.folder / folder).mkdir()
    tool.file("texts/tmm.mlc", TMM)
    tool.file("scripts/t.mls", TENSORIZE)
    out = tool("schedule", "k.mlc", "--script", "scripts/t.mls", "--trace", "traces/t.mls")
    assert "T.vectorized(4)" in out
    assert 'register_tensor_intrin("tmm", "../texts/tmm.mlc")' in Path("traces/t.mls").read_text()
    assert tool("schedule", "k.mlc", "--script", "traces/t.mls") == out
    tool.file("scripts/u.mls", TENSORIZE.replace("register", "# register"))
    tool("schedule", "k.mlc", "--script", "scripts/u.mls", code=1)
    assert "scripts/u.mls:6:5: error" in tool.err and "`tmm`" in tool.err


def test_intrinsic_files_that_do_not_fit(tool: Tool) -> None:
    tool.file("bad.mlc", "x = (\n")
    for text, words in (
        ('register_tensor_intrin("x", file="none.mlc")', "i.mls:1:1: error[E0001]"),
        ('register_tensor_intrin("x", file="k.mlc")', "i.mls:1:1: error[E0688]"),
        ('register_tensor_intrin("x", file="bad.mlc")', "bad.mlc:1:"),
    ):
        tool.file("i.mls", text)
        tool("schedule", "k.mlc", "--script", "i.mls", code=1)
        assert words in tool.err


def test_nothing_in_a_script_runs(tool: Tool) -> None:
    """Python in a script is text: an error, and no effect."""
    for line in (
        "__import__('os').system('touch owned')", "open('owned', 'w')", "exec('open(1)')", "import os\nos.getcwd()",
        "sch.__class__", "sch.get_block.__globals__", "''.__class__.__mro__", "(lambda i: i).__globals__",
        "def f(sch): pass\nf.__globals__", "sch.get_loops('B')[0].__class__", "T.__dict__", "getattr(sch, 'mod')",
        "sch._state", "sch.call('split')", "sch._step('split')", "tvm.__loader__", "'{0.__class__}'.format(sch)",
    ):  # fmt: skip
        tool.file("p.mls", line)
        tool("schedule", "k.mlc", "--script", "p.mls", code=1)
        assert "p.mls:" in tool.err
    assert not Path("owned").exists()


def test_scripts_are_checked_and_formatted(tool: Tool) -> None:
    assert tool("check", "s.mls", SAMPLE / "matmul-tiled.mls", "k.mlc") == ""
    tool.file("wrong.mls", "def f(sch):\n    x = (\n")
    tool("check", "wrong.mls", code=1)
    assert "wrong.mls:2" in tool.err
    tool("fmt", "--check", SAMPLE / "matmul-tiled.mls", SAMPLE / "matmul-sampled.mls")


@pytest.mark.parametrize(
    "given",
    [
        ("--auto", "--trace", "t.mls"), ("--auto", "--func", "main"), ("--auto", "--seed", "1"),
        ("--auto", "--dialect", "tvm"), ("--auto", "--data", "w.npz"), ("--auto", "--show-each"),
        ("--script", "s.mls", "--why"),
    ],
)  # fmt: skip
def test_options_without_a_meaning_are_refused(tool: Tool, given: tuple[str, ...]) -> None:
    assert tool("schedule", "k.mlc", *given, code=2) == ""
    assert "cannot be combined with" in tool.err
    assert not (tool.folder / "t.mls").exists()

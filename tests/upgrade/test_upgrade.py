"""Older texts become today's: what they mean, their comments and their layout stay."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import mlcc
from mlcc.cli.main import run
from mlcc.grammar.syntax.version import VERSION, version_of, with_version
from mlcc.ir.module import IRModule
from mlcc.records.database import SCHEMA, Database
from mlcc.upgrade.rewrite import upgraded_script, upgraded_text
from tests.archive import contents
from tests.generate import functions, graphs

ROOT = Path(__file__).resolve().parents[2]


def comments(text: str) -> list[str]:
    return [line.partition("#")[2] for line in text.splitlines() if "#" in line and "import" not in line]


@pytest.mark.parametrize("text", [contents.DIALECT_2022, contents.DIALECT_TVM], ids=["2022", "tvm"])
def test_dialects_become_todays(text: str) -> None:
    made = upgraded_text(text, "m.mlc")
    assert mlcc.structural_equal(mlcc.parse(made), mlcc.parse(text))
    assert comments(made)[1:] == comments(text.replace("T.sblock", "T.block")) and made.startswith(f"# mlc {VERSION}\n")
    assert made.count("\n") == text.count("\n") + 1 and upgraded_text(made, "m.mlc") == made
    code = "\n".join(line.partition("#")[0] for line in made.splitlines() if "func_attr" not in line)
    for older in ("T.Buffer[", ": Tensor(", "= relax.", "with relax.", "tirx", "sblock", "s_tir", "out_ty", "@tvm."):
        assert older not in code


@pytest.mark.parametrize("text", [contents.DIALECT_2022, contents.DIALECT_TVM], ids=["2022", "tvm"])
def test_lines_that_end_as_on_windows(text: str) -> None:
    made = upgraded_text(text.replace("\n", "\r\n"), "m.mlc")
    assert made == upgraded_text(text, "m.mlc").replace("\n", "\r\n")


def corpus() -> list[Path]:
    found = [*(ROOT / "samples").rglob("*.mlc"), *(ROOT / "tests" / "passes").rglob("*.mlc")]
    return sorted(path for path in found if "import-each" not in path.name)


@pytest.mark.parametrize("path", corpus(), ids=lambda p: str(p.relative_to(ROOT)))
def test_texts_of_the_repository_are_upgraded(path: Path) -> None:
    text = path.read_text()
    made = upgraded_text(text, path.name, str(path.parent))
    assert upgraded_text(made, path.name, str(path.parent)) == made


@pytest.mark.parametrize("seed", range(20))
def test_what_is_printed_for_tvm_becomes_todays(seed: int) -> None:
    for module in (graphs.module(seed), IRModule({"main": functions.prim_func(seed)})):
        text = mlcc.script(module, dialect="tvm")
        try:
            before = mlcc.parse(text)
        except mlcc.CompileError:
            continue  # what TVM's dialect does not have
        made = upgraded_text(text, "m.mlc")
        assert mlcc.structural_equal(mlcc.parse(made), before)
        assert "sblock" not in made and "out_ty" not in made and "tirx as T" not in made


def test_lists_of_results() -> None:
    text = """@T.prim_func
def f(x: T.Buffer[(2, 3), "float32"], y: T.Buffer[(2, 3), "float32"], z: T.Buffer[(3,), "int32"]):
    T.evaluate(0)

@R.function
def main(x: Tensor((2, 3), "float32"), s: Shape((2, 3)), t: Tuple(Tensor((1,), "int8"), Object)):
    with relax.dataflow():
        a = R.call_tir(f, (x,), [(2, 3), (3,)], dtype=["float32", "int32"])
        relax.output(a)
    return a
"""
    made = upgraded_text(text, "m.mlc")
    assert mlcc.structural_equal(mlcc.parse(made), mlcc.parse(text))
    assert 'out_sinfo=[R.Tensor((2, 3), "float32"), R.Tensor((3,), "int32")]' in made and "dtype=" not in made
    assert 's: R.Shape((2, 3)), t: R.Tuple(R.Tensor((1,), "int8"), R.Object)' in made


def test_a_comment_that_would_be_lost_stays() -> None:
    text = contents.DIALECT_2022.replace('(6, 8), dtype="float32")', '(6,  # rows\n            8), dtype="float32")')
    made = upgraded_text(text, "m.mlc")
    assert "# rows" in made
    text = contents.DIALECT_2022.replace('(6, 8), dtype="float32")', '(6, 8),  # rows\n            dtype="float32")')
    try:
        assert "# rows" in upgraded_text(text, "m.mlc")
    except mlcc.CompileError as exc:
        assert exc.diagnostics[0].code == "E0112" and "comment" in exc.diagnostics[0].message


def test_scripts() -> None:
    made = upgraded_script(contents.SCRIPT_TVM, "s.mls")
    assert "sch.get_block(" in made and "get_sblock" not in made and made.startswith("# mlc 1\n# from tvm import")
    module = mlcc.parse(contents.KERNEL)
    assert mlcc.structural_equal(mlcc.apply_schedule(module, made), mlcc.apply_schedule(module, contents.SCRIPT_TVM))
    assert upgraded_script(made, "s.mls") == made


@pytest.mark.parametrize("text", ["# mlc 2\n", "\ufeff# a model\n\n#  mlc 99  \n", "# mlcc 1\n# mlc 2"])
def test_newer_texts_are_refused(text: str) -> None:
    for read in (mlcc.parse, lambda t: upgraded_script(t, "s.mls")):
        with pytest.raises(mlcc.CompileError) as caught:
            read(text + "\nthis is a form that nobody knows yet\n")
        diagnostic = caught.value.diagnostics[0]
        assert diagnostic.code == "E0111" and len(caught.value.diagnostics) == 1
        assert "pip install --upgrade mlcc" in str(diagnostic.help)


@pytest.mark.parametrize(
    ("text", "version"),
    [("# mlc 1\nx", 1), ("# a\n\n# mlc 1\r\nx", 1), ("x\n# mlc 7", None), ("# mlc one", None), ("", None),
     ("# mlc 1 and more", None), ("#mlc 3", 3), ("# mlc", None)],
)  # fmt: skip
def test_where_a_version_stands(text: str, version: int | None) -> None:
    found = version_of(text)
    assert (found[0] if found else None) == version
    if found:
        assert with_version(text) == text and text[found[1] : found[2]].strip().startswith("#")
    else:
        assert version_of(with_version(text)) == (VERSION, 0, 7)


def test_a_long_head_takes_no_time() -> None:
    assert version_of("# x\n" * 200_000 + "# mlc x") is None


def test_files_that_are_written_state_their_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("k.mlc").write_text(contents.KERNEL)
    Path("s.mls").write_text(contents.SCRIPT)
    assert run(["schedule", "k.mlc", "--script", "s.mls", "-o", "t.mlc", "--trace", "t.mls"]) == 0
    assert run(["schedule", "k.mlc", "--auto", "-o", "auto.mls"]) == 0
    assert run(["passes", "k.mlc", "-p", "canonicalize", "-o", "p.mlc"]) == 0
    assert run(["passes", "t.mlc", "-p", "canonicalize", "-o", "again.mlc"]) == 0
    for name in ("t.mlc", "t.mls", "auto.mls", "p.mlc", "again.mlc"):
        text = Path(name).read_text()
        assert text.startswith("# mlc 1\n") and text.count("# mlc 1\n") == 1
    assert run(["passes", "k.mlc", "-p", "canonicalize", "--dialect", "tvm", "-o", "tvm.mlc"]) == 0
    assert "# mlc" not in Path("tvm.mlc").read_text()
    assert run(["upgrade", "--check", "t.mlc", "t.mls", "auto.mls", "p.mlc"]) == 0


def test_standard_output_has_no_version(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "k.mlc").write_text(contents.KERNEL)
    assert run(["passes", str(tmp_path / "k.mlc"), "-p", "canonicalize"]) == 0
    assert "# mlc 1" not in capsys.readouterr().out


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("old.mlc").write_text(contents.DIALECT_2022)
    Path("old.mls").write_text(contents.SCRIPT_TVM)
    assert run(["upgrade", "--check", "old.mlc", "old.mls"]) == 1
    assert capsys.readouterr().err == "old.mlc is older\nold.mls is older\n"
    assert Path("old.mlc").read_text() == contents.DIALECT_2022
    assert run(["upgrade", "old.mlc", "-o", "new.mlc"]) == 0
    assert Path("old.mlc").read_text() == contents.DIALECT_2022
    assert Path("new.mlc").read_text() == upgraded_text(contents.DIALECT_2022, "x")
    assert run(["upgrade", "old.mlc", "old.mls"]) == 0
    assert Path("old.mlc").read_text() == Path("new.mlc").read_text()
    assert run(["upgrade", "--check", "old.mlc", "old.mls", "new.mlc"]) == 0
    assert run(["upgrade", "old.mlc", "old.mls", "-o", "x.mlc"]) == 2
    Path("wrong.mlc").write_text("def f(:\n")
    assert run(["upgrade", "wrong.mlc", "new.mlc"]) == 1 and Path("wrong.mlc").read_text() == "def f(:\n"
    assert run(["compile", "old.mlc", "-O0", "-o", "old.o"]) == 0
    before = Path("old.o").read_bytes()
    capsys.readouterr()
    assert run(["upgrade", "old.o"]) == 1 and Path("old.o").read_bytes() == before
    assert "[E0112]" in capsys.readouterr().err


def first_schema(path: Path) -> None:
    """A database as the first schema had it."""
    Database(str(path)).close()
    with sqlite3.connect(path) as link:
        link.execute("ALTER TABLE record DROP COLUMN digest")
        link.execute("INSERT INTO machine VALUES ('cpu', 2, '1.5')")
        link.execute("PRAGMA user_version=1")
    link.close()


def schema_of(path: Path) -> int:
    with sqlite3.connect(path) as link:
        (schema,) = link.execute("PRAGMA user_version").fetchone()
    link.close()
    return int(schema)


def test_databases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first_schema(Path("old.db"))
    assert run(["upgrade", "--check", "old.db"]) == 1 and schema_of(Path("old.db")) == 1
    assert run(["upgrade", "old.db", "-o", "new.db"]) == 0
    assert (schema_of(Path("old.db")), schema_of(Path("new.db"))) == (1, SCHEMA)
    assert run(["upgrade", "old.db"]) == 0 and schema_of(Path("old.db")) == SCHEMA
    for name in ("old.db", "new.db"):
        with sqlite3.connect(name) as link:
            assert link.execute("SELECT floors FROM machine").fetchall() == [("[1.5]",)]
        link.close()
    assert run(["upgrade", "--check", "old.db", "new.db"]) == 0

"""The examples in the docs do what the docs say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import mlcc

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
GENERATED = {
    "models.md", "onnx.md", "ops-tables.md", "speed.md", "gpu-speed.md", "intrinsics.md", "compile-time.md",
}  # fmt: skip
LINKED = [*PAGES, *sorted((ROOT / "docs" / "operators").glob("*.md"))]  # tests/reference has the examples of these


def fenced(kind: str) -> list[object]:
    """All fenced examples of a kind, with their place as test id."""
    found = []
    for page in PAGES:
        text = page.read_text()
        for match in re.finditer(rf"^```{kind}\n(.*?)^```", text, re.S | re.M):
            line = text[: match.start()].count("\n") + 1
            found.append(pytest.param(match.group(1), id=f"{page.name}:{line}"))
    return found


@pytest.mark.parametrize("text", fenced("mlc"))
def test_mlc_examples_parse_and_verify(text: str) -> None:
    from mlcc.grammar.fmt.canonical import format_text
    from mlcc.verify import check

    mod = mlcc.parse(text, name="example.mlc")
    check(mod)
    printed = mlcc.script(mod)
    again = mlcc.parse(printed, name="printed.mlc")
    mlcc.assert_structural_equal(mod, again)
    assert mlcc.script(again) == printed
    mlcc.assert_structural_equal(mod, mlcc.parse(mlcc.script(mod, dialect="tvm"), name="tvm.mlc"))
    mlcc.assert_structural_equal(mod, mlcc.parse(format_text(text, "example.mlc")))
    assert len(mlcc.build(mod, target="llvm").emit("obj")) > 0


@pytest.mark.parametrize("text", fenced("mls"))
def test_mls_examples_change_their_kernel(text: str) -> None:
    """Scripts run on the kernel of their page, and change it; what their trace says gives the same."""
    (kernel,) = re.findall(r"^```mlc\n(.*?)^```", (ROOT / "docs" / "schedules.md").read_text(), re.S | re.M)
    from mlcc.errors import Source
    from mlcc.passes.schedule.mls.run import run_script

    mod = mlcc.parse(kernel)
    sch = mlcc.Schedule(mod, seed=0)
    run_script(sch, Source("example.mls", text))
    assert not mlcc.structural_equal(sch.mod, mod)
    mlcc.assert_structural_equal(sch.mod, mlcc.apply_schedule(mod, text))
    mlcc.assert_structural_equal(sch.mod, mlcc.apply_schedule(mod, str(sch.trace)))


def test_every_primitive_is_listed() -> None:
    from mlcc.passes.schedule import registry

    page = (ROOT / "docs" / "schedules.md").read_text()
    listed = page.partition("## The primitives")[2].partition("### ")[0].splitlines()
    rows = []
    for found in map(registry.find, registry.names()):
        meaning = " ".join(found.doc.partition("\n\n")[0].split())
        rows.append(f"| `{registry.call_text(found)}` | {meaning} |")
    assert sorted(line for line in listed if line.startswith("| `")) == sorted(rows)
    assert all(name in page for name in registry.ALIASES)


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.*)", re.sub(r"```.*?```", "", page.read_text(), flags=re.S), re.M)
    return {re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere() -> None:
    for page in LINKED:
        prose = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.S)
        for link, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]+))?\)", prose):
            to = page.parent / link if link else page
            assert to.exists(), f"{page.name} links to {link}"
            assert not anchor or anchor in anchors(to), f"{page.name} links to {link}#{anchor}"


def test_readme_commands_exist() -> None:
    """Every `mlcc ...` line of the docs names a command and options that there are."""
    import importlib

    from mlcc.cli.main import COMMANDS, cli

    anywhere = {option for param in cli.params for option in param.opts}
    for page in PAGES:
        shell = "".join(re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.S | re.M))
        for line in re.findall(r"^mlcc (.+)$", shell, re.M):
            words = re.sub(r"'[^']*'", "_", line).split("#")[0].split("|")[0].split()  # quoted: of another command
            if words[0].startswith("-"):
                continue
            assert words[0] in COMMANDS, f"{page.name}: mlcc {line}"
            command = importlib.import_module(f"mlcc.cli.cmd_{words[0]}").command
            known = {o for p in command.params for o in (*p.opts, *p.secondary_opts)} | {"--help", "-h"} | anywhere
            for word in words[1:]:
                option = word.split("=")[0]
                if option.startswith("-") and option != "-" and not re.match(r"-O\d", option):
                    assert option in known, f"{page.name}: {option} in mlcc {line}"


def test_python_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The README's module and its Python example run together."""
    text = (ROOT / "README.md").read_text()
    module, python = re.findall(r"^```python\n(.*?)^```", text, re.S | re.M)
    (tmp_path / "model.mlc").write_text(module)
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    exec(python, scope)
    assert scope["y"].tolist() == [3.0] * 8  # type: ignore[attr-defined]


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in GENERATED], ids=lambda page: page.name)
def test_prose_ends_before_column_120(page: Path) -> None:
    prose = re.sub(r"^```.*?^```", lambda code: "\n" * code[0].count("\n"), page.read_text(), flags=re.S | re.M)
    lines = enumerate(prose.splitlines(), 1)
    assert not [number for number, line in lines if len(line) > 120 and not line.lstrip().startswith(("|", "<", "#"))]

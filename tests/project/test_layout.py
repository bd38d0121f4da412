"""The folders keep their order: who may import whom, what is packaged, what names mean."""

from __future__ import annotations

import ast
import configparser
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("grammar", "passes", "targets", "runtime")

# Lower may not import higher. Equal ranks may import each other only where `ALSO` says so.
RANK = {
    "mlcc.errors": 0, "mlcc.codes": 0, "mlcc.cache.folder": 1, "mlcc.files": 1, "mlcc.options.text": 1, "mlcc.outputs": 1,
    "mlcc.ir": 2, "mlcc.arith": 3, "mlcc.machine.target": 3, "mlcc.cache.object_cache": 3, "mlcc.grammar.printer.printer": 4,
    "mlcc.grammar.constants": 4, "mlcc.te": 5, "mlcc.ops": 6, "mlcc.verify": 7, "mlcc.relax": 7, "mlcc.interp": 8,
    "mlcc.grammar": 9, "mlcc.passes": 10, "mlcc.targets": 11, "mlcc.driver": 12, "mlcc.cli": 14,
}  # fmt: skip
LAZY_UPWARD = {(f"mlcc.ir.{name}", "mlcc.grammar.printer.printer") for name in ("node", "module", "equal")}


def modules() -> dict[str, Path]:
    found = {}
    for base, name in [(ROOT / "mlcc", "mlcc"), *((ROOT / p, f"mlcc.{p}") for p in PARTS)]:
        for path in base.rglob("*.py"):
            parts = path.relative_to(base).with_suffix("").parts
            dotted = ".".join([name, *(p for p in parts if p != "__init__")])
            found[dotted] = path
    return found


def imported(path: Path) -> set[str]:
    """Modules of the project that a file imports, at the top or inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names if a.name.split(".")[0] == "mlcc"}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "mlcc":
            found |= {f"{node.module}.{a.name}" for a in node.names}
    return found


def area(module: str) -> str | None:
    """The longest listed prefix."""
    parts = module.split(".")
    for n in range(len(parts), 1, -1):
        if ".".join(parts[:n]) in RANK:
            return ".".join(parts[:n])
    # the printer is several modules
    return None


def rank(module: str) -> int | None:
    if module.startswith("mlcc.grammar.print"):
        return RANK["mlcc.grammar.printer.printer"]
    where = area(module)
    return None if where is None else RANK[where]


def test_imports_go_one_way() -> None:
    known = modules()
    wrong = []
    for module, path in known.items():
        mine = rank(module)
        if mine is None or module.startswith("mlcc.runtime"):
            continue
        for target in imported(path):
            dotted = target if target in known else target.rsplit(".", 1)[0]
            if dotted == "mlcc" or dotted.startswith("mlcc.runtime"):
                continue
            theirs = rank(dotted)
            if theirs is not None and theirs > mine and (module, dotted) not in LAZY_UPWARD:
                wrong.append(f"{module} imports {dotted}")
    assert not wrong, "\n".join(sorted(wrong))


# what parts of targets/ may import of it: planning is for any target, the launch plan for any GPU
WITHIN_TARGETS = {"plan": ("plan",), "launch": ("plan", "launch")}


@pytest.mark.parametrize("part", WITHIN_TARGETS)
def test_planning_knows_no_target(part: str) -> None:
    allowed = tuple(f"mlcc.targets.{name}" for name in WITHIN_TARGETS[part])
    for module, path in modules().items():
        if module.startswith(f"mlcc.targets.{part}"):
            others = [t for t in imported(path) if t.startswith("mlcc.targets.") and not t.startswith(allowed)]
            assert not others, f"{module} imports {others}"


def test_runtime_needs_little() -> None:
    """runtime/ imports only errors, the standard library and numpy."""
    import sys

    wrong = []
    for module, path in modules().items():
        if not module.startswith("mlcc.runtime"):
            continue
        allowed = {*sys.stdlib_module_names, "numpy", "mlcc", "ml_dtypes"}
        if module.startswith("mlcc.runtime.cuda.with_"):
            allowed |= {"cuda", "pycuda"}
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [a.name for a in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            for name in names:
                outside = name.split(".")[0] not in allowed
                inside = name.startswith("mlcc.") and not name.startswith(("mlcc.runtime", "mlcc.errors"))
                if outside or inside:
                    wrong.append(f"{module} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_packages_are_the_folders() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    listed = set(config["options"]["packages"].split())
    found = {dotted if path.name == "__init__.py" else dotted.rsplit(".", 1)[0] for dotted, path in modules().items()}
    assert listed == found


def test_public_names_are_not_modules() -> None:
    import mlcc

    public = {n for n in mlcc._PUBLIC if n.islower()}
    names = {m.rsplit(".", 1)[-1] for m in modules()} | {*PARTS, "tests", "samples", "docs", "bench"}
    clash = public & names
    assert not clash


def test_public_names_exist() -> None:
    import mlcc

    for name in mlcc._PUBLIC:
        assert getattr(mlcc, name) is not None


def test_codes_are_explained_and_used() -> None:
    """Every code in the source is explained, and every explained one is used."""
    from mlcc.codes import codes

    used = set()
    for module, path in modules().items():
        if not module.startswith("mlcc.codes"):
            used |= set(re.findall(r"\"([EW]\d{4})\"", path.read_text()))
    assert not used - set(codes()), "used but not explained"
    assert not set(codes()) - used, "explained but not used"
    for code, (title, text) in codes().items():
        assert title and len(text) > 20, code


@pytest.mark.parametrize("folder", PARTS)
def test_no_second_copy_under_a_global_name(folder: str) -> None:
    """`import passes` from the checkout's root must not work: it would be a second copy of the module."""
    import subprocess
    import sys

    done = subprocess.run([sys.executable, "-c", f"import {folder}"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode != 0
    assert f"import mlcc.{folder}" in done.stderr


def test_speaks_of_itself_alone() -> None:
    """No absolute paths of anyone's machine in what is committed."""
    import subprocess

    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    for name in listed:
        path = ROOT / name
        if path.suffix in (".npz", ".bin") or not path.is_file() or path == Path(__file__):
            continue
        text = path.read_text(errors="replace")
        assert "/wo" + "rk/" not in text, name
        assert "/ro" + "ot/" not in text, name

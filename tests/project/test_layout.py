"""The folders keep their order: who may import whom, what is packaged, what names mean."""

from __future__ import annotations

import ast
import configparser
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("grammar", "passes", "targets", "runtime")

# The storeys, from the ground up: a module imports its own area and what lies below, at the top or inside functions. An
# area is a module or a package; the longest name counts. Areas of one line know nothing of each other.
STOREYS = """
    mlcc
    mlcc.errors mlcc.temporaries mlcc.recursion mlcc.progress mlcc.colors
    mlcc.runtime mlcc.codes
    mlcc.files
    mlcc.plugins
    mlcc.array_folders
    mlcc.array_files
    mlcc.numpy_command
    mlcc.options mlcc.outputs mlcc.call_by_name
    mlcc.ir
    mlcc.random_inputs
    mlcc.arith mlcc.machine
    mlcc.cache
    mlcc.grammar.constants mlcc.grammar.token_rules
    mlcc.grammar.printer
    mlcc.te
    mlcc.ops
    mlcc.verify mlcc.relax
    mlcc.interp
    mlcc.grammar.syntax
    mlcc.grammar.fmt
    mlcc.grammar.foreign
    mlcc.grammar.context
    mlcc.grammar.quoted_expressions mlcc.grammar.metadata
    mlcc.grammar.tir
    mlcc.grammar.global_infos
    mlcc.grammar.relax
    mlcc.grammar.parser mlcc.grammar
    mlcc.records
    mlcc.passes mlcc.passes.tvm_names
    mlcc.passes.manage.levels
    mlcc.backends
    mlcc.passes.manage
    mlcc.passes.schedule.refusal mlcc.passes.schedule.random
    mlcc.passes.schedule.storage mlcc.passes.schedule.tree mlcc.passes.schedule.handles mlcc.passes.schedule.nest
    mlcc.passes.schedule.buffers mlcc.passes.schedule.substitution
    mlcc.passes.schedule.analysis
    mlcc.passes.schedule.rewrite
    mlcc.passes.schedule.intrins
    mlcc.passes.schedule
    mlcc.passes.schedule.primitives
    mlcc.passes.schedule.mls
    mlcc.passes.schedule.schedule_pass
    mlcc.passes.lowering
    mlcc.passes.gpu
    mlcc.passes.auto_schedule
    mlcc.passes.auto_schedule.gpu
    mlcc.passes.auto_schedule.rules
    mlcc.passes.auto_schedule.apply_rules
    mlcc.passes.auto_schedule.plans mlcc.passes.auto_schedule.version_sizes
    mlcc.passes.auto_schedule.as_script mlcc.passes.auto_schedule.auto_pass mlcc.passes.auto_schedule.apply_tuned
    mlcc.passes.auto_schedule.by_rule
    mlcc.passes.graph
    mlcc.passes.fusion
    mlcc.passes.patterns mlcc.passes.convolution mlcc.passes.precision
    mlcc.passes.attention mlcc.passes.layout mlcc.passes.recognition
    mlcc.targets.plan mlcc.targets.artifact
    mlcc.targets.launch
    mlcc.targets.llvm.codegen
    mlcc.targets.llvm.object mlcc.targets.llvm.host
    mlcc.targets.llvm
    mlcc.targets.source
    mlcc.targets.c
    mlcc.targets.emulate
    mlcc.targets.cuda
    mlcc.targets
    mlcc.loading
    mlcc.driver mlcc.passes.check_each
    mlcc.tune mlcc.frontend
    mlcc.lang
    mlcc.reference
    mlcc.report mlcc.reduce mlcc.upgrade
    mlcc.bisect
    mlcc.lsp
    mlcc.cli
    mlcc.__main__
"""
RANK = {name: rank for rank, line in enumerate(STOREYS.strip().splitlines()) for name in line.split()}
# imports of what lies above, inside functions: `str(node)` prints the node
UPWARD = {(f"mlcc.ir.{name}", "mlcc.grammar.printer.printer") for name in ("node", "module", "equal")}


def modules() -> dict[str, Path]:
    found = {}
    for base, name in [(ROOT / "mlcc", "mlcc"), *((ROOT / p, f"mlcc.{p}") for p in PARTS)]:
        for path in base.rglob("*.py"):
            parts = path.relative_to(base).with_suffix("").parts
            dotted = ".".join([name, *(p for p in parts if p != "__init__")])
            found[dotted] = path
    return found


def imported(path: Path) -> set[str]:
    """Modules of the project that a file imports, at the top or inside functions, but for types alone."""
    found = set()
    todo: list[ast.AST] = [ast.parse(path.read_text())]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            todo += node.orelse
            continue
        todo += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names if a.name.split(".")[0] == "mlcc"}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "mlcc":
            found |= {f"{node.module}.{a.name}" for a in node.names}
    return found


def area(module: str) -> str:
    """The longest listed prefix; parts of mlcc/, grammar/, passes/ and targets/ have to be listed themselves."""
    parts = module.split(".")
    for n in range(len(parts), 0, -1):
        name = ".".join(parts[:n])
        if name in RANK and (name == module or name not in ("mlcc", "mlcc.grammar", "mlcc.passes", "mlcc.targets")):
            return name
    raise AssertionError(f"{module} has no place in STOREYS")


def test_imports_go_one_way() -> None:
    known = modules()
    wrong = []
    for module, path in known.items():
        mine = area(module)
        for name in imported(path):
            target = name if name in known else name.rsplit(".", 1)[0]
            theirs = area(target)
            above = theirs != mine and RANK[theirs] >= RANK[mine]
            if above and target != "mlcc" and (module, target) not in UPWARD:
                wrong.append(f"{module} imports {target}")
    assert not wrong, "\n".join(sorted(wrong))


def test_every_storey_is_inhabited() -> None:
    assert {area(module) for module in modules()} == set(RANK)


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


def cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """The groups of modules that import one another (Tarjan's strongly connected components of more than one)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(module: str) -> None:
        order[module] = low[module] = len(order)
        stack.append(module)
        for other in edges[module]:
            if other not in order:
                visit(other)
            if other in stack:
                low[module] = min(low[module], low[other])
        if low[module] == order[module]:
            group = stack[stack.index(module) :]
            del stack[-len(group) :]
            if len(group) > 1:
                found.append(sorted(group))

    for module in edges:
        if module not in order:
            visit(module)
    return sorted(found)


def import_edges(prefix: str) -> dict[str, set[str]]:
    """What each module under a prefix imports there: at the top, inside functions, or for types alone."""
    known = {m: p for m, p in modules().items() if m.startswith(prefix)}
    targets = {m: {t if t in known else t.rpartition(".")[0] for t in imported(p)} for m, p in known.items()}
    return {m: {t for t in found if t in known and t != m} for m, found in targets.items()}


def test_cycles_are_found() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()}) == [["a", "b", "c"]]
    assert not cycles({"a": {"b", "c"}, "b": {"c"}, "c": set()})


ACYCLIC = (
    "grammar.syntax",
    "grammar.tir",
    "grammar.relax",
    "grammar.fmt",
    "runtime",
    "te",
    "verify",
    "passes.auto_schedule",
    "passes.gpu",
    "passes.lowering",
    "targets.launch",
)


@pytest.mark.parametrize("folder", ACYCLIC)
def test_modules_of_a_folder_import_one_way(folder: str) -> None:
    assert not cycles(import_edges(f"mlcc.{folder}."))


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

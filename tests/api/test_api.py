"""What people meet in an editor and at a prompt: types, completion, and values shown in one line."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc import backends, relax, te
from mlcc.ir import tir

ROOT = Path(__file__).resolve().parents[2]
USER = Path(__file__).with_name("user.py")
TEXT = """
@I.ir_module
class Module:
    @T.prim_func
    def scale(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):
        for i, j in T.grid(16, 16):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)

    @R.function
    def main(x: R.Tensor((16, 16), "float32")) -> R.Tensor((16, 16), "float32"):
        return R.call_tir(scale, (x,), out_sinfo=R.Tensor((16, 16), "float32"))
"""


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package as it is when it is installed."""
    farm = tmp_path_factory.mktemp("installed")
    script("typecheck").link_package(farm)
    return farm


def test_stubs_are_what_is_there() -> None:
    for path, text in script("stubs").stubs().items():
        assert path.read_text() == text, f"{path.name} of {path.parent.name} is old: run scripts/stubs.py"


def checked(farm: Path, text: str) -> str:
    """What mypy --strict says of a file that uses the package."""
    pytest.importorskip("mypy")
    (farm / "user.py").write_text(text)
    command = [sys.executable, "-m", "mypy", "--strict", "--ignore-missing-imports", "--follow-imports=silent",
               "--cache-dir", str(farm / ".cache"), "user.py"]  # fmt: skip
    return subprocess.run(command, cwd=farm, capture_output=True, text=True, check=False).stdout


def test_a_file_of_a_user_has_types(installed: Path) -> None:
    assert "Success" in checked(installed, USER.read_text())
    wrong = """
import mlcc
from mlcc import relax

sch = mlcc.Schedule(mlcc.parse(""))
sch.split(sch.get_block("B"), factors=[4])
sch.no_such_primitive()
reveal_type(sch.get_loops("B"))
relax.op.nn.relu()
relax.op.sum(relax.const(1), axis="x")
relax.op.no_such_operator(1)
mlcc.build(mlcc.parse("")).no_such_method()
mlcc.load(3)
mlcc.no_such_name
"""
    said = checked(installed, wrong)
    for line, text in ((6, "BlockRV"), (7, "no_such_primitive"), (8, "list[mlcc.passes.schedule.handles.LoopRV]"),
                       (9, "Missing positional argument"), (10, "axis"), (11, "no_such_operator"),
                       (12, "no_such_method"), (13, "incompatible type"), (14, "no_such_name")):  # fmt: skip
        assert any(f"user.py:{line}:" in s and text.lower() in s.lower() for s in said.splitlines()), (line, said)


@pytest.mark.parametrize(
    "name", ["one_file.py", "hardswish/operator.py", "hardswish/approximate.py", "hardswish/rule.py"]
)
def test_code_that_extends_mlcc_has_types(installed: Path, name: str) -> None:
    said = checked(installed, (ROOT / "samples" / "plugin" / name).read_text())
    assert "Success" in said, said
    wrong = checked(installed, "from mlcc.passes import Pass, register\nPass().rum()\nregister(3)\n")
    assert "user.py:2:" in wrong and "user.py:3:" in wrong


def test_the_file_of_the_user_runs() -> None:
    spec = importlib.util.spec_from_file_location("user", USER)
    assert spec is not None and spec.loader is not None
    user: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(user)
    mod = user.module()
    made = mlcc.load(mlcc.build(user.tiled(mod)))["main"](np.ones((3, 8), "float32"), np.ones((8, 4), "float32"))
    assert made.tolist() == [[8.0] * 4] * 3
    assert len(user.layers().functions) == 1


def test_completion_offers_what_is_public(installed: Path) -> None:
    jedi = pytest.importorskip("jedi")
    project = jedi.Project(str(installed), sys_path=[str(installed), *sys.path[1:]], added_sys_path=[])

    def completed(*lines: str) -> set[str]:
        found = jedi.Script("\n".join(lines), project=project).complete(len(lines), len(lines[-1]))
        return {c.name for c in found}

    offered = completed("import mlcc", "mlcc.")
    assert {*mlcc._PUBLIC, *mlcc._MODULES} <= offered
    assert not {"importlib", "os", "Any", "annotations"} & offered
    assert {"split", "get_loops", "get_sblock", "mod"} <= completed("import mlcc", "sch = mlcc.Schedule(mod)", "sch.")
    assert {"matmul", "nn", "add"} <= completed("from mlcc import relax", "relax.op.")
    assert {"relu", "conv2d"} <= completed("from mlcc import relax", "relax.op.nn.")
    assert {"BlockBuilder", "Var", "op"} <= completed("from mlcc import relax", "relax.")
    assert {"Executable", "load_env", "read_manifest"} <= completed("import mlcc.runtime", "mlcc.runtime.")
    assert {"save", "emit", "manifest"} <= completed("import mlcc", "mlcc.build(mod).")
    assert {"functions", "time_evaluator"} <= completed("import mlcc", "mlcc.load('m.o').")
    source = "import mlcc\nsch = mlcc.Schedule(mod)\nsch.split("
    (signature,) = jedi.Script(source, project=project).get_signatures()
    assert "factors" in signature.to_string() and "list[LoopRV]" in signature.to_string()


def test_dir_lists_what_is_public() -> None:
    listed = {n for n in dir(mlcc) if not n.startswith("_")}
    assert listed == {*mlcc._PUBLIC, *mlcc._MODULES}
    assert not {n for n in dir(relax) if n.startswith("_") and not n.startswith("__")}
    assert {n for n in dir(mlcc.runtime) if not n.startswith("_")} == {*mlcc.runtime._PUBLIC}
    assert {n for n in dir(mlcc.ir) if not n.startswith("_")} == {*mlcc.ir.__all__}


def test_values_are_shown_in_a_line() -> None:
    mod = mlcc.parse(TEXT)
    scale, main = mod["scale"], mod["main"]
    assert isinstance(scale, tir.PrimFunc) and isinstance(main, relax.Function)
    sch, root = mlcc.Schedule(mod), scale.root
    assert root is not None
    block = sch.get_block("B", "scale")
    cpu, gpu = (mlcc.build(mod, target) for target in ("llvm", "cuda{arch=sm_80}"))
    exe = mlcc.load(cpu)
    shown = {
        "<IRModule Module: scale, main>": mod,
        "<PrimFunc def scale(": scale,
        "<Function def main(": main,
        "<Var x>": main.params[0],
        '<Buffer A: T.Buffer((16, 16), "float32")>': scale.buffers[0],
        '<TensorStructInfo R.Tensor((16, 16), dtype="float32")>': main.ret_struct_info,
        "<Target llvm{cpu=znver4}>": mlcc.Target.parse("llvm{cpu=znver4}"),
        "<Backend cuda>": backends.get("cuda"),
        "<Pipeline fuse,lower-to-tir>": mlcc.Pipeline.parse("fuse,lower-to-tir"),
        "<BlockRV B>": block,
        "[<LoopRV i>, <LoopRV j>]": sch.get_loops(block),
        "<Schedule of scale, main: 2 steps>": sch,
        "<Trace of 2 steps>": sch.trace,
        "<mlcc artifact for llvm with scale, main>": cpu,
        "<mlcc artifact for cuda{arch=sm_80} with scale, main>": gpu,
        "<mlcc executable with scale, main>": exe,
        "<mlcc function main(x)>": exe["main"],
        "TensorData(": relax.const(np.ones((64, 64), "float32")).data,
        "<Constant ": relax.const(np.ones((64, 64), "float32")),
        "Tensor(": te.placeholder((4,), name="t"),
        "<For for i, j in T.grid(16, 16): ...>": root.body[0],
    }
    for want, value in shown.items():
        text = repr(value)
        assert text.startswith(want.removesuffix(")")) and "\n" not in text and len(text) < 130, (want, text)
    assert repr(mlcc.IRModule()) == "<IRModule Module: no functions>"
    broken = object.__new__(tir.BufferStore)
    assert "BufferStore" in repr(broken)


def test_long_modules_are_shown_in_a_line() -> None:
    body = "".join(f"    y{i} = R.add(x, x)\n" for i in range(300))
    mod = mlcc.parse(f"@R.function\ndef main(x: R.Tensor((4,), 'float32')):\n{body}    return y299\n")
    assert len(repr(mod["main"])) < 130 and len(str(mod["main"]).splitlines()) > 300
    many = mlcc.IRModule({f"function{i}": mod["main"] for i in range(100)})
    assert len(repr(many)) < 130 and repr(many).endswith("...>")


AT_ONCE = """
import sys, threading
sys.setswitchinterval(1e-5)
import mlcc
uses = [
    lambda: mlcc.build(mlcc.parse(TEXT), "cuda"),
    lambda: mlcc.build(mlcc.parse(TEXT), "llvm"),
    lambda: mlcc.relax.op.add,
    lambda: mlcc.run_passes(mlcc.parse(TEXT), "O2", target="cuda"),
]
barrier, wrong = threading.Barrier(len(uses)), []
def use(it):
    barrier.wait()
    try:
        it()
    except BaseException as exc:
        wrong.append(repr(exc))
threads = [threading.Thread(target=use, args=(it,)) for it in uses]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.exit("\\n".join(wrong) or 0)
"""


def test_threads_that_use_parts_for_the_first_time() -> None:
    command = [sys.executable, "-c", f"TEXT = {TEXT!r}{AT_ONCE}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr

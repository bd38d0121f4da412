"""Mistakes in Python programs that use mlcc."""

from __future__ import annotations

from tests.mistakes.case import Case

_START = "import mlcc, numpy as np\nfrom pathlib import Path\n"
_NET = _START + 'mod = mlcc.parse(Path("net.mlc"))\n'
_EXE = (
    _NET
    + 'exe = mlcc.load(mlcc.build(mod, opt_level=0))\nx, w = np.ones((4, 8), "float32"), np.ones((8, 16), "float32")\n'
)
_SCH = _START + 'sch = mlcc.Schedule(mlcc.parse(Path("kernel.mlc")))\n'


def python(name: str, start: str, *lines: str) -> Case:
    return Case(name, start + "\n".join(lines), python=True)


CASES = [
    python("path to parse", _START, 'mlcc.parse("net.mlc")'),
    python("missing path to parse", _START, 'mlcc.parse("models/nett.mlc")'),
    python("model to parse", _START, 'mlcc.parse("net.onnx")'),
    python("missing Path to parse", _START, 'mlcc.parse(Path("nett.mlc"))'),
    python("module to parse", _NET, "mlcc.parse(mod)"),
    python("path to build", _START, 'mlcc.build("net.mlc")'),
    python("network to build", _START, "class Net:\n    def forward(self, x): return x\nmlcc.build(Net())"),
    python("None to build", _START, "mlcc.build(None)"),
    python("target to build", _NET, 'mlcc.build(mod, target="gpu")'),
    python("native CPU", _NET, 'mlcc.build(mod, target="llvm{cpu=nativ}")'),
    python("level to build", _NET, "mlcc.build(mod, opt_level=4)"),
    python("word as a level", _NET, 'mlcc.build(mod, opt_level="O3")'),
    python("text to load", _START, 'mlcc.load("net.mlc")'),
    python("missing file to load", _START, 'mlcc.load("net.o")'),
    python("module to load", _NET, "mlcc.load(mod)"),
    python("function misspelled", _EXE, 'exe["mian"]'),
    python("executable called", _EXE, "exe(x, w)"),
    python("function as an attribute", _EXE, "exe.main(x, w)"),
    python("too few arguments", _EXE, 'exe["main"](x)'),
    python("too many arguments", _EXE, 'exe["main"](x, w, w)'),
    python("keyword arguments", _EXE, 'exe["main"](x=x, w=w)'),
    python("dtype of an argument", _EXE, 'exe["main"](x.astype("float64"), w)'),
    python("shape of an argument", _EXE, 'exe["main"](w, x)'),
    python("list for an array", _EXE, 'exe["main"]([[1.0] * 8] * 4, w)'),
    python("None for an array", _EXE, 'exe["main"](None, w)'),
    python("strings in an array", _EXE, 'exe["main"](np.array([["a"] * 8] * 4), w)'),
    python("suffix to save", _NET, 'mlcc.build(mod, opt_level=0).save("net.xyz")'),
    python("pass of TVM", _NET, 'mlcc.run_passes(mod, "LegalizeOps")'),
    python("list of passes", _NET, 'mlcc.run_passes(mod, ["fuse", "lower-to-tir"])'),
    python("text to run_passes", _NET, 'mlcc.run_passes("net.mlc", "fuse")'),
    python("kind to emit", _NET, 'mlcc.build(mod, opt_level=0).emit("object")'),
    python("function of a module", _NET, 'mod["mian"]'),
    python("text to Schedule", _START, 'mlcc.Schedule("kernel.mlc")'),
    python("block of a schedule", _SCH, 'sch.get_block("D")'),
    python("factors of a split", _SCH, 'i, j, k = sch.get_loops(sch.get_block("C"))\nsch.split(i, factors=[3, 5])'),
    python("primitive misspelled", _SCH, "sch.spilt"),
    python("stage of tensor expressions", _SCH, 'sch["C"]'),
    python("path to apply_schedule", _NET, 'mlcc.apply_schedule(mod, "tiled.mls")'),
    python("compile", _START, "mlcc.compile"),
    python("tvm's names", _START, "mlcc.tir.Schedule"),
    python("operator of the graph", _START, "mlcc.relax.op.nn.conv"),
]

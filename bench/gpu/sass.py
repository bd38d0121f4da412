"""`python -m bench sass`: the machine code of mlcc's kernels beside that of Triton's, without a GPU.

Both compile the same functions; one ptxas assembles both. Counted are instructions of the hot loop: the innermost loop
with the most multiply-add instructions of the kernel, or all of a kernel that has no loop. Triton's wheel brings ptxas
and cuobjdump; nothing is run. The table goes into docs/gpu-speed.md.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlcc
from mlcc.targets.cuda.ptxas import KernelResources, assemble

PAGE = Path(__file__).resolve().parents[2] / "docs" / "gpu-speed.md"
START, END = "<!-- machine code -->", "<!-- end of machine code -->"
ARCHS = ("sm_80", "sm_90a")
_LINE = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)([^;]*);")
_KINDS: Mapping[str, tuple[str, ...]] = {  # kinds of instructions, by their first names
    "products": ("HMMA", "HGMMA", "QGMMA", "IMMA", "DMMA"),
    "floats": ("FFMA", "FADD", "FMUL", "FSETP", "FMNMX", "FSEL", "HFMA2", "HADD2", "HMUL2", "FCHK", "F2FP", "F2F"),
    "special": ("MUFU",),
    "shared": ("LDS", "STS", "LDSM", "STSM", "SHFL", "LDGSTS", "UTMALDG", "SYNCS"),
    "global": ("LDG", "STG", "LD", "ST"),
    "local": ("LDL", "STL"),
    "integers": (
        "IMAD", "IADD3", "IADD", "LOP3", "LEA", "SHF", "ISETP", "PRMT", "SEL", "IMNMX", "UIADD3", "ULOP3", "USHF",
        "ULEA", "UIMAD", "UISETP", "USEL", "UPRMT", "VIADD", "VIMNMX", "LOP", "I2F", "F2I", "R2UR", "UMOV", "MOV",
        "CS2R", "S2R", "S2UR", "PLOP3", "P2R", "R2P", "UPLOP3", "ULDC",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A function of both compilers: `text` for mlcc; for Triton a kernel, types of its pointers, constants, and options
    of its compiler."""

    name: str
    text: str
    kernel: str
    pointers: str
    constants: Mapping[str, Any]
    options: Mapping[str, int]
    target: str = ""


@dataclass(frozen=True)
class Code:
    """The machine code of a kernel: instructions in all, and those of the hot loop by name, and what ptxas reports."""

    total: int
    loop: Counter[str]
    resources: KernelResources

    def count(self, kind: str) -> int:
        """Return the instructions of a kind in the hot loop."""
        return sum(n for name, n in self.loop.items() if name.partition(".")[0] in _KINDS[kind])

    @property
    def multiply_adds(self) -> int:
        """The multiply-adds that a warp makes in the hot loop on tensor cores."""
        return sum(n * _multiply_adds(name) for name, n in self.loop.items())


def cases() -> list[Case]:
    """Return the functions to compare."""
    rows, columns, n = 4096, 1024, 4096
    matrix = f'R.Tensor(({n}, {n}), "{{0}}")'
    tiles = {"M": n, "N": n, "K": n, "TILE_M": 128, "TILE_N": 256, "GROUP": 8}
    heads = 'R.Tensor((4, 2048, 16, 64), "float16")'
    one_row = {"COLUMNS": columns}
    return [
        Case(
            "softmax", _graph(f'x: R.Tensor(({rows}, {columns}), "float32")', "R.nn.softmax(x)"), "softmax",
            "fp32 fp32", one_row, {"num_warps": 4},
        ),
        Case(
            "layer norm",
            _graph(
                f'x: R.Tensor(({rows}, {columns}), "float32"), g: R.Tensor(({columns},), "float32"), '
                f'b: R.Tensor(({columns},), "float32")',
                "R.nn.layer_norm(x, g, b, axes=[-1])",
            ),
            "layer_norm", "fp32 fp32 fp32 fp32", one_row, {"num_warps": 4},
        ),
        Case(
            "product, float16",
            _graph(f"x: {matrix}, w: {matrix}".format("float16"), 'R.matmul(x, w, out_dtype="float32")'), "matmul",
            "fp16 fp16 fp32", {**tiles, "TILE_K": 32, "PRECISION": "tf32"}, {"num_warps": 8, "num_stages": 4},
        ),
        Case(
            "product, tf32", _graph(f"x: {matrix}, w: {matrix}".format("float32"), "R.matmul(x, w)"), "matmul",
            "fp32 fp32 fp32", {**tiles, "TILE_K": 16, "PRECISION": "tf32"}, {"num_warps": 8, "num_stages": 4},
            " tf32=true",
        ),
        Case(
            "attention", _graph(f"q: {heads}, k: {heads}, v: {heads}", "R.nn.attention(q, k, v)"), "attention",
            "fp16 fp16 fp16 fp16", {"LENGTH": 2048, "HEADS": 16, "HEAD": 64, "QUERIES": 128, "KEYS": 64},
            {"num_warps": 4, "num_stages": 3},
        ),
    ]  # fmt: skip


def _graph(params: str, value: str) -> str:
    return (
        f"@R.function\ndef main({params}):\n    with R.dataflow():\n        y = {value}\n"
        "        R.output(y)\n    return y\n"
    )


def of_mlcc(case: Case, arch: str) -> str:
    """Return the PTX of a case as mlcc compiles it at the default level."""
    target = f"cuda{{arch={arch}{case.target}}}"
    return mlcc.build(mlcc.parse(case.text), target).emit("ptx").decode()


def of_triton(case: Case, arch: str) -> str:
    """Return the PTX of a case as Triton compiles it, for pointers that are multiples of 16."""
    import triton  # type: ignore[import-not-found,unused-ignore]
    from triton.backends.compiler import GPUTarget  # type: ignore[import-not-found,unused-ignore]
    from triton.compiler import ASTSource  # type: ignore[import-not-found,unused-ignore]

    from bench.gpu import triton_kernels

    kernel = getattr(triton_kernels, case.kernel)
    pointers = dict(zip(kernel.arg_names, case.pointers.split(), strict=False))
    types = {name: f"*{pointers[name]}" if name in pointers else "constexpr" for name in kernel.arg_names}
    aligned = {(n,): [["tt.divisibility", 16]] for n in range(len(pointers))}
    source = ASTSource(fn=kernel, signature=types, constexprs=dict(case.constants), attrs=aligned)
    capability = int(re.sub(r"\D", "", arch))
    options = {"enable_fp_fusion": True, **case.options}
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    return str(made.asm["ptx"])


def machine_code(ptx: str, arch: str) -> Code:
    """Assemble PTX of one kernel, or of several of which the one with most products or instructions counts."""
    tools = _tools()
    resources = assemble(ptx, arch, tools / "ptxas-blackwell")
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx)
        subprocess.run([tools / "ptxas-blackwell", "-arch", arch, source, "-o", cubin], check=True, capture_output=True)
        listing = subprocess.run([tools / "cuobjdump", "-sass", cubin], check=True, capture_output=True, text=True)
    codes = []
    for section in listing.stdout.split("Function : ")[1:]:
        lines = instructions(section)
        codes.append(Code(len(lines), hot_loop(lines), resources[section.split()[0]]))
    return max(codes, key=lambda code: (code.multiply_adds, code.total))


def _tools() -> Path:
    found = importlib.util.find_spec("triton")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("Triton is not installed: pip install triton")
    return Path(found.submodule_search_locations[0], "backends", "nvidia", "bin")


Instruction = tuple[int, str, str]  # address, name, operands


def instructions(listing: str) -> list[Instruction]:
    """Return the instructions of a listing of `cuobjdump -sass`, without padding."""
    found = [(int(m[1], 16), m[2], m[3].strip()) for m in _LINE.finditer(listing)]
    return [one for one in found if one[1] != "NOP"]


def hot_loop(code: list[Instruction]) -> Counter[str]:
    """Count by name the instructions of the innermost loop with the most multiply-adds; of all without such a loop."""
    loops = []
    for place, (address, name, operands) in enumerate(code):
        target = re.search(r"0x([0-9a-f]+)", operands)
        if name.partition(".")[0] == "BRA" and target is not None and int(target[1], 16) < address:
            body = [one for one in code[: place + 1] if one[0] >= int(target[1], 16)]
            if any(one[1] == "EXIT" for one in body):  # a branch back from code behind the end of the kernel
                continue
            work = sum(_multiply_adds(one) or one.startswith("FFMA") for _, one, _ in body)
            loops.append((work, body[0][0], address, body))
    working = [one for one in loops if one[0]]
    inner = [
        one
        for one in working
        if not any(one[1] <= other[1] and other[2] <= one[2] and other is not one for other in working)
    ]
    body = max(inner, key=lambda one: one[0])[3] if inner else code
    return Counter(name for _, name, _ in body)


def _multiply_adds(name: str) -> int:
    """Return the multiply-adds of a warp by one instruction: HMMA.16816.F32 has 16 x 8 x 16, HGMMA.64x256x16 has a
    quarter of its rows."""
    if shape := re.match(r"[HQI]GMMA\.(\d+)x(\d+)x(\d+)", name):
        return int(shape[1]) // 4 * int(shape[2]) * int(shape[3])
    if shape := re.match(r"HMMA\.(16)(8)(16|8)\b", name):
        return int(shape[1]) * int(shape[2]) * int(shape[3])
    return 0


def row(case: str, arch: str, compiler: str, code: Code) -> str:
    """Return a line of the table."""
    loop, facts = sum(code.loop.values()), code.resources
    others = loop - code.count("products")
    per_unit = f"{others * 32768 / code.multiply_adds:.1f}" if code.multiply_adds else ""
    kinds = [code.count(kind) for kind in ("products", "floats", "special", "shared", "global", "integers")]
    spills = facts.spill_stores + facts.spill_loads
    cells = (case, arch, compiler, facts.registers, spills, code.total, loop, *kinds, per_unit)
    return f"| {' | '.join(map(str, cells))} |"


HEAD = """\
| kernel | target | by | registers | spills | instructions | hot loop | products | floats | `MUFU` | shared | global | \
integers | others per 32 K |
| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
"""


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench sass", description=__doc__)
    parser.add_argument("--only", default="", help="cases whose names contain this")
    parser.add_argument("--listings", type=Path, help="a folder for the PTX of both")
    asked = parser.parse_args(argv)
    _tools()
    lines = []
    for case in cases():
        if asked.only not in case.name:
            continue
        for arch in ARCHS:
            for compiler, ptx in (("mlcc", of_mlcc(case, arch)), ("Triton", of_triton(case, arch))):
                if asked.listings:
                    name = f"{case.name}-{arch}-{compiler}.ptx".replace(" ", "").replace(",", "-")
                    Path(asked.listings, name).write_text(ptx)
                lines.append(row(case.name, arch, compiler, machine_code(ptx, arch)))
                print(lines[-1], flush=True)
    if not asked.only:
        before, _, rest = PAGE.read_text().partition(START)
        after = rest.partition(END)[2]
        PAGE.write_text(f"{before}{START}\n{HEAD}{chr(10).join(lines)}\n{END}{after}")
    return 0

"""Judge the inner loops of kernels for CPUs that are not at hand, from their assembly.

`python -m bench cpus` compiles workloads for each CPU and takes, of each, the innermost loop with the most vector
operations. It counts spills (accesses of the stack in the loop), and asks LLVM's scheduler model of that CPU, by
llvm-mca, for the cycles of an iteration, and for the least that the multiply-adds of a product, or all instructions of
another loop, occupy the CPU: their share says how much of the CPU's peak the loop can reach. Data are taken to be in
the first level of cache. `--write` writes the table into docs/other-cpus.md, and the figures where the tests compare.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import mlcc

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "other-cpus.md"
RECORD = ROOT / "tests" / "bench" / "cpu_models.json"
MARK = "<!-- what follows is written by `python -m bench cpus --write` -->"
TOOLS = ("llvm-mca-19", "llvm-mca-20", "llvm-mca-21")  # the first made the record
_ITERATIONS = 100

# name -> target; the CPU of the target is the one whose model llvm-mca uses
CPUS: dict[str, str] = {
    "haswell": "llvm{cpu=haswell}",
    "skylake-avx512": "llvm{cpu=skylake-avx512}",
    "icelake-server": "llvm{cpu=icelake-server}",
    "sapphirerapids": "llvm{cpu=sapphirerapids}",
    "znver2": "llvm{cpu=znver2}",
    "znver3": "llvm{cpu=znver3}",
    "znver4": "llvm{cpu=znver4}",
    "znver5": "llvm{cpu=znver5}",
    "neoverse-n1": "llvm{triple=aarch64-linux-gnu cpu=neoverse-n1}",
    "neoverse-v1": "llvm{triple=aarch64-linux-gnu cpu=neoverse-v1}",
    "neoverse-v2": "llvm{triple=aarch64-linux-gnu cpu=neoverse-v2}",
    "apple-m1": "llvm{triple=aarch64-linux-gnu cpu=apple-m1}",
}


def _function(arguments: str, body: str) -> str:
    lines = ("@R.function", f"def main({arguments}):", f"    y = {body}", "    return y")
    return "\n".join(lines) + "\n"


def _tensor(name: str, *shape: int, dtype: str = "float32") -> str:
    return f'{name}: R.Tensor({shape}, "{dtype}")'


WORKLOADS: dict[str, str] = {
    "matmul": _function(f"{_tensor('x', 256, 256)}, {_tensor('w', 256, 256)}", "R.matmul(x, w)"),
    "matvec": _function(f"{_tensor('x', 1, 512)}, {_tensor('w', 512, 512)}", "R.matmul(x, w)"),
    "conv2d": _function(
        f"{_tensor('x', 1, 64, 28, 28)}, {_tensor('w', 64, 64, 3, 3)}", "R.nn.conv2d(x, w, padding=(1, 1))"
    ),
    "depthwise": _function(
        f"{_tensor('x', 1, 64, 28, 28)}, {_tensor('w', 64, 1, 3, 3)}", "R.nn.conv2d(x, w, padding=(1, 1), groups=64)"
    ),
    "int8": _function(
        f"{_tensor('x', 128, 256, dtype='uint8')}, {_tensor('w', 256, 256, dtype='int8')}",
        'R.matmul(x, w, out_dtype="int32")',
    ),
    "softmax": _function(_tensor("x", 128, 1024), "R.nn.softmax(x)"),
    "gelu": _function(_tensor("x", 65536), "R.nn.gelu(x)"),
    "layer_norm": _function(
        f"{_tensor('x', 128, 768)}, {_tensor('g', 768)}, {_tensor('b', 768)}", "R.nn.layer_norm(x, g, b, axes=[-1])"
    ),
}


PRODUCTS = ("matmul", "matvec", "conv2d", "depthwise", "int8")


class Operations(NamedTuple):
    """Patterns for the assembly of an architecture."""

    comment: str
    vector: re.Pattern[str]  # an instruction on vectors
    product: re.Pattern[str]  # a multiply-add or dot product of vectors
    stack: re.Pattern[str]  # an operand on the stack
    branch: re.Pattern[str]  # a branch, with its label


OPERATIONS = {
    "x86_64": Operations(
        "#",
        re.compile(r"%[xyz]mm\d"),
        re.compile(r"vfn?m(add|sub)\d+ps|vpdp|vdpbf16|vpmaddwd"),
        re.compile(r"\(%rsp\b"),
        re.compile(r"j\w+\s+(\.L[\w.]+)"),
    ),
    "aarch64": Operations(
        "//",
        re.compile(r"\b[vz]\d+\."),
        re.compile(r"(fmla|fmls|[su]dot|usdot|bfdot|[su]mlal2?|fmlal)\s"),
        re.compile(r"\[sp\b"),
        re.compile(r"(?:b|b\.\w+|cbn?z|tbn?z)\s+(?:\S+,\s*)*(\.L[\w.]+)"),
    ),
}


@dataclass(frozen=True)
class InnerLoop:
    """The innermost loop of a kernel with the most vector operations.

    `spills`: its accesses of the stack. `cycles`: those of an iteration by the CPU's model; None without llvm-mca.
    `share`: the part of them in which its multiply-adds, or all instructions where it is no product, would occupy the
    CPU if none waited for another one.
    """

    instructions: int
    spills: int
    cycles: float | None = None
    share: float | None = None


def judge(workload: str, cpu: str) -> InnerLoop:
    """Compile a workload for a CPU and judge its hottest loop."""
    target = CPUS[cpu]
    machine = "aarch64" if "aarch64" in target else "x86_64"
    artifact = mlcc.build(mlcc.parse(WORKLOADS[workload]), target)
    assembly = artifact.emit("asm")
    text = assembly.decode() if isinstance(assembly, bytes) else str(assembly)
    operations = OPERATIONS[machine]
    loop = hottest_loop(text, operations)
    spills = sum(1 for line in loop if operations.stack.search(line))
    tool = find_tool()
    if tool is None:
        return InnerLoop(len(loop), spills)
    cycles = steady_cycles(loop, machine, cpu, tool)
    products = [line for line in loop if operations.product.search(line)]
    share = least_cycles(products if workload in PRODUCTS else loop, machine, cpu, tool) / cycles
    return InnerLoop(len(loop), spills, round(cycles, 2), round(share, 3))


def hottest_loop(assembly: str, operations: Operations) -> list[str]:
    """Return the instructions of the innermost loop of a kernel that has the most products, then vector operations.

    A loop reaches from a label to a branch back to it; an innermost one has no other such pair inside.
    """
    lines = []
    in_kernel = False
    for line in assembly.splitlines():
        text = line.split(operations.comment)[0].strip()
        name = re.match(r"([\w.]+):", text)
        if name and not name[1].startswith(".L"):
            in_kernel = "kernel." in name[1]
        if in_kernel and text and (name or not text.startswith(".")):
            lines.append(text)
    labels = {line[:-1]: at for at, line in enumerate(lines) if line.endswith(":")}
    loops = []
    for at, line in enumerate(lines):
        branch = operations.branch.match(line)
        if branch and labels.get(branch[1], at) < at:
            loops.append((labels[branch[1]], at))
    innermost = [a for a in loops if not any(a != b and a[0] <= b[0] and b[1] <= a[1] for b in loops)]
    bodies = [[line for line in lines[start : end + 1] if not line.endswith(":")] for start, end in innermost]

    def weight(body: list[str]) -> tuple[int, int]:
        return tuple(sum(1 for x in body if p.search(x)) for p in (operations.product, operations.vector))  # type: ignore[return-value]

    return max(bodies, key=weight, default=[])


def find_tool() -> str | None:
    """Return the path of the first of `TOOLS` that is installed, or None. Earlier versions do not know all the CPUs."""
    for name in TOOLS:
        if path := shutil.which(name):
            return path
    return None


def steady_cycles(instructions: list[str], machine: str, cpu: str, tool: str) -> float:
    """Return the cycles of an iteration of a loop in the steady state, by llvm-mca's model of a CPU."""
    once, twice = (
        float(_report(instructions, machine, cpu, tool, n)["Total Cycles"]) for n in (_ITERATIONS, 2 * _ITERATIONS)
    )
    return (twice - once) / _ITERATIONS


def least_cycles(instructions: list[str], machine: str, cpu: str, tool: str) -> float:
    """Return the cycles for which instructions occupy the CPU if none waits for another one."""
    return float(_report(instructions, machine, cpu, tool, 1)["Block RThroughput"])


def _report(instructions: list[str], machine: str, cpu: str, tool: str, iterations: int) -> dict[str, str]:
    """Return the summary of llvm-mca by its labels."""
    text = "\n".join(re.sub(r"\.L[\w.]+", "done", line) for line in instructions) + "\ndone:\n"
    command = [tool, f"-mtriple={machine}-linux-gnu", f"-mcpu={cpu}", f"-iterations={iterations}"]
    report = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    return dict(re.findall(r"^([\w ]+):\s+([\d.]+)$", report, re.MULTILINE))


def table(figures: dict[str, dict[str, InnerLoop]]) -> list[str]:
    """Return the rows of the table: a line per CPU, a column per workload."""
    head = ["| CPU | " + " | ".join(WORKLOADS) + " |", "| --- |" + " ---: |" * len(WORKLOADS)]
    return head + [f"| {cpu} | {' | '.join(map(_cell, row.values()))} |" for cpu, row in figures.items()]


def _cell(loop: InnerLoop) -> str:
    spills = f", {loop.spills} spills" if loop.spills else ""
    if loop.share is not None:
        return f"{loop.share:.0%}{spills}"
    return (
        f"{loop.cycles:.1f} cycles{spills}" if loop.cycles is not None else f"{loop.instructions} instructions{spills}"
    )


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench cpus", description=__doc__)
    parser.add_argument("--only", help="names of CPUs, separated by commas")
    parser.add_argument("--write", action="store_true", help=f"write docs/{PAGE.name} and {RECORD.name}")
    options = parser.parse_args(argv)
    if options.write and (options.only or find_tool() is None):
        parser.error("--write needs all CPUs, and llvm-mca 19 or later")
    chosen = options.only.split(",") if options.only else list(CPUS)
    figures = {cpu: {workload: judge(workload, cpu) for workload in WORKLOADS} for cpu in chosen}
    lines = table(figures)
    print("\n".join(lines))
    if options.write:
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(text[: text.index(MARK)] + MARK + "\n\n" + "\n".join(lines) + "\n", encoding="utf-8")
        record = {cpu: {name: asdict(loop) for name, loop in row.items()} for cpu, row in figures.items()}
        RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return 0

"""Every operator against its reference: interpreted, lowered and interpreted, compiled; static and symbolic.

`python -m tests.ops.coverage` runs the whole campaign and lists what fails; `--write` puts what passes into the table
of docs/ops-tables.md.
"""

from __future__ import annotations

import argparse
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import mlcc
from mlcc import ops
from mlcc.errors import CallError, CompileError
from mlcc.interp import run_function
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import DType
from mlcc.ir.module import IRModule
from mlcc.ir.narrow_floats import decode
from mlcc.ops.relations import evaluate
from mlcc.ops.shapes import shapes_known
from mlcc.ops.values import tensor_info
from mlcc.targets.plan.calls import NATIVE_OPERATORS
from tests.generate import op_calls
from tests.generate.op_calls import NoSuchElements, OpCall
from tests.ops import numbers
from tests.ops.cases import Case, Mine

STATIC, SYMBOLIC = "static", "symbolic"

# Relative and absolute difference from the reference that is allowed, by dtype. Integers and bools are exact. Narrow
# floats are computed in float32 and rounded once on both sides: they differ by one unit in the last place, where a
# float32 that differs by its own error is rounded the other way.
FLOAT32_ERROR = 2e-5
TOLERANCE = {
    "float64": (1e-9, 1e-9),
    "float32": (FLOAT32_ERROR, FLOAT32_ERROR),
    "float16": (2**-10 + FLOAT32_ERROR, FLOAT32_ERROR),
    "bfloat16": (2**-7 + FLOAT32_ERROR, FLOAT32_ERROR),
}
# Operators whose floats are those of the reference, bit by bit but for the sign of zero: they move elements, choose
# among them, or round the exact result once. docs/accuracy.md lists them.
EXACT = frozenset({
    "abs", "add", "argmax", "argmin", "argsort", "broadcast_to", "bucketize", "ceil", "clip", "concat", "divide",
    "dynamic_strided_slice", "equal", "expand_dims", "eye", "eye_like", "flatten", "flip", "floor", "full",
    "full_like", "gather_elements", "gather_nd", "greater", "greater_equal", "index_tensor", "isfinite", "isinf",
    "isnan", "layout_transform", "less", "less_equal", "max", "maximum", "meshgrid", "min", "minimum", "multiply",
    "negative", "nn.batch_flatten", "nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d", "nn.pad", "nn.pixel_shuffle",
    "nn.relu", "nonzero", "not_equal", "one_hot", "ones", "ones_like", "outer", "permute_dims", "repeat", "reshape",
    "reverse_sequence", "round", "shape_of", "sign", "size", "slice_scatter", "sort", "split", "square", "squeeze",
    "stack", "strided_slice", "subtract", "take", "tile", "topk", "tril", "triu", "trunc", "unique", "where",
    "zeros", "zeros_like",
})  # fmt: skip
LOWERING = "lower-to-tir{accurate=true check-indices=true},promote-narrow-floats"


@dataclass
class Verdict:
    """What became of one call in one form: passed by each way of running it, refused, or wrong."""

    call: OpCall
    mode: str
    refused: str = ""  # the diagnostic, if this call is not taken at all
    interpreted: bool = False
    lowered: bool = False
    compiled: bool = False
    wrong: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.call.case.name


@dataclass
class _Job:
    """A call that is ready to be compiled: the function, and per sizes the inputs and what they give."""

    verdict: Verdict
    function: relax.Function
    runs: list[tuple[dict[str, int], list[Any], list[np.ndarray]]]
    infos: tuple[Any, ...]


def judge(calls: Iterable[OpCall], opt_level: int = 0, batch: int = 150) -> Iterator[Verdict]:
    """A verdict per call and form; calls are compiled many at a time."""
    jobs: list[_Job] = []
    for call in calls:
        for mode in (STATIC, SYMBOLIC):
            if mode == SYMBOLIC and not call.names:
                continue
            verdict = Verdict(call, mode)
            job = _interpret(verdict)
            if job is None:
                yield verdict
            else:
                jobs.append(job)
        if len(jobs) >= batch:
            yield from _compiled(jobs, opt_level)
            jobs = []
    yield from _compiled(jobs, opt_level)


def _interpret(verdict: Verdict) -> _Job | None:
    """Everything but compiling; None where there is nothing left to do."""
    call = verdict.call
    case = call.static if verdict.mode == STATIC else call.symbolic
    try:
        side, module = function(case)
    except CompileError as problem:
        verdict.refused = str(problem)
        return None
    try:
        runs = list(_runs(call, verdict.mode))
    except CompileError as problem:
        verdict.refused = str(problem)
        return None
    except Exception as problem:
        verdict.wrong.append(f"reference: {type(problem).__name__}: {problem}")
        return None
    infos = _infos(side.made)
    _run(verdict, "interpreted", lambda *a: run_function(module, "main", a), runs, infos)
    op = ops.get(case.name)
    assert op is not None
    if not runs or verdict.wrong:
        return None
    native = op.short in NATIVE_OPERATORS
    known = shapes_known(side.made) or op.impl.found is not None
    if not native and op.impl.expand is None and (op.impl.lower is None or not known):
        return None
    try:
        lowered = mlcc.run_passes(module, LOWERING)
    except CompileError as problem:
        verdict.interpreted = False
        verdict.refused = str(problem)
        return None
    except Exception as problem:
        verdict.wrong.append(f"lowering: {type(problem).__name__}: {problem}")
        return None
    _run(verdict, "lowered", lambda *a: run_function(lowered, "main", a), runs, infos)
    if verdict.wrong:
        return None
    return _Job(verdict, module["main"], runs, infos)


class _Side(Mine):
    made: relax.Call

    def call(self, case: Case) -> relax.Call:
        self.made = super().call(case)
        self.given = len(self.params)
        bound = {d for p in self.params for d in getattr(p.struct_info, "dims", None) or ()}
        for name, var in self.vars.items():
            if var not in bound:  # a variable that no tensor of the call has
                self.params.append(relax.Var(f"sized_{name}", tensor_info([var], "int8")))
        return self.made


def function(case: Case) -> tuple[_Side, IRModule]:
    """The call in a function; variables that stand in no tensor's shape come with tensors of their own."""
    side = _Side()
    return side, side.module(case)


def _runs(call: OpCall, mode: str) -> Iterator[tuple[dict[str, int], list[Any], list[np.ndarray]]]:
    """Sizes, inputs and what they give; a symbolic call runs with other sizes too."""
    sizes = [call.sizes]
    if mode == SYMBOLIC:
        sizes += [dict.fromkeys(call.names, s) for s in (0, 1, 5)]
    for index, chosen in enumerate(sizes):
        resized = call.resized(chosen)
        try:
            side, _ = function(resized.static)
            fixed = not call.seed  # a known case, whose arrays come with it
            inputs = numbers.arrays(call.case, side.params) if fixed else op_calls.arrays(resized.static, call.seed)
            wanted = numbers.expected(side.made, dict(zip(side.params, inputs, strict=True)))
        except NoSuchElements:
            continue
        except (CompileError, ValueError, IndexError, ZeroDivisionError):
            if index == 0:
                raise
            continue  # no sizes for this call
        if mode == SYMBOLIC and not _possible(call, chosen, side.made):
            continue
        if mode == SYMBOLIC:
            other, _ = function(call.symbolic)
            for extra in other.params[other.given :]:
                (var,) = extra.struct_info.dims  # type: ignore[union-attr]
                inputs = [*inputs, np.zeros(chosen.get(var.name, call.sizes[var.name]), "int8")]
        yield chosen, inputs, wanted


def _possible(call: OpCall, sizes: dict[str, int], static: relax.Call) -> bool:
    """Whether symbolic extents have the values that static ones have for these sizes; where the struct info would be
    of negative extents, or of more rows than there are, there is nothing to compare."""
    side, _ = function(call.symbolic)
    known = {var: sizes.get(name, call.sizes[name]) for name, var in side.vars.items()}
    for symbolic, plain in zip(_infos(side.made), _infos(static), strict=True):
        for at, dim in enumerate(getattr(symbolic, "dims", None) or ()):
            value = evaluate(dim, known)
            if value is None or value < 0:
                return False
            if call.case.name == "topk" and value != tir.const_int(plain.dims[at]):
                return False
            if call.case.name == "reshape" and value == 0:  # written as a number, 0 copies an extent
                return False
            assert plain.dims is None or value == tir.const_int(plain.dims[at]), f"extent {at} is {value} by {dim}"
    return True


def _infos(call: relax.Call) -> tuple[Any, ...]:
    info = call.struct_info
    return tuple(info.fields) if isinstance(info, relax.TupleStructInfo) else (info,)


def _run(verdict: Verdict, way: str, fn: Any, runs: Any, infos: Any) -> None:
    """Call with all inputs; the verdict says whether everything agreed."""
    for sizes, inputs, wanted in runs:
        try:
            got = fn(*inputs)
        except (CallError, CompileError) as problem:
            verdict.wrong.append(f"{way} with {sizes}: {problem}")
            return
        except Exception as problem:
            verdict.wrong.append(f"{way} with {sizes}: {type(problem).__name__}: {problem}")
            return
        values = list(got) if len(infos) > 1 or isinstance(got, tuple) and len(wanted) == 1 else [got]
        if infos and isinstance(infos[0], relax.ShapeStructInfo):
            values = [np.array(got, "int64")]
        found = difference(values, wanted, infos, verdict.name)
        if found:
            verdict.wrong.append(f"{way} with {sizes}: {found}")
            return
    if runs:
        setattr(verdict, way, True)


def tolerance(name: str, dtype: str) -> tuple[float, float]:
    """The relative and absolute difference that an operator may have in a floating-point dtype."""
    return (0.0, 0.0) if name in EXACT else TOLERANCE[dtype]


def difference(got: list[Any], wanted: list[np.ndarray], infos: Sequence[Any], name: str = "") -> str:
    """What differs, in words; nothing where all is within the tolerance of the operator."""
    for value, want, info in zip(got, wanted, infos, strict=True):
        dtype = info.dtype if isinstance(info, relax.TensorStructInfo) else DType.of("int64")
        have = np.asarray(value)
        if dtype.kind == "bfloat" and have.dtype == np.uint16:
            have = decode(have, dtype)
        if have.shape != want.shape:
            return f"shape {have.shape} for {want.shape}"
        if have.dtype != want.dtype:
            return f"dtype {have.dtype} for {want.dtype}"
        if not dtype.is_float:
            if not np.array_equal(have, want):
                return f"{_first(have, want, have != want)}"
            continue
        with np.errstate(all="ignore"):
            near = np.isclose(have.astype("float64"), want.astype("float64"), *tolerance(name, str(dtype)), True)
        if not near.all():
            return _first(have, want, ~near)
    return ""


def _first(have: np.ndarray, want: np.ndarray, differs: np.ndarray) -> str:
    at = tuple(int(n) for n in np.argwhere(differs)[0]) if differs.ndim else ()
    return f"{have[at]!r} for {want[at]!r} at {at}"


def _compiled(jobs: list[_Job], opt_level: int) -> Iterator[Verdict]:
    """Compile jobs as one module; where that fails, find out which ones cannot be compiled."""
    if not jobs:
        return
    functions = {f"f{i}": j.function.with_attr("global_symbol", f"f{i}") for i, j in enumerate(jobs)}
    try:
        executable = mlcc.load(mlcc.build(IRModule(functions), opt_level=opt_level))
    except Exception as problem:
        if len(jobs) > 1:
            half = len(jobs) // 2
            yield from _compiled(jobs[:half], opt_level)
            yield from _compiled(jobs[half:], opt_level)
            return
        verdict = jobs[0].verdict
        if isinstance(problem, CompileError):  # a dtype that an intrinsic does not take
            verdict.refused = str(problem)
        else:
            verdict.wrong.append(f"build: {type(problem).__name__}: {problem}")
        yield verdict
        return
    for index, job in enumerate(jobs):
        _run(job.verdict, "compiled", executable[f"f{index}"], job.runs, job.infos)
        yield job.verdict


# ---------------------------------------------------------------- campaigns

ALWAYS = ("float32", "int64", "bool")


def campaign(names: Iterable[str], seeds: Iterable[int], whole: bool = True) -> Iterator[OpCall]:
    """Generated calls, and the known ones; not the whole: of each operator three dtypes and a third of the others."""
    wanted = set(names)
    for name in sorted(wanted & set(op_calls.GENERATORS)):
        for at, dtype in enumerate(op_calls.DTYPES):
            if whole or dtype in ALWAYS or (at + zlib.crc32(name.encode())) % 3 == 0:
                yield from (op_calls.call(name, dtype, seed) for seed in seeds)
    yield from (c for c in op_calls.corpus() if c.case.name in wanted)


Cell = tuple[str, str]  # operator, dtype


def contradicted(verdict: Verdict, claim: str) -> bool:
    """Whether a verdict says less than the claim of its cell."""
    mark = "s" if verdict.mode == STATIC else "d"
    if verdict.wrong:
        return bool(claim)
    return mark in claim and any(code in verdict.refused for code in ("E0444", "E0701"))


def cells(verdicts: Iterable[Verdict]) -> dict[Cell, str]:
    """What the verdicts allow to claim: `s` compiled with known extents, `d` with symbolic ones, `i` interpreted."""
    found: dict[Cell, set[str]] = {}
    wrong: set[Cell] = set()
    for verdict in verdicts:
        cell = verdict.name, verdict.call.dtype
        marks = found.setdefault(cell, set())
        if verdict.wrong:
            wrong.add(cell)
        if verdict.compiled:
            marks.add("s" if verdict.mode == STATIC else "d")
        elif verdict.interpreted and not verdict.refused:
            marks.add("i")
    return {cell: _claim(marks) for cell, marks in found.items() if cell not in wrong}


def _claim(marks: set[str]) -> str:
    return "".join(m for m in "sd" if m in marks) or "".join(marks)


PAGE = Path(__file__).resolve().parents[2] / "docs" / "ops-tables.md"
HEAD = f"| operator | {' | '.join(op_calls.DTYPES)} |\n|{' --- |' * (len(op_calls.DTYPES) + 1)}\n"
END = "\n## Parts"


def table(found: dict[Cell, str]) -> str:
    """One line per operator."""
    lines = [
        f"| `{name}` | {' | '.join(found.get((name, dtype), '') for dtype in op_calls.DTYPES)} |\n"
        for name in sorted(op_calls.subjects())
    ]
    return HEAD + "".join(lines)


def read_table(text: str) -> dict[Cell, str]:
    """The claims of the page."""
    claims: dict[Cell, str] = {}
    _, _, rest = text.partition(HEAD)
    for line in rest.partition(END)[0].splitlines():
        name, *marks = (part.strip() for part in line.strip("|").split("|"))
        claims.update({(name.strip("`"), d): m for d, m in zip(op_calls.DTYPES, marks, strict=True)})
    return claims


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the table of docs/ops-tables.md")
    parser.add_argument("--seeds", type=int, default=3, help="calls of each operator and dtype")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--opt-level", type=int, default=0)
    parser.add_argument("names", nargs="*", help="operators (default: all)")
    given = parser.parse_args(argv)
    seeds = range(given.first, given.first + given.seeds)
    verdicts = list(judge(campaign(given.names or op_calls.subjects(), seeds), given.opt_level))
    for verdict in verdicts:
        for text in verdict.wrong:
            print(f"{verdict.mode} {verdict.call}\n    {text}")
    kinds = {k: sum(bool(getattr(v, k)) for v in verdicts) for k in ("compiled", "interpreted", "refused", "wrong")}
    print(f"{len(verdicts)} calls: " + ", ".join(f"{n} {k}" for k, n in kinds.items()))
    if given.write:
        text = PAGE.read_text()
        before, _, rest = text.partition(HEAD)
        judged = {v.name for v in verdicts}
        kept = {cell: mark for cell, mark in read_table(text).items() if cell[0] not in judged}
        PAGE.write_text(before + table(kept | cells(verdicts)) + END + rest.partition(END)[2])
    return 1 if kinds["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())

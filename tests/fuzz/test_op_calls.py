"""Calls of operators with seeds that the suite does not have, for as long as there is time."""

from __future__ import annotations

import itertools
import json
import os
import random
import time

import mlcc
from mlcc.interp import run_function
from mlcc.ir import relax
from mlcc.reduce.arguments import parameter_names, random_arguments, symbol_names
from mlcc.reduce.outcomes import MACHINE_CODE, Run, copied
from mlcc.reduce.program import Program
from tests.fuzz.reduction import MOST_REDUCED, Check, note, reduce_program
from tests.generate import long_axes, op_calls
from tests.ops import numbers
from tests.ops.coverage import LOWERING, STATIC, Verdict, difference, function, judge
from tests.passes.arguments import leaves

SEED = int(os.environ.get("MLCC_FUZZ_SEED", "1"))


def test_random_calls_match_their_references(fuzz_seconds: float) -> None:
    rng = random.Random(SEED)
    names = sorted(op_calls.GENERATORS)
    end, judged, wrong = time.monotonic() + fuzz_seconds, 0, []
    for start in itertools.count(1000 * SEED, 8):
        calls = [op_calls.call(rng.choice(names), rng.choice(op_calls.DTYPES), start + i) for i in range(8)]
        for verdict in judge(calls):
            judged += 1
            for text in verdict.wrong:
                line = f"{verdict.mode} {verdict.call}: {text}"
                wrong.append(f"{line}\n  {reduce_call(verdict)}" if len(wrong) < MOST_REDUCED else line)
        if time.monotonic() > end:
            break
    print(f"\n{judged} calls of operators")
    assert not wrong, "\n".join(wrong)


def reduce_call(verdict: Verdict) -> str:
    """Reduce the function of a call that is wrong. Return a line with the path."""
    call = verdict.call
    module = function(call.static if verdict.mode == STATIC else call.symbolic)[1]
    return note(Program(module), Check("tests.fuzz.test_op_calls:check_program", (json.dumps(call.sizes),)))


def reduce_long(call: long_axes.LongCall, target: str, level: int) -> str:
    """Reduce the function of a call whose sums differ from the interpreter's. Return a line with the path."""
    module = call.module()
    arrays = dict(zip(parameter_names(module["main"]), call.arrays(), strict=True))
    tolerance = 4 * long_axes.ROUNDOFF[call.dtype]
    run = Run(target, level, MACHINE_CODE, rtol=tolerance, atol=tolerance, arrays=arrays)
    path = reduce_program(Program(module), run.outcome, ["mlcc", "bisect", "FILE", "-t", target, "-O", str(level)])
    return "  not reduced" if path is None else f"  a small program: {path}"


def check_program(program: Program, sizes: str) -> None:
    """Compare an operator, the one binding of a function, with its NumPy reference: interpreted, lowered, compiled.

    Arrays are random; symbols have the values of `sizes`, as JSON.
    """
    module = program.module
    main = module["main"]
    assert isinstance(main, relax.Function)
    values = {name: size for name, size in json.loads(sizes).items() if name in symbol_names(main)}
    arrays, _ = random_arguments(main, values)
    known = mlcc.run_passes(module, f"bind-symbolic-vars{{vars={json.dumps(values)}}}") if values else module
    bound = known["main"]
    assert isinstance(bound, relax.Function)
    (binding,) = (b for block in bound.body.blocks for b in block.bindings)
    call = binding.value  # type: ignore[attr-defined]
    wanted = numbers.expected(call, dict(zip(bound.params, arrays, strict=True)))
    infos = call.struct_info.fields if isinstance(call.struct_info, relax.TupleStructInfo) else (call.struct_info,)
    lowered = mlcc.run_passes(module, LOWERING)
    ways = {
        "interpreted": lambda: run_function(module, "main", copied(arrays)),
        "lowered": lambda: run_function(lowered, "main", copied(arrays)),
        "compiled": lambda: mlcc.load(mlcc.build(module, opt_level=0))["main"](*copied(arrays)),
    }
    for way, run in ways.items():
        found = difference(leaves(run()), wanted, infos, call.op.name.removeprefix("relax."))
        assert not found, f"{way}: {found}"


def test_long_accumulations_match_float64(fuzz_seconds: float) -> None:
    """Operators that accumulate, with up to 10,000 terms, against float64."""
    rng = random.Random(SEED)
    end, judged, wrong = time.monotonic() + fuzz_seconds, 0, []
    for seed in itertools.count(1000 * SEED):
        drawn = long_axes.calls(rng.choice(("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")), seed)
        target = rng.choice(("llvm", "llvm{cpu=native}", "cuda{arch=sm_80}", "cuda{arch=sm_90a}"))
        chosen, level = rng.sample(drawn, 4), rng.randrange(4)
        found = long_axes.differences(chosen, target, level)
        if found and len(wrong) < MOST_REDUCED:
            found += [reduce_long(c, target, level) for c in chosen if long_axes.differences([c], target, level)]
        wrong += found
        judged += 4
        if time.monotonic() > end:
            break
    print(f"\n{judged} calls with long axes")
    assert not wrong, "\n".join(wrong)

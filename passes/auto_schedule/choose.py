"""Asks the rules for a function, and keeps what each had to say."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from mlcc.errors import CompileError
from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.ir.versions import version_names
from mlcc.machine.cpu_tables import CpuFacts
from mlcc.machine.gpu_tables import GpuFacts
from mlcc.passes.auto_schedule.eligibility import why_left_alone
from mlcc.passes.auto_schedule.gpu.rules import GPU_RULES
from mlcc.passes.auto_schedule.kernel import AnyKernel, NotThis
from mlcc.passes.auto_schedule.offers import Offer, Wanted
from mlcc.passes.auto_schedule.rule import Rule
from mlcc.passes.auto_schedule.rules import RULES
from mlcc.passes.auto_schedule.widen_half import compute_halves_in_float32
from mlcc.passes.schedule.trace import Trace
from mlcc.progress import working
from mlcc.recursion import uncollected
from mlcc.relax.queries import all_bindings, tir_callee

Facts = CpuFacts | GpuFacts


@dataclass(frozen=True)
class Answer:
    """The outcome for one function: the rule that took it, and why the others did not.

    `rule` is None if none took it. `offers` are the choices that the rule made, `passed` the rules that refused, each
    with its reason, and `broken` is the exception of a rule that failed because of a bug.
    """

    name: str
    rule: str | None
    why: str
    choices: tuple[str, ...] = ()
    passed: tuple[tuple[str, str], ...] = ()
    broken: Exception | None = None
    func: tir.PrimFunc | None = None
    trace: Trace | None = None
    offers: tuple[Offer, ...] = ()


def answers(
    module: IRModule, facts: Facts | Callable[[tir.PrimFunc], Facts], rules: Sequence[Rule] | None = None
) -> list[Answer]:
    """Schedule each TIR function of a module by the first rule that takes it; return the outcomes.

    `rules` are by default those for the kind of machine. `facts` describe the machine, or return the facts for a
    function.
    """
    functions = {n: f for n, f in module.functions.items() if isinstance(f, tir.PrimFunc)}
    known = constant_parameters(module)
    outcomes: list[Answer] = []
    with uncollected():  # a fifth of the time went into looking for garbage among trees that are all in use
        for at, (name, func) in enumerate(functions.items()):
            own = facts(func) if callable(facts) else facts
            usual = GPU_RULES if isinstance(own, GpuFacts) else RULES
            with working("auto-schedule", name, at, len(functions)):
                outcomes.append(
                    answer(func, name, own, usual if rules is None else rules, known.get(name, frozenset()))
                )
            if at % _UNCOLLECTED == _UNCOLLECTED - 1:
                gc.collect(1)
    return outcomes


_UNCOLLECTED = 32  # functions after which garbage is looked for: of each there is 0.2 MB


def constant_parameters(module: IRModule) -> dict[str, frozenset[int]]:
    """The parameters for which every `call_tir` of a private function gives a constant, for it and its versions."""
    constants: dict[str, frozenset[int]] = {}
    for func in module.functions.values():
        for binding, _ in all_bindings(func.body) if isinstance(func, relax.Function) else ():
            call = binding.value  # type: ignore[attr-defined]
            name = tir_callee(call)
            callee = module.functions.get(name or "")
            if name is None or callee is None or not callee.is_private:
                continue
            given = call.args[1].fields if isinstance(call.args[1], relax.Tuple) else ()
            constant = frozenset(n for n, a in enumerate(given) if isinstance(a, relax.Constant))
            for one in (name, *version_names(callee)):
                constants[one] = constants.get(one, constant) & constant
    return constants


def answer(
    func: tir.PrimFunc, name: str, facts: Facts, rules: Sequence[Rule] = RULES,
    constants: frozenset[int] = frozenset(),
) -> Answer:  # fmt: skip
    """Schedule a function by the first rule that takes it, unless it is left alone. `constants`: see `Kernel.of`."""
    alone = why_left_alone(func)
    if alone is not None:
        return Answer(name, None, f"left alone: {alone}")
    return ask(prepared(func, name, facts, constants), rules)


def ask(start: AnyKernel[Any], rules: Sequence[Rule], wanted: Wanted | None = None) -> Answer:
    """Schedule a copy of a `prepared` kernel by the first of `rules` that takes it. `wanted`: the choices requested."""
    name = start.name
    passed: list[tuple[str, str]] = []
    broken: Exception | None = None
    for rule in rules:
        kernel = start.fresh(wanted)
        try:
            why = rule.function()(kernel)
            kernel.sch.mark_scheduled(func_name=name)
        except NotThis as exc:
            passed.append((rule.name, str(exc)))
        except CompileError as exc:
            first = exc.diagnostics[0]
            passed.append((rule.name, f"a step was refused: {first.code}: {first.message}"))
        except (RecursionError, MemoryError):
            raise
        except Exception as exc:
            # a bug of a rule must not cost anyone their program: it is compiled by the rules that remain
            broken = broken or exc
            passed.append((rule.name, f"failed: {type(exc).__name__}: {exc}"))
        else:
            trace, offers = kernel.sch.trace.simplified(), tuple(kernel.offers)
            return Answer(name, rule.name, why, tuple(kernel.used), tuple(passed), broken, kernel.func, trace, offers)
    return Answer(name, None, "no rule takes it", (), tuple(passed), broken)


def prepared(func: tir.PrimFunc, name: str, facts: Facts, constants: frozenset[int] = frozenset()) -> AnyKernel[Facts]:
    """A function that nobody has scheduled as rules see it. `constants`: see `Kernel.of`."""
    kernel = AnyKernel.of(func, name, facts, constants)
    wide = kernel.fresh()
    try:
        return wide if compute_halves_in_float32(wide) else kernel
    except CompileError:  # a step was refused: it stays as it is
        return kernel


def report(found: Sequence[Answer], origins: Mapping[str, str] = MappingProxyType({})) -> str:
    """List for each function the rule that took it and why, and the reasons of the rules that did not.

    `origins` names the part of the source model that a function comes from.
    """
    lines = ["# --- why schedule"]
    for one in found:
        lines.append(f"{one.name}: {one.why}" if one.rule is None else f"{one.name}: rule {one.rule}: {one.why}")
        lines += [f"  from {origins[one.name]}"] if one.name in origins else []
        lines += [f"  {choice}" for choice in one.choices]
        lines += [f"  not {rule}: {why}" for rule, why in one.passed]
    return "\n".join(lines) + "\n"

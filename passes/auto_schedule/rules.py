"""The rules for CPUs, in the order in which they are tried; the first that applies schedules the function.

`rules_for` has those from outside as well: registered ones, and the entry points of installed packages.
"""

from __future__ import annotations

from mlcc import plugins
from mlcc.errors import CompileError, error
from mlcc.machine.cpu_tables import CpuFacts
from mlcc.machine.gpu_tables import GpuFacts
from mlcc.options.typed import is_kebab
from mlcc.passes.auto_schedule.gpu.rules import GPU_RULES
from mlcc.passes.auto_schedule.rule import Rule

RULES: tuple[Rule, ...] = (
    Rule("winograd", "winograd:winograd"),
    Rule("fixed-point", "fixed_point:fixed_point"),
    Rule("decoded", "decoded:decoded"),
    Rule("matvec", "matvec:matvec"),
    Rule("matmul", "matmul:matmul"),
    Rule("dots", "dot_products:dots"),
    Rule("conv", "conv:conv"),
    Rule("transposes", "transposes:transposes"),
    Rule("elementwise", "elementwise:elementwise"),
    Rule("rows", "rows:rows"),
    Rule("column-panels", "column_panels:column_panels"),
    Rule("columns", "columns:columns"),
    Rule("fallback", "fallback:fallback"),
)
_registered: dict[str, Rule] = {}


def register(rule: Rule) -> None:
    """Register a rule. Raises ValueError if its name is taken or it is no complete rule."""
    problem = _invalid(rule)
    if problem is not None:
        raise ValueError(f"the rule {problem}")
    other = plugins.installed(plugins.RULES).get(rule.name)
    if rule.name in _registered or _is_own(rule.name) or other is not None:
        raise plugins.NameTaken(f"there is a rule `{rule.name}` already")
    _registered[rule.name] = rule
    plugins.on_unload(lambda: unregister(rule.name))


def unregister(name: str) -> None:
    """Remove a registered rule."""
    _registered.pop(name, None)


def rules_for(facts: CpuFacts | GpuFacts) -> tuple[Rule, ...]:
    """Return the rules for a machine in the order in which they are tried.

    Raises CompileError E0551 or E0552 for a rule of an installed package that cannot be used.
    """
    gpu = isinstance(facts, GpuFacts)
    rules = list(GPU_RULES if gpu else RULES)
    for rule in [*_registered.values(), *map(_installed, plugins.installed(plugins.RULES))]:
        if rule.gpu == gpu:
            names = [own.name for own in (GPU_RULES if gpu else RULES)]
            first = rule.before or names[0]
            rules.insert(next(n for n, one in enumerate(rules) if one.name == first), rule)
    return tuple(rules)


def _installed(name: str) -> Rule:
    if _is_own(name):
        help = "uninstall its package, or have the rule renamed there"
        raise CompileError(error("E0551", f"an installed package has a rule `{name}`, and so has mlcc", help=help))

    def check(rule: object) -> str | None:
        problem = _invalid(rule)
        return problem or (f"calls itself `{rule.name}`" if rule.name != name else None)  # type: ignore[attr-defined]

    rule: Rule = plugins.load_installed(plugins.RULES, name, check)
    return rule


def _is_own(name: str) -> bool:
    return any(rule.name == name for rule in (*RULES, *GPU_RULES))


def _invalid(rule: object) -> str | None:
    """Return what is wrong with a rule from outside, to follow its name; None if nothing is."""
    if not isinstance(rule, Rule) or not callable(rule.place):
        return "is no mlcc.passes.auto_schedule.rule.Rule of a function"
    if not is_kebab(rule.name):
        return f"needs a name of lower-case words with dashes, not {rule.name!r}"
    known = [own.name for own in (GPU_RULES if rule.gpu else RULES)]
    if rule.before and rule.before not in known:
        return f"is to stand before `{rule.before}`, which is none of {', '.join(known)}"
    return None

"""`python -m tests.frontend.onnx_suite`: the whole suite; `--write` puts the result into the table of docs/onnx.md."""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from tests.frontend.onnx_suite import cases
from tests.frontend.onnx_suite.report import write
from tests.frontend.onnx_suite.verdicts import State, Verdict, compiled, interpreted, judge


def main() -> int:
    """Run the cases that are asked for. Returns 1 if one gave wrong numbers or crashed."""
    parser = argparse.ArgumentParser(prog="python -m tests.frontend.onnx_suite", description=__doc__)
    parser.add_argument(
        "--mode", choices=cases.MODES, action="append", help="shapes as initializers, as inputs, or both"
    )
    parser.add_argument("--operator", action="append", help="only cases of this operator")
    parser.add_argument("--case", action="append", help="only this case")
    parser.add_argument(
        "--opt-level", type=int, help="compile at this level; without, the interpreter runs the modules"
    )
    parser.add_argument("--show", type=int, default=400, help="how many cases that do not pass are listed")
    parser.add_argument("--plain", action="store_true", help="only tensors of plain dtypes")
    parser.add_argument("--write", action="store_true", help="put the result into docs/onnx.md")
    options = parser.parse_args()
    build = interpreted if options.opt_level is None else compiled(options.opt_level)
    found = []
    for case in cases.all_cases():
        if options.case and case.name not in options.case:
            continue
        if options.operator and case.operator not in options.operator or options.plain and not case.plain:
            continue
        found += [judge(case, mode, build) for mode in options.mode or cases.MODES]
    _show(found, options.show)
    if options.write:
        write(found)
    return int(any(v.state in (State.WRONG, State.CRASHED) for v in found))


def _show(found: list[Verdict], limit: int) -> None:
    failed = [v for v in found if v.state is not State.PASSED]
    order = (State.WRONG, State.CRASHED, State.REFUSED)
    for v in sorted(failed, key=lambda v: (order.index(v.state), v.case.operator))[:limit]:
        print(f"{v.state.value:13} {v.mode:8} {v.case.operator:22} {v.case.name}: {v.reason[:200]}")
    for mode in cases.MODES:
        counted = Counter(v.state.value for v in found if v.mode == mode)
        plain = [v for v in found if v.mode == mode and v.case.plain and v.case.group == "node"]
        passed = sum(v.state is State.PASSED for v in plain)
        if counted:
            print(f"{mode}: {dict(counted)}; node cases of plain dtypes: {passed} of {len(plain)}")


if __name__ == "__main__":
    sys.exit(main())

"""What happens to a program: a finding, a crash, wrong results, or nothing; found out in a process of its own."""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import mlcc
from mlcc import backends
from mlcc.driver import run_compiled, run_emulated
from mlcc.errors import MlccError
from mlcc.ir.module import IRModule
from mlcc.reduce.arguments import named_arguments, random_arguments
from mlcc.reduce.program import Program

OK, DIFFERS, TIMEOUT = "ok", "differs", "timeout"
CRASH = "crash"  # begins the outcome of a crash
MACHINE_CODE, PASSES, CHECKS = "machine code", "passes", "checks"  # what judges the results of a program
CODE_GENERATION = "code generation"  # the program is compiled, and not run


@dataclass(frozen=True)
class Run:
    """How a program is run: the target and level that it is compiled for, and how a function of it is judged.

    `judged_by`: MACHINE_CODE and PASSES compare the results of compiled code, or of the interpreter after the passes,
    with those of the interpreter before them, within `rtol` and `atol`; CHECKS looks for invalid accesses and races
    after the passes, and makes sure that there are none without the last pass; CODE_GENERATION compiles after the
    passes. The function is `func`, or the only public one if there is none of that name. `sizes` are values of symbols
    in shapes, `arrays` those of parameters by name, where they have their shapes and dtypes; others are random.
    `folder` is where files that passes name are looked for, `script_folder` those of a script, if it is another one.
    Code for a GPU is emulated.
    """

    target: str = "llvm{cpu=native}"
    level: int | None = None
    judged_by: str | None = None
    func: str = "main"
    rtol: float = 1e-4
    atol: float = 1e-5
    sizes: dict[str, int] = field(default_factory=dict)
    folder: str = "."
    arrays: Mapping[str, Any] = field(default_factory=dict)
    script_folder: str | None = None

    def outcome(self, program: Program) -> str:
        """Run a program here, and say what happens: OK, the code of the first error, DIFFERS, or a crash by its place.

        A crash is named by the class of its exception and the innermost function of mlcc that it passed through.
        """
        try:
            return self._outcome(program)
        except MlccError as exc:
            return str(exc.diagnostics[0].code)
        except Exception as exc:  # noqa: BLE001 - what is looked for
            return describe_crash(exc)

    def _outcome(self, program: Program) -> str:
        from mlcc.verify import check

        module = program.module
        check(module)
        if program.script is not None:
            folder = self.folder if self.script_folder is None else self.script_folder
            module = mlcc.apply_schedule(module, "\n".join(program.script) + "\n", folder=folder)
        passes = None if program.passes is None else ",".join(program.passes)
        if self.judged_by == MACHINE_CODE:
            return self._compared(program.module, module, passes)
        if self.judged_by == CODE_GENERATION:
            mlcc.build(module, self.target, self.level, passes)
            return OK
        if self.judged_by == PASSES:
            return self._interpreted(program.module, self._after(module, program.passes or ()))
        if self.judged_by == CHECKS:
            return self._checked(program.module, module, program.passes or ())
        if passes is not None:
            mlcc.run_passes(module, passes, target=self.target, folder=self.folder)
        elif program.script is None:
            mlcc.build(module, self.target, self.level)
        return OK

    def _compared(self, original: IRModule, module: IRModule, passes: str | None) -> str:
        from mlcc.interp import run_function
        from mlcc.loading import load
        from mlcc.passes.check_each import CheckEach

        func = self.called(original)
        arrays, written = random_arguments(original[func], self.sizes, self.arrays)
        expected, results = (copied(arrays) for _ in range(2))
        reference = run_function(original, func, expected)
        artifact = mlcc.build(module, self.target, self.level, passes)
        returned = load(artifact, emulate=backends.of(self.target).emulated)[func](*results)
        compared = CheckEach({}, func, self.rtol, self.atol)
        if written:
            return DIFFERS if compared.difference([results[i] for i in written], [expected[i] for i in written]) else OK
        return DIFFERS if compared.difference(returned, reference) else OK

    def called(self, module: IRModule) -> str:
        """Return the name of the function to call."""
        public = [name for name, func in module.functions.items() if not func.is_private]
        return self.func if self.func in module or len(public) != 1 else public[0]

    def _interpreted(self, before: IRModule, after: IRModule) -> str:
        """Compare the results before and after the passes."""
        from mlcc.passes.check_each import CheckEach

        func = self.called(before)
        emulated = partial(run_emulated, self.target) if backends.of(self.target).emulated else None
        arrays = named_arguments(before[func], self.sizes, self.arrays)
        check = CheckEach(arrays, func, self.rtol, self.atol, emulated=emulated)
        check.expected = check.results(before)
        return DIFFERS if check.compare(check.results(after)) else OK

    def _checked(self, original: IRModule, module: IRModule, passes: Sequence[str]) -> str:
        """Run a module after passes with checked accesses; if that fails, also without the last pass, or the script."""
        func = self.called(module)
        arrays = random_arguments(original[func], self.sizes, self.arrays)[0]
        run = partial(run_emulated, self.target) if backends.of(self.target).emulated else run_compiled
        before, after = original, module
        if passes:
            before = self._after(module, passes[:-1])
            after = self._after(before, passes[-1:])
        try:
            run(after, func, copied(arrays))
        except MlccError:
            if (passes or module is not original) and self._fails(run, before, func, arrays):
                return f"fails without the {'last pass' if passes else 'script'}"
            raise
        return OK

    def _fails(self, run: Any, module: IRModule, func: str, arrays: list[Any]) -> bool:
        try:
            run(module, func, copied(arrays))
        except MlccError:
            return True
        return False

    def _after(self, module: IRModule, passes: Sequence[str]) -> IRModule:
        return mlcc.run_passes(module, ",".join(passes), target=self.target, folder=self.folder, verify_each=False)


def copied(arguments: Sequence[Any]) -> list[Any]:
    """Return the arguments with copies of the arrays."""
    return [a.copy() if hasattr(a, "copy") else a for a in arguments]


def describe_crash(exc: BaseException) -> str:
    """Return the outcome for an exception that no diagnostic reports."""
    while exc.__cause__ is not None:
        exc = exc.__cause__
    root = os.path.dirname(os.path.dirname(os.path.abspath(mlcc.__file__)))
    frames = [f for f in traceback.extract_tb(exc.__traceback__) if os.path.abspath(f.filename).startswith(root)]
    place = f" in {frames[-1].name} ({os.path.relpath(frames[-1].filename, root)})" if frames else ""
    return f"{CRASH}: {type(exc).__name__}{place}"


# ---------------------------------------------------------------- processes


def run_apart(job: Callable[[], Any], seconds: float) -> Any:
    """Return the result of a job that runs in a forked process, or how that process ended: by a signal, or TIMEOUT.

    What the job writes to the standard streams is dropped, and its temporary files are removed. Modules of mlcc that
    the job imported are imported here as well, so that the next job finds them.
    """
    scratch = tempfile.mkdtemp(prefix="mlcc-reduce-")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _run_job(job, writing, scratch)
    os.close(writing)
    try:
        answer = _read_until(reading, time.monotonic() + seconds)
        if answer is None:
            return TIMEOUT
        _, status = os.waitpid(child, 0)
        child = 0
        number = os.waitstatus_to_exitcode(status)
        if number < 0:
            return f"{CRASH}: {_signal_name(-number)}"
        if not answer:
            return f"{CRASH}: exit code {number}"
        imported, result = pickle.loads(answer)  # noqa: S301 - of our own child
        _import(imported)
        return result
    finally:
        os.close(reading)
        if child:
            _kill_group(child)
            with contextlib.suppress(OSError):
                os.waitpid(child, 0)
        shutil.rmtree(scratch, ignore_errors=True)


def _import(names: Sequence[str]) -> None:
    for name in names:
        with contextlib.suppress(Exception):  # the job may have had other folders to import from
            importlib.import_module(name)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # one of the real-time signals
        return f"signal {number}"


def _kill_group(leader: int) -> None:
    """Kill a process and those that it started, as far as they are in its group."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(OSError):
            kill(leader, signal.SIGKILL)


def _read_until(descriptor: int, end: float) -> bytes | None:
    """Read until the writers have closed; None if that takes too long."""
    parts: list[bytes] = []
    while True:
        ready, _, _ = select.select([descriptor], [], [], max(end - time.monotonic(), 0))
        if not ready:
            return None
        part = os.read(descriptor, 1 << 16)
        if not part:
            return b"".join(parts)
        parts.append(part)


def _run_job(job: Callable[[], Any], writing: int, scratch: str) -> None:
    """Run the job in the child and exit: control never returns to the parent's code."""
    try:
        import faulthandler
        import resource

        os.setsid()
        faulthandler.disable()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        tempfile.tempdir = scratch
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        before = set(sys.modules)
        result = job()
        imported = [name for name in sys.modules if name not in before and name.startswith("mlcc.")]
        os.write(writing, pickle.dumps((imported, result)))
        os._exit(0)
    finally:
        os._exit(70)


# ---------------------------------------------------------------- commands


def command_status(command: str, path: str, seconds: float) -> str:
    """Return the exit status of a shell command on a file, whose path replaces `{}` or is appended, or TIMEOUT."""
    import shlex

    line = command.replace("{}", shlex.quote(path)) if "{}" in command else f"{command} {shlex.quote(path)}"
    process = subprocess.Popen(
        line, shell=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    try:
        return f"exit status {process.wait(seconds)}"
    except subprocess.TimeoutExpired:
        return TIMEOUT
    finally:
        _kill_group(process.pid)
        process.wait()

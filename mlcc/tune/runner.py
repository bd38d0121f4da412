"""Runners of candidates, and their results, under TVM's names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Never

from mlcc.tune.arg_info import ArgInfo
from mlcc.tune.builder import refuse_hooks


@dataclass(frozen=True)
class RunnerInput:
    """A built file, the device type (`cpu` or `cuda`), and the kernel's arguments. TVM: `RunnerInput`."""

    artifact_path: str
    device_type: str
    args_info: Sequence[ArgInfo]


@dataclass(frozen=True)
class RunnerResult:
    """Seconds of the runs of a candidate, or None with an error message. TVM: `RunnerResult`."""

    run_secs: Sequence[float] | None
    error_msg: str | None = None


class RunnerFuture:
    """The pending result of a candidate. A user's subclass defines both methods. TVM: `RunnerFuture`."""

    def done(self) -> bool:
        """Return True if the result is available."""
        raise NotImplementedError

    def result(self) -> RunnerResult:
        """The result, once it is known."""
        raise NotImplementedError


class EvaluatorConfig(NamedTuple):
    """Repetition counts of TVM's runners. mlcc's runners sample in rounds beside the baseline instead.

    `enable_cpu_cache_flush` makes a local runner pass arguments that no cache holds.
    """

    number: int = 3
    repeat: int = 1
    min_repeat_ms: int = 100
    enable_cpu_cache_flush: bool = False


class RPCConfig(NamedTuple):
    """The address of a TVM tracker. See `RPCRunner`."""

    tracker_host: str | None = None
    tracker_port: int | str | None = None
    tracker_key: str | None = None
    session_priority: int = 1
    session_timeout_sec: int = 10


class Runner:
    """Runs candidates. A user's subclass defines `run`. TVM: `Runner`, `PyRunner`."""

    def run(self, runner_inputs: Sequence[RunnerInput]) -> Sequence[RunnerFuture]:
        """A future for each candidate, in order."""
        raise NotImplementedError

    @staticmethod
    def create(kind: Any = "local", *args: Any, **kwargs: Any) -> Runner:
        """Create a runner by name: `local`; for `rpc` see `RPCRunner`. Raises ValueError for other names."""
        named: dict[str, type[Runner]] = {"local": LocalRunner, "rpc": RPCRunner}
        if isinstance(kind, Runner):
            return kind
        if kind not in named:
            raise ValueError(f"`runner` must be 'local' or a Runner, not {kind!r}")
        return named[kind](*args, **kwargs)


class LocalRunner(Runner):
    """Runs candidates on this machine, in processes that check their results too; `timeout_sec` is the CPU time that
    one step of a candidate may take. TVM: `LocalRunner`.

    `cooldown_sec` and `alloc_repeat` change nothing. Raises ValueError for functions to run with.
    """

    def __init__(
        self, timeout_sec: float = 30, evaluator_config: EvaluatorConfig | None = None, cooldown_sec: float = 0.0,
        alloc_repeat: int = 1, f_alloc_argument: Any = None, f_run_evaluator: Any = None, f_cleanup: Any = None,
        initializer: Any = None,
    ) -> None:  # fmt: skip
        refuse_hooks(
            f_alloc_argument=f_alloc_argument, f_run_evaluator=f_run_evaluator, f_cleanup=f_cleanup,
            initializer=initializer,
        )  # fmt: skip
        self.timeout_sec = timeout_sec
        self.evaluator_config = evaluator_config or EvaluatorConfig()
        self.cooldown_sec, self.alloc_repeat = cooldown_sec, alloc_repeat


class RPCRunner(Runner):
    """TVM's runner over RPC servers, which is not supported: raises ValueError that names the alternative."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _raise_no_rpc()


def _raise_no_rpc() -> Never:
    raise ValueError(
        "RPC servers are not supported: to measure on other machines, start Dask workers there and pass "
        "mlcc.tune.measure.cluster.DaskRunner('tls://scheduler:8786'), or `mlcc tune --cluster tls://scheduler:8786`"
    )


PyRunner = Runner
PyRunnerFuture = RunnerFuture
create = Runner.create

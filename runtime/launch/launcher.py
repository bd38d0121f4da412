"""Run the steps of one function of a plan, directly or from a recording for the same addresses and values."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from mlcc.runtime.launch.loaded import DeviceModule, LoadedPlan
from mlcc.runtime.launch.plan import FunctionPlan
from mlcc.runtime.launch.recording import Recorder, Recording
from mlcc.runtime.launch.run import Run
from mlcc.runtime.launch.scalars import Values

_MAX_RECORDINGS = 8


class Launcher:
    """One function of a plan, its module on the device, and recordings of recent calls."""

    def __init__(self, plan: FunctionPlan, module: DeviceModule) -> None:
        self.plan = plan
        self.module = module
        self._recordings: OrderedDict[Any, Recording] = OrderedDict()

    def run(self, loaded: LoadedPlan, addresses: Sequence[int], room: int, workspace: int) -> Run:
        """Return a run over arguments at `addresses`, with the workspace at `room`, followed by error records."""
        return Run(loaded, self.plan, addresses, room, workspace)

    def recorded(
        self, loaded: LoadedPlan, addresses: Sequence[int], room: int, workspace: int, values: Values
    ) -> Recording:
        """Return the cached recording for these addresses and values, or record one. Raises Failure."""
        key = (loaded.generation, room, tuple(addresses), tuple(values.items()))
        recording = self._recordings.get(key)
        if recording is not None:
            self._recordings.move_to_end(key)
            return recording
        run, final_values = self.run(loaded, addresses, room, workspace), dict(values)
        recorder = run.sink = Recorder()
        run(final_values)
        recorder.blocks = run.blocks
        recording = self._recordings[key] = Recording(recorder, final_values, loaded.device)
        if len(self._recordings) > _MAX_RECORDINGS:
            self._recordings.popitem(last=False)
        return recording

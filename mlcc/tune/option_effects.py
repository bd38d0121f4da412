"""An additive model of each option's effect on a plan's log time, fitted to measurements."""

from __future__ import annotations

from collections.abc import Mapping

SHRINKAGE = 1.0  # pseudo-measurements of no effect that are averaged in
SWEEPS = 8

Options = Mapping[str, object]


class OptionEffects:
    """The effect of each option on the logarithm of the time, relative to the options of a start plan.

    An effect is the mean residual, without the other options' effects, of the plans that have the option, shrunk
    towards 0 if they are few (backfitting). Sums follow the order of measurements, so that results are equal on every
    machine.
    """

    def __init__(self, start: Options) -> None:
        self._start = start
        self._samples: list[tuple[list[tuple[str, object]], float]] = []
        self._effects: dict[tuple[str, object], float] = {}

    def add(self, options: Options, residual: float) -> None:
        """Add a measurement: the logarithm of a plan's time relative to its expected time."""
        self._samples.append((self._changed_options(options), residual))

    def fit(self) -> None:
        """Refit the effects to all measurements."""
        by_option: dict[tuple[str, object], list[int]] = {}
        for number, (changed, _) in enumerate(self._samples):
            for option in changed:
                by_option.setdefault(option, []).append(number)
        effects = dict.fromkeys(by_option, 0.0)
        for _ in range(SWEEPS):
            for option, numbers in by_option.items():
                rest = 0.0
                for number in numbers:
                    changed, residual = self._samples[number]
                    rest += residual - sum(effects[other] for other in changed if other != option)
                effects[option] = rest / (len(numbers) + SHRINKAGE)
        self._effects = effects

    def sum(self, options: Options) -> float:
        """The total effect of a plan's options; unknown options have none."""
        return sum(self._effects.get(option, 0.0) for option in self._changed_options(options))

    def _changed_options(self, options: Options) -> list[tuple[str, object]]:
        return [(name, value) for name, value in options.items() if self._start.get(name) != value]

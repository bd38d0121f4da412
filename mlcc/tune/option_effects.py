"""What each option of a space is worth, learned from measurements of plans: a model of a few numbers."""

from __future__ import annotations

from collections.abc import Mapping

SHRINK = 1.0  # measurements that say nothing, with which those of an option are averaged
SWEEPS = 8

Options = Mapping[str, object]


class OptionEffects:
    """The logarithms of what options do to the time, each by itself, relative to those of a plan to begin with.

    An effect is the mean of what the others leave to be explained of the plans that have the option, shrunk by how few
    there are. Plain sums in the order of the measurements: the same on every machine.
    """

    def __init__(self, start: Options) -> None:
        self._start = start
        self._samples: list[tuple[list[tuple[str, object]], float]] = []
        self._effects: dict[tuple[str, object], float] = {}

    def add(self, options: Options, residual: float) -> None:
        """Take in a measurement: the logarithm of what a plan takes relative to what was expected of it."""
        self._samples.append((self._changed(options), residual))

    def fit(self) -> None:
        """Bring the effects up to date."""
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
                effects[option] = rest / (len(numbers) + SHRINK)
        self._effects = effects

    def sum(self, options: Options) -> float:
        """The effects of all options of a plan; those that nothing is known of have none."""
        return sum(self._effects.get(option, 0.0) for option in self._changed(options))

    def _changed(self, options: Options) -> list[tuple[str, object]]:
        return [(name, value) for name, value in options.items() if self._start.get(name) != value]

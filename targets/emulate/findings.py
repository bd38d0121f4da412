"""Findings of checked kernels, as diagnostics with both places and both threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mlcc.errors import Diagnostic, Label, error
from mlcc.targets.emulate import checks
from mlcc.targets.emulate.checks import Checks, Site

MOST = 20  # findings of a launch


@dataclass(slots=True)
class Findings:
    """Takes the reports of one launch: the first of each kind and pair of places."""

    checks: Checks
    grid: Sequence[int]
    block: Sequence[int]
    sizes: Sequence[int]  # bytes of the roots
    _first: dict[tuple[int, int, int], tuple[int, int, int]] = field(default_factory=dict)

    def take(self, kind: int, site: int, me: int, index: int, other_site: int, other: int) -> None:
        """A report of a kernel: threads count from 1."""
        self._first[kind, site, other_site] = me, index, other

    def diagnostics(self) -> list[Diagnostic]:
        """Return a diagnostic for each kind and pair of places, without uninitialised reads that a race explains."""
        races = {site for kind, *sites in self._first if kind < checks.UNWRITTEN for site in sites}
        seen = set[tuple[int, frozenset[int]]]()
        reports = []
        for (kind, site, other_site), (me, index, other) in self._first.items():
            pair = 1 if kind == checks.WRITE_READ else kind, frozenset((site, other_site))
            if (kind == checks.UNWRITTEN and site in races) or pair in seen:
                continue
            seen.add(pair)
            reports.append(
                self._diagnostic(kind, self.checks.sites[site], me, index, self.checks.sites[other_site], other)
            )
        return reports[:MOST]

    def _diagnostic(self, kind: int, site: Site, me: int, index: int, other: Site, them: int) -> Diagnostic:
        mine, theirs = self._thread(me), self._thread(thread_of(them))
        copied = them < 0  # the copy engine did it, for a thread
        if kind == checks.DIVERGED:
            message = "a barrier that not all of its threads reach"
            help = "take the barrier out of the condition or loop, or make that the same for all of the threads"
            return error("E0740", message, site.span, f"{mine} waits here", help=help,
                         related=(Label(other.span, f"{theirs} goes another way here"),))  # fmt: skip
        if kind == checks.ABSENT:
            message = "a shuffle whose mask names lanes that do not take part"
            help = "pass T.tvm_warp_activemask(), or take the shuffle out of the condition or loop"
            return error("E0745", message, site.span, f"{mine} takes part", help=help,
                         related=(Label(other.span, f"{theirs} goes another way here"),))  # fmt: skip
        assert site.root is not None
        name = site.root.name
        what = f"`{name}[{index}]`"
        if kind == checks.ENDLESS:
            message = f"a wait at the barrier {what} for a phase that is not complete"
            help = "nothing before it in the text completes the phase of this parity: arrivals or bytes are missing"
            return error("E0746", message, site.span, f"{mine} waits here", help=help)
        if kind == checks.MISUSED:
            wrong = "is no barrier yet" if them == 2 else "gets more arrivals or bytes than its phase counts"
            help = "a barrier is initialised once, and a phase has as many arrivals as that says"
            return error("E0739", f"{what} {wrong}", site.span, f"{mine} comes here", help=help)
        if kind == checks.OUTSIDE:
            count = self.sizes[site.root.number] // site.root.granule
            where = f"{mine} {site.what}s {what}"
            return error("E0744", f"{what} is outside of `{name}`, which has {count} elements", site.span, where)
        if kind == checks.UNWRITTEN:
            message = f"{what} is read before anything is written to it"
            return error("E0743", message, site.span, f"{mine} reads it")
        apart = self._block_of(me) != self._block_of(thread_of(them))
        between = "blocks" if apart else "threads"
        if kind == checks.WRITE_WRITE:
            code, message = "E0741", f"two {between} write different values to {what}, in no order"
        else:
            code, message = "E0742", f"{what} is read and written by two {between}, in no order"
        help = 'a barrier between the two, T.tvm_storage_sync("shared"), orders threads of a block'
        if apart:
            help = "blocks of a launch run in any order: write to places of their own, add by atomics, or launch twice"
        if copied:
            help = "threads wait for a copy at its barrier, T.ptx_wait_barrier(barrier, parity), before they use it"
            theirs = f"a copy that {theirs} asked for"
        label = Label(other.span, f"{theirs} {other.what}s it here")
        return error(code, message, site.span, f"{mine} {site.what}s it", related=(label,), help=help)

    # ------------------------------------------------------------ threads

    def _block_of(self, me: int) -> int:
        return (me - 1) // (self.block[0] * self.block[1] * self.block[2])

    def _thread(self, me: int) -> str:
        count = self.block[0] * self.block[1] * self.block[2]
        thread, block = (me - 1) % count, (me - 1) // count
        return f"thread {_place(thread, self.block)} of block {_place(block, self.grid)}"


def thread_of(them: int) -> int:
    """The thread of a mark, without the sign of the copy engine."""
    return them & 0x7FFFFFFF


def _place(number: int, extents: Sequence[int]) -> str:
    """A place by its coordinates, x first; those of the axes that are in use."""
    x, y, _ = extents
    if extents[1] == extents[2] == 1:
        return str(number)
    place = [number % x, number // x % y, number // (x * y)]
    return f"({', '.join(map(str, place if extents[2] > 1 else place[:2]))})"

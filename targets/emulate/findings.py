"""Findings of checked kernels, as diagnostics with both places and both threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mlcc.errors import Diagnostic, Label, error
from mlcc.targets.emulate import checks
from mlcc.targets.emulate.checks import Checks, Site

MAX_FINDINGS = 20  # of one launch


@dataclass(slots=True)
class Findings:
    """Collect the reports of one launch: the first of each kind and pair of sites."""

    checks: Checks
    grid: Sequence[int]
    block: Sequence[int]
    sizes: Sequence[int]  # of the roots, in bytes
    _first: dict[tuple[int, int, int], tuple[int, int, int]] = field(default_factory=dict)

    def record(self, kind: int, site: int, me: int, index: int, other_site: int, other: int) -> None:
        """Record a report of a kernel; threads count from 1."""
        self._first[kind, site, other_site] = me, index, other

    def diagnostics(self) -> list[Diagnostic]:
        """Return a diagnostic for each kind and pair of sites, without uninitialised reads that a race explains."""
        races = {site for kind, *sites in self._first if kind < checks.UNINITIALISED for site in sites}
        seen = set[tuple[int, frozenset[int]]]()
        reports = []
        for (kind, site, other_site), (me, index, other_mark) in self._first.items():
            pair = 1 if kind == checks.WRITE_READ else kind, frozenset((site, other_site))
            if (kind == checks.UNINITIALISED and site in races) or pair in seen:
                continue
            seen.add(pair)
            reports.append(
                self._diagnostic(kind, self.checks.sites[site], me, index, self.checks.sites[other_site], other_mark)
            )
        return reports[:MAX_FINDINGS]

    def _diagnostic(self, kind: int, site: Site, me: int, index: int, other: Site, other_mark: int) -> Diagnostic:
        mine, theirs = self._thread(me), self._thread(thread_of_mark(other_mark))
        by_copy_engine = other_mark < 0  # on behalf of a thread
        if kind == checks.DIVERGED:
            message = "this barrier is not reached by all of its threads"
            help = "move the barrier out of the condition or loop, or make the condition uniform across the threads"
            return error("E0740", message, site.span, f"{mine} waits here", help=help,
                         related=(Label(other.span, f"{theirs} diverges here"),))  # fmt: skip
        if kind == checks.MISSING_LANE:
            message = "the mask of this shuffle names lanes that are not active"
            help = "pass T.tvm_warp_activemask(), or move the shuffle out of the condition or loop"
            return error("E0745", message, site.span, f"{mine} is active", help=help,
                         related=(Label(other.span, f"{theirs} diverges here"),))  # fmt: skip
        assert site.root is not None
        name = site.root.name
        what = f"`{name}[{index}]`"
        if kind == checks.NEVER_COMPLETE:
            message = f"this wait at the barrier {what} never ends: its phase is not completed"
            help = "no earlier statement completes the phase of this parity: arrivals or bytes are missing"
            return error("E0746", message, site.span, f"{mine} waits here", help=help)
        if kind == checks.BARRIER_MISUSE:
            wrong = (
                "is not initialised as a barrier"
                if other_mark == 2
                else "receives more arrivals or bytes than its phase expects"
            )
            help = "initialise the barrier once, with the number of arrivals of each phase"
            return error("E0739", f"{what} {wrong}", site.span, f"{mine} is here", help=help)
        if kind == checks.OUT_OF_BOUNDS:
            count = self.sizes[site.root.number] // site.root.granule
            where = f"{mine} {site.what}s {what}"
            return error("E0744", f"{what} is out of bounds: `{name}` has {count} elements", site.span, where)
        if kind == checks.UNINITIALISED:
            message = f"{what} is read before it is written"
            return error("E0743", message, site.span, f"{mine} reads it")
        in_other_block = self._block_of(me) != self._block_of(thread_of_mark(other_mark))
        between = "blocks" if in_other_block else "threads"
        if kind == checks.WRITE_WRITE:
            code, message = (
                "E0741",
                f"data race: two {between} write different values to {what} without synchronisation",
            )
        else:
            code, message = "E0742", f"data race: {what} is read and written by two {between} without synchronisation"
        help = 'put a barrier between the two accesses: T.tvm_storage_sync("shared")'
        if in_other_block:
            help = "blocks of a launch run in any order: write disjoint elements, use T.atomic_add, or launch twice"
        if by_copy_engine:
            help = "wait for the copy before using its data: T.ptx_wait_barrier(barrier, parity)"
            theirs = f"a copy issued by {theirs}"
        label = Label(other.span, f"{theirs} {other.what}s it here")
        return error(code, message, site.span, f"{mine} {site.what}s it", related=(label,), help=help)

    # ------------------------------------------------------------ threads

    def _block_of(self, me: int) -> int:
        return (me - 1) // (self.block[0] * self.block[1] * self.block[2])

    def _thread(self, me: int) -> str:
        count = self.block[0] * self.block[1] * self.block[2]
        thread, block = (me - 1) % count, (me - 1) // count
        return f"thread {_coordinates(thread, self.block)} of block {_coordinates(block, self.grid)}"


def thread_of_mark(mark: int) -> int:
    """Return the thread of a mark, without the sign bit of the copy engine."""
    return mark & 0x7FFFFFFF


def _coordinates(number: int, extents: Sequence[int]) -> str:
    """Format the coordinates of a linear number, x first; only axes up to the last one in use."""
    x, y, _ = extents
    if extents[1] == extents[2] == 1:
        return str(number)
    coordinates = [number % x, number // x % y, number // (x * y)]
    return f"({', '.join(map(str, coordinates if extents[2] > 1 else coordinates[:2]))})"

"""Pipeline loops in software: parts of the body work on different iterations at the same time.

In round i of the loop, a part of stage s works on iteration i - s; the parts stand in the order of the annotation. The
prologue fills the pipeline, the epilogue drains it. A buffer that is allocated in the loop and live across rounds is
multi-buffered: there are as many versions as iterations use it at once, and iteration i uses version i modulo their
number. A loop annotated as rolled has no epilogue: it runs these rounds itself, its first stages under a condition.

In asynchronous stages, copies to shared memory (`async_copy`) complete later. Each round commits a group per run of
such parts, even an empty one, so that the same number of groups may be in flight in every round. The wait for a group,
and the barrier that makes all threads' copies visible, stand before the first part that uses them. Tiles that the copy
engine moves belong to no group (`pipeline_tiles`): they have barriers of their own in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT32, DType
from mlcc.ir.node import Attrs, replace, walk
from mlcc.ir.tir import Expr, ForKind, Stmt
from mlcc.passes.gpu.buffer_offsets import OffsetBuffer, OffsetCopier, fragment_sizes, replicated_buffer
from mlcc.passes.gpu.device import block_barrier
from mlcc.passes.gpu.pipeline_checks import are_disjoint, check_dependences, part_accesses
from mlcc.passes.gpu.pipeline_tiles import SlotAssigner, Tile, copies_only_tiles, find_tiles, tile_waits
from mlcc.passes.gpu.wgmma_groups import PENDING, has_products
from mlcc.passes.lowering.mutator import Body, TirMutator
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.pipeline_parts import (
    ASYNC_STAGES,
    DOUBLE_BUFFER,
    ORDER,
    PART,
    ROLLED,
    STAGE,
    PipelinePlan,
    is_pipelined,
    pipeline_error,
    pipeline_plan,
)  # fmt: skip
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.lowering.unroll import has_jump, nested_bodies
from mlcc.passes.manage.stages import FLAT

PHASE = "software_pipeline_phase"  # the key of the brackets around the phases of an inner pipeline
VOID = DType.of("void")
ASYNC = "async_scope"  # around asynchronous copies
ORDERED = "software_pipeline_ordered"  # of a loop that has all barriers between its asynchronous copies and other parts


def pipeline_loops(func: tir.PrimFunc) -> tir.PrimFunc:
    """Pipeline the annotated loops of `func` (flat code with bracketed parts). Raises CompileError E0770, E0771."""
    return replace(func, body=_BracketRemover().body(_Pipeliner().body(func.body)))


class _Statements(TirMutator):
    def expr(self, node: Expr) -> Expr:
        return node


class _BracketRemover(_Statements):
    def stmt_attr(self, node: tir.AttrStmt) -> Stmt | list[Stmt]:
        if node.key in (PART, PHASE, DOUBLE_BUFFER):
            return list(self.body(node.body))
        return super().stmt_attr(node)


class _Pipeliner(_Statements):
    """Pipeline annotated loops, innermost first."""

    def stmt_for(self, node: tir.For) -> Stmt | list[Stmt]:
        loop = super().stmt_for(node)
        return list(_Pipeline(loop).emit()) if isinstance(loop, tir.For) and is_pipelined(loop) else loop


@dataclass(frozen=True, slots=True)
class _Group:
    """A run of asynchronous parts of one stage, by their positions in the order, that is committed as one group."""

    stage: int
    first: int
    last: int


class _Pipeline:
    """One pipelined loop. `parts` are in program order; `sequence` has their numbers in the order of the plan."""

    def __init__(self, loop: tir.For) -> None:
        self.loop = loop
        self.plan = plan = pipeline_plan(loop)
        self.allocated, self.parts = _split_body(loop)
        self._check_form(plan)
        self.accesses = [part_accesses(part) for part in self.parts]
        check_dependences(loop, plan, self.accesses, {a.buffer.data for a in self.allocated})
        self.sequence = sorted(range(len(self.parts)), key=plan.order.__getitem__)
        self.fragments = fragment_sizes(loop.body)
        self.versions: dict[tir.Var, tuple[tir.Buffer, Expr, int]] = {}
        self.runs = self._find_runs()
        asynchronous = [n for n, s in enumerate(plan.stage) if s in plan.asynchronous]
        private = {a.buffer.data for a in self.allocated}
        self.tiles = find_tiles(self.parts, asynchronous, private, self._users)
        engine = {t.writer for t in self.tiles if copies_only_tiles(self.parts[t.writer])}
        self.groups = [g for g in self.runs if not engine.issuperset(self.sequence[g.first : g.last + 1])]
        self.rolled = bool(loop.annotations.get(ROLLED))
        self.write_barriers: dict[int, int] = {}  # places before which memory is still being read, from which round on
        self.pending = [0] * len(self.parts)  # of each part: how many groups of its products may go on after it

    def _check_form(self, plan: PipelinePlan) -> None:
        loop = self.loop
        if len(self.parts) != len(plan.stage):
            message = f"its body has {len(self.parts)} statements, and `{STAGE}` has {len(plan.stage)} numbers"
            raise pipeline_error(loop, message)
        if loop.kind not in (ForKind.SERIAL, ForKind.UNROLLED):
            raise pipeline_error(loop, f"its kind is `{loop.kind.value}`", "only serial loops can be pipelined")
        if tir.const_int(loop.step) not in (None, 1) or has_jump(loop.body):
            raise pipeline_error(loop, "it has a step other than 1, or contains `break` or `continue`")
        if plan.asynchronous and any(_commits(part) for part in self.parts):
            help = "only one of the two pipelines can have them"
            raise pipeline_error(loop, "a pipeline inside it also has asynchronous stages", help)

    def emit(self) -> Body:
        """Return the allocations, followed by prologue, body and epilogue in brackets."""
        loop, depth = self.loop, self.plan.depth
        allocations = tuple(map(self._multi_buffer, self.allocated))
        self.write_barriers = self._find_write_barriers()
        self._find_pending()
        extent = tir.const_int(loop.extent)
        zero = c.const(0, loop.extent.dtype)
        most: Expr = c.maximum(loop.extent, depth) if extent is None else c.const(max(extent, depth), zero.dtype)
        before = [s for t in range(depth) for s in self._round(c.const(t, zero.dtype), known=t)]
        var = tir.Var(loop.var.name, loop.var.dtype, span=loop.var.span)
        inner = tuple(self._round(c.add(var, depth), body=True))
        rest = loop.annotations.without(STAGE, ORDER, ASYNC_STAGES, ROLLED)
        if self.runs:
            rest = Attrs({**rest, ORDERED: True})
        rounds = loop.extent if self.rolled else c.sub(most, depth)
        start, trips = c.const(0, var.dtype), c.cast(var.dtype, rounds)
        body = replace(loop, var=var, min=start, extent=trips, body=inner, annotations=rest)
        last = 0 if self.rolled else depth
        after = [s for t in range(last) for s in self._round(c.add(most, t), known=_sum(most, t), last=t)]
        if any(self.pending):
            after.append(tir.AttrStmt(tir.StringImm("products"), PENDING, 0, ()))
        phases = (tuple(before), () if tir.const_int(rounds) == 0 else (body,), tuple(after))
        return (*allocations, *(tir.AttrStmt(tir.StringImm("phase"), PHASE, 1, phase) for phase in phases))

    # ------------------------------------------------------------ memory

    def _multi_buffer(self, allocation: tir.AllocBuffer) -> tir.AllocBuffer:
        count = self._version_count(allocation.buffer.data)
        if count == 1:
            return allocation
        versions, distance = replicated_buffer(allocation.buffer, count)
        self.versions[allocation.buffer.data] = (versions, distance, count)
        return replace(allocation, buffer=versions)

    def _version_count(self, data: tir.Var) -> int:
        """Return the number of versions as TVM counts them: from the stage of the first write to that of the last read;
        two only if a round writes before it reads the version of the previous iteration.
        """
        stage, order = self.plan.stage, self.plan.order
        uses = [(n, t) for n, ts in enumerate(self.accesses) for t in ts if t.data is data]
        written = [(n, t) for n, t in uses if t.writes]
        read = [(n, t) for n, t in uses if not t.writes]
        if not written or not read:
            return 1
        count = max(stage[r] for r, _ in read) - min(stage[w] for w, _ in written) + 1
        if count == 2 and all(
            order[w] > order[r] or stage[w] >= stage[r] or are_disjoint(self.loop, read_access, written_access, 1)
            for w, written_access in written
            for r, read_access in read
        ):
            count = 1
        doubled = any(data in _double_buffered(part) for part in self.parts)
        return max(count, 2 if doubled else 1)

    def _version_offsets(self, number: Expr) -> dict[tir.Var, OffsetBuffer]:
        """Return the places of the versioned buffers for iteration `number`, counted from 0."""
        places = {}
        for data, (versions, distance, count) in self.versions.items():
            slot = c.cast(distance.dtype, c.floormod(_modulo(number, count), count))
            places[data] = OffsetBuffer(versions, c.mul(slot, distance))
        return places

    # ------------------------------------------------------------ rounds

    def _round(
        self, time: Expr, *, known: int | None = None, last: int | None = None, body: bool = False
    ) -> list[Stmt]:
        """Return the statements of round `time`, counted from 0. `known` is its number if constant; `last` numbers the
        rounds of the epilogue. Parts whose iteration does not exist are left out or guarded by a condition.
        """
        loop, plan = self.loop, self.plan
        stmts: list[Stmt] = []
        limit: int | None = None  # how many groups may be in flight after the waits so far
        for place, part in enumerate(self.sequence):
            stage = plan.stage[part]
            number = c.sub(time, stage)
            active: Expr = tir.TRUE
            if body and self.rolled and stage < plan.depth:
                active = c.less(number, loop.extent)
            elif not body:
                early = known is not None and known < stage
                late = last is not None and last >= stage
                active = c.const(False) if early or late else c.less(number, loop.extent)
            if tir.const_int(active) != 0:
                pending = self._pending(part, place)
                if pending is not None and (limit is None or limit > pending):
                    stmts += [_call("ptx_wait_group", c.const(pending, INT32)), block_barrier()]
                    limit = pending
                if place in self.write_barriers and (known is None or known >= self.write_barriers[place]):
                    stmts.append(block_barrier())
                stmts += self._part(part, number, active)
            if any(g.last == place for g in self.groups):
                stmts.append(_call("ptx_commit_group"))
                limit = None if limit is None else limit + 1
        return stmts

    def _part(self, part: int, number: Expr, active: Expr) -> Body:
        value = c.add(self.loop.min, c.cast(self.loop.min.dtype, number))
        copy = OffsetCopier(
            {self.loop.var: c.cast(self.loop.var.dtype, value)}, self._version_offsets(number), self.fragments
        )
        code = copy.body(self.parts[part])
        slots = {t.key: self._slot(t, number) for t in self.tiles if part in (t.writer, t.user)}
        if slots:
            code = SlotAssigner(slots).body(code)
        if self.plan.stage[part] in self.plan.asynchronous:
            code = (tir.AttrStmt(tir.StringImm("async"), ASYNC, 1, code),)
        if self.pending[part]:
            code = (tir.AttrStmt(tir.StringImm("products"), PENDING, self.pending[part], code),)
        code = (*tile_waits([t for t in self.tiles if t.user == part], slots), *code)
        return code if tir.const_int(active) == 1 else (tir.IfThenElse(active, code),)

    def _slot(self, tile: Tile, number: Expr) -> tuple[Expr, int]:
        """Return the slot of the tile of iteration `number`, and the number of slots."""
        count = self.versions[tile.data][2] if tile.data in self.versions else 1
        return c.cast(INT32, c.floormod(_modulo(number, count), count)), count

    # ------------------------------------------------------------ groups of copies

    def _users(self, data: tir.Var, writer: int) -> list[int]:
        """Return the parts that use memory, except its writer, in the order of one iteration."""
        users = {n for n, ts in enumerate(self.accesses) if n != writer and any(t.data is data for t in ts)}
        return sorted(users, key=lambda n: (self.plan.stage[n], self.plan.order[n]))

    def _find_runs(self) -> list[_Group]:
        runs: list[_Group] = []
        for place, part in enumerate(self.sequence):
            stage = self.plan.stage[part]
            if stage not in self.plan.asynchronous:
                continue
            if runs and runs[-1].last == place - 1 and runs[-1].stage == stage:
                runs[-1] = _Group(stage, runs[-1].first, place)
            else:
                runs.append(_Group(stage, place, place))
        return runs

    def _pending(self, part: int, place: int) -> int | None:
        """Return how many groups may be in flight when a part begins; None if it waits for no group."""
        allowed: list[int] = []
        before = sum(g.last < place for g in self.groups)
        for at, group in enumerate(self.groups):
            if group.first <= place <= group.last:
                continue
            for writer in self.sequence[group.first : group.last + 1]:
                if not self._shares_memory(writer, part):
                    continue
                rounds = self.plan.stage[part] - group.stage + (writer > part)
                allowed.append(before - at - 1 + rounds * len(self.groups))
        return min(allowed, default=None)

    def _find_write_barriers(self) -> dict[int, int]:
        """Find asynchronous copies that overwrite data which threads may still be reading (anti-dependences) without a
        wait, and its barrier, in between. Return the positions that need a barrier, each with the first round that
        does.
        """
        first_rounds: dict[int, int] = {}
        barriers = self._wait_places()
        for group in self.runs:
            for writer in self.sequence[group.first : group.last + 1]:
                written = [t.data for t in self.accesses[writer] if t.writes]
                count = max((self.versions[d][2] for d in written if d in self.versions), default=1)
                for place, part in enumerate(self.sequence):
                    if group.first <= place <= group.last or not self._shares_memory(writer, part):
                        continue
                    rounds = (group.stage - self.plan.stage[part]) % count or (0 if place < group.first else count)
                    if not _has_barrier_between(barriers, place, group.first, rounds):
                        start = self.plan.stage[part] + rounds
                        first_rounds[group.first] = min(start, first_rounds.get(group.first, start))
        return first_rounds

    def _find_pending(self) -> None:
        """Find warpgroup products that may stay in flight while the next part begins. No other part may touch their
        accumulators, and their operands may not be overwritten before the wait for the products of a later round. A
        barrier then precedes each overwriting copy, because a warpgroup waits for its own products only."""
        for place, part in enumerate(self.sequence):
            if not has_products(self.parts[part]):
                continue
            accumulators = {t.data for t in self.accesses[part] if t.writes}
            others = [n for n in range(len(self.parts)) if n != part]
            if any(t.data in accumulators for n in others for t in self.accesses[n]):
                continue
            read = {t.data for t in self.accesses[part] if not t.writes and _is_shared(t.data)}
            ahead: list[tuple[int, int]] = []  # of each overwriting part: its place, and how many rounds later it runs
            for other in others:
                for data in {t.data for t in self.accesses[other] if t.writes} & read:
                    count = self.versions[data][2] if data in self.versions else 1
                    ahead.append((self.sequence.index(other), count + self.plan.stage[other] - self.plan.stage[part]))
            if all(rounds - (at < place) > 0 for at, rounds in ahead):
                self.pending[part] = 1
                for at, rounds in ahead:
                    start = self.plan.stage[part] + rounds
                    first = next((g.first for g in self.runs if g.first <= at <= g.last), at)
                    self.write_barriers[first] = min(start, self.write_barriers.get(first, start))

    def _wait_places(self) -> set[int]:
        """Return the positions in a round with a wait, and so a barrier, before them."""
        waiting: set[int] = set()
        limit: int | None = None
        for place, part in enumerate(self.sequence):
            pending = self._pending(part, place)
            if pending is not None and (limit is None or limit > pending):
                waiting.add(place)
                limit = pending
            if limit is not None and any(g.last == place for g in self.groups):
                limit += 1
        return waiting

    def _shares_memory(self, writer: int, part: int) -> bool:
        written = {t.data for t in self.accesses[writer] if t.writes and _is_shared(t.data)}
        return any(t.data in written for t in self.accesses[part])


def _has_barrier_between(barriers: set[int], place: int, later: int, rounds: int) -> bool:
    """Return True if a barrier lies after `place` and not after the place `later`, `rounds` rounds on."""
    if rounds == 0:
        return any(place < b <= later for b in barriers)
    return any(b > place or b <= later or rounds > 1 for b in barriers)


def _sum(extent: Expr, number: int) -> int | None:
    known = tir.const_int(extent)
    return None if known is None else known + number


def _modulo(number: Expr, count: int) -> Expr:
    """Reduce the constant in `number` modulo `count`; the result is congruent, and non-negative if `number` is."""
    match number:
        case tir.Add(lhs=lhs, rhs=tir.IntImm(value=more)):
            return c.add(lhs, more % count)
        case tir.Sub(lhs=lhs, rhs=tir.IntImm(value=less)):
            return c.add(lhs, -less % count)
    return number


def _call(name: str, *args: Expr) -> Stmt:
    return tir.Evaluate(tir.Call(VOID, tir.Op(f"tir.{name}"), args))


def _commits(part: Body) -> bool:
    return any(isinstance(n, tir.Call) and n.op == tir.Op("tir.ptx_commit_group") for s in part for n in walk(s))


def _is_shared(data: tir.Var) -> bool:
    return data.pointer is not None and data.pointer.scope.startswith("shared")


def _split_body(loop: tir.For) -> tuple[list[tir.AllocBuffer], list[Body]]:
    """Return the allocations of a loop's body, and its parts; an inner pipeline is replaced by its own parts."""
    allocated: list[tir.AllocBuffer] = []
    parts: list[Body] = []
    for stmt in loop.body:
        match stmt:
            case tir.AllocBuffer():
                allocated.append(stmt)
            case tir.AttrStmt(key=key, body=body) if key == PART:
                inner = [s for s in body if not isinstance(s, tir.AllocBuffer)]
                if inner and all(isinstance(s, tir.AttrStmt) and s.key == PHASE for s in inner):
                    allocated += [s for s in body if isinstance(s, tir.AllocBuffer)]
                    parts += [(s,) for s in inner]
                else:
                    parts.append(body)
            case _:
                raise pipeline_error(loop, "its body declares variables or views outside of its parts")
    return allocated, parts


def _double_buffered(part: Body) -> set[tir.Var]:
    """Return the memory written under `double_buffer_scope`, as data variables."""
    written: set[tir.Var] = set()
    for stmt in part:
        if isinstance(stmt, tir.AttrStmt) and stmt.key == DOUBLE_BUFFER:
            written |= {t.data for t in part_accesses((stmt,)) if t.writes}
        for nested in nested_bodies(stmt):
            written |= _double_buffered(nested)
    return written


@dataclass(frozen=True)
class PipelineLoops(LoweringStep):
    """Overlap the iterations of loops annotated with `software_pipeline_stage` (TVM: InjectSoftwarePipeline).

    Before:  for k in range(8): load(k); compute(k)
    After:   load(0); for k in range(7): load(k + 1); compute(k)  then compute(7)
    """

    name: ClassVar[str] = "pipeline-loops"
    takes: ClassVar[str] = FLAT
    gives: ClassVar[str] = FLAT

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        return pipeline_loops(func)

"""Random schedules for GPUs, as steps that are taken while they are chosen.

`guided` goes about it as people do: tiles for blocks and threads, stages in memory on the chip that threads fetch
together, reductions across threads, pipelines. Most of what it makes are kernels. `wild` takes any primitive anywhere,
with an eye for those that have to do with threads. `tensor` schedules a product for tensor cores.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from mlcc.ir import tir
from mlcc.ir.tir import ForKind
from tests.fuzz.schedules import UNSAFE_WORDS, Player
from tests.interop.schedule import cases
from tests.interop.schedule.cases import Chooser, Impossible, Step
from tests.interop.schedule.view import BlockView, LoopView, View, view

AXES = ("x", "x", "x", "y", "z")
THREADS = (1, 2, 3, 4, 8, 8, 16, 16, 32, 32, 33, 48, 64, 128)
ON_CHIP = ("shared", "shared", "shared", "local", "local", "shared.dyn", "warp")
WEIGHTS = {
    "bind": 7, "split": 4, "fuse": 2, "reorder": 2, "cache_read": 3, "cache_write": 3, "compute_at": 4,
    "reverse_compute_at": 3, "set_scope": 3, "storage_align": 1, "rfactor": 2, "decompose_reduction": 2, "vectorize": 1,
    "unroll": 1, "compute_inline": 1, "reverse_compute_inline": 1, "add_unit_loop": 1, "blockize": 1,
}  # fmt: skip


class _Nothing(str):
    """What a step that was refused gives: false, and recognised in arguments."""

    def __bool__(self) -> bool:
        return False


NOTHING = _Nothing("no_such_result")


class Taken:
    """A schedule with what was done to it: `steps` are those that were accepted; `note` is told of each that was asked
    for, with whether it was."""

    def __init__(self, player: Player, rng: random.Random, note: Callable[[Step, str], None]) -> None:
        self.player, self.rng, self._note = player, rng, note
        self.steps: list[Step] = []
        self._count = 0
        self._interface = self._parameters()

    def maybe(self, share: float) -> bool:
        return self.rng.random() < share

    @property
    def view(self) -> View:
        return view(self.player.sch.mod)

    def take(self, name: str, args: str, gives: bool = False) -> str:
        """The name of what the step gives (or "done"), or nothing if it was refused, or is about what no step gave."""
        if NOTHING in args:
            return NOTHING
        target = ""
        if gives:
            self._count += 1
            target = f"g{self._count}"
        return self.step(Step(name, args, target))

    def step(self, step: Step) -> str:
        before = self.player.sch.copy()
        code = self.player.try_step(step)
        if not code and self._parameters() != self._interface:  # callers would have to know
            self.player.sch = before
            self.player.names.pop(step.target, None)
            return NOTHING
        self._note(step, code)
        if code:
            return NOTHING
        self.steps.append(step)
        return step.target or "done"

    def _parameters(self) -> list[object]:
        func = self.player.sch.mod["main"]
        assert isinstance(func, tir.PrimFunc)
        return [*func.buffers]

    def block(self, name: str) -> BlockView | None:
        return next((b for b in self.view.named() if b.name == name), None)

    def named(self, handle: str) -> BlockView | None:
        """The block of a handle that a step gave."""
        made = self.player.names.get(handle)
        try:
            return None if made is None else self.block(self.player.sch.get(made).name)
        except Exception:
            return None


def handle(block: BlockView) -> str:
    return f'sch.get_block("{block.name}")'


def loop(block: BlockView, at: int) -> str:
    return f'sch.get_loops("{block.name}")[{at}]'


def is_bound(block: BlockView) -> bool:
    return any(x.kind is ForKind.THREAD_BINDING for x in block.loops)


# ---------------------------------------------------------------- as people do


def guided(t: Taken) -> None:
    rng = t.rng
    for block in t.view.named():
        if t.maybe(0.25) and "R" not in block.kinds:
            t.take(rng.choice(("compute_inline", "reverse_compute_inline")), handle(block))
    for name in [b.name for b in reversed(t.view.named())]:
        block = t.block(name)
        if block is None or not block.loops or is_bound(block) or block.inner:
            continue
        ways: list[Callable[[Taken, BlockView], None]] = [tiled, tiled, spread, left]
        if "R" in block.kinds:
            ways += [across, tiled, across]
        rng.choice(ways)(t, block)
    for block in t.view.named():
        if t.maybe(0.15):
            finishing(t, block)
    if t.maybe(0.35):
        wild(t, rng.randint(1, 3))


def left(t: Taken, block: BlockView) -> None:
    """Nothing: code generation finds threads for it."""


def spread(t: Taken, block: BlockView) -> None:
    """A thread for each result, or several."""
    rng = t.rng
    count = _spatial_run(block)
    if not count:
        return
    fused = t.take("fuse", ", ".join(loop(block, i) for i in range(count)), True) if count > 1 else loop(block, 0)
    if not fused:
        return
    lanes = rng.choice((1, 1, 2, 4))
    factors: list[int | None] = [None, rng.choice(THREADS)]
    axes = ["blockIdx." + rng.choice(AXES), "threadIdx." + rng.choice(AXES)]
    if t.maybe(0.2):
        factors.insert(1, rng.choice((2, 3, 4)))
        axes.insert(1, rng.choice(("vthread", "vthread.x", "vthread.y")))
    if lanes > 1:
        factors.append(lanes)
    if t.maybe(0.1):
        factors = [*factors[1:], None]
    parts = t.take("split", f"{fused}, factors={factors}", True)
    if not parts:
        return
    for at, axis in enumerate(axes):
        t.take("bind", f'{parts}[{at}], "{axis}"')
    if lanes > 1:
        t.take(rng.choice(("vectorize", "vectorize", "unroll")), f"{parts}[{len(factors) - 1}]")
    now = t.block(block.name)
    if now is not None:
        stages(t, now, 0.3)
        producers(t, now)


def _spatial_run(block: BlockView) -> int:
    """How many outer loops are of spatial axes, as far as can be seen."""
    if len(block.loops) != len(block.kinds):
        return 1 if "R" not in block.kinds else 0
    return len(block.kinds) - len(block.kinds.lstrip("S"))


def tiled(t: Taken, block: BlockView) -> None:
    """Tiles for blocks and threads, by splitting, reordering and binding."""
    rng = t.rng
    if len(block.loops) != len(block.kinds):
        spread(t, block)
        return
    name = block.name
    reduces = "R" in block.kinds
    out = ""
    if t.maybe(0.6 if reduces else 0.25):
        out = t.take("cache_write", f'{handle(block)}, 0, "{rng.choice(("local", *ON_CHIP))}"', True)
    spatial = [i for i, k in enumerate(block.kinds) if k == "S"]
    if not spatial:
        across(t, block)
        return
    cut = sorted(rng.sample(spatial, min(len(spatial), rng.choice((1, 2, 2, 3)))))
    virtual, inner = t.maybe(0.2), t.maybe(0.6)
    loops = t.take("get_loops", handle(block), True)
    grid, virtuals, threads, outer, within = [], [], [], [], []
    for i in range(len(block.kinds)):
        if i in cut:
            factors = [
                None,
                *([rng.choice((2, 3))] * virtual),
                rng.choice(THREADS[:9]),
                *([rng.choice((2, 3, 4))] * inner),
            ]
            if t.maybe(0.05):
                factors[0], factors[-1] = factors[-1], None
            parts = t.take("split", f"{loops}[{i}], factors={factors}", True)
            if not parts:
                return
            grid.append(f"{parts}[0]")
            virtuals += [f"{parts}[1]"] * virtual
            threads.append(f"{parts}[{1 + virtual}]")
            within += [f"{parts}[{2 + virtual}]"] * inner
        elif block.kinds[i] == "R" and t.maybe(0.6):
            parts = t.take("split", f"{loops}[{i}], factors=[None, {rng.choice((1, 2, 4, 4, 5, 8, 16))}]", True)
            if not parts:
                return
            outer.append(f"{parts}[0]")
            within.insert(0 if t.maybe(0.7) else len(within), f"{parts}[1]")
        else:
            (outer if block.kinds[i] == "R" or t.maybe(0.7) else grid).append(f"{loops}[{i}]")
    if not t.take("reorder", ", ".join((*grid, *virtuals, *threads, *outer, *within))):
        return
    grid, threads = _joined(t, grid), _joined(t, threads)
    for kind, found in (("blockIdx", grid), ("threadIdx", threads)):
        letters = ["x", "y", "z"]
        if t.maybe(0.2):
            rng.shuffle(letters)
        for at, letter in zip(reversed(found), letters, strict=False):
            t.take("bind", f'{at}, "{kind}.{letter}"')
    for at, letter in zip(virtuals, rng.sample(["vthread.x", "vthread.y", "vthread.z"], 3), strict=False):
        t.take("bind", f'{at}, "{letter}"')
    if out:
        places = [*threads, *virtuals, *grid[-1:], *(within[:1] if not reduces else ())]
        if not t.take("reverse_compute_at", f"{out}, {rng.choice([threads[-1], threads[-1], *places])}") and t.maybe(
            0.9
        ):
            t.take("set_scope", f'{handle(t.block(name) or block)}, 0, "global"')
        stage = t.named(out)
        if stage is not None and t.maybe(0.5):
            together(t, stage, t.block(name))
    now = t.block(name)
    if now is not None:
        stages(t, now, 0.75)
        producers(t, now)
        if reduces and t.maybe(0.5):
            at = rng.choice([*outer, *within, threads[-1], *outer])
            t.take("decompose_reduction", f"{handle(now)}, {at}", True)
    for at in within:
        if t.maybe(0.3):
            t.take(rng.choice(("unroll", "unroll", "vectorize")), at)
    for at in outer[:1]:
        if t.maybe(0.4):
            pipeline(t, at)


def _joined(t: Taken, loops: list[str]) -> list[str]:
    if len(loops) > 1 and t.maybe(0.4):
        made = t.take("fuse", ", ".join(loops), True)
        return [made] if made else loops
    return loops[-3:]


def across(t: Taken, block: BlockView) -> None:
    """Threads put their parts of a reduction together."""
    rng = t.rng
    if len(block.loops) != len(block.kinds):
        spread(t, block)
        return
    name = block.name
    loops = t.take("get_loops", handle(block), True)
    spatial = [f"{loops}[{i}]" for i, k in enumerate(block.kinds) if k == "S"]
    reduced = [f"{loops}[{i}]" for i, k in enumerate(block.kinds) if k == "R"]
    if len(reduced) > 1:
        t.take("reorder", ", ".join((*spatial, *reduced)))
        fused = t.take("fuse", ", ".join(reduced), True) if t.maybe(0.6) else ""
        reduced = [fused] if fused else reduced
    if t.maybe(0.15):
        t.take("set_scope", f'{handle(block)}, 0, "{rng.choice(ON_CHIP)}"')
    several = t.maybe(0.25)
    factors = [None, rng.choice(THREADS), *([rng.choice((2, 4))] * several)]
    if t.maybe(0.2):
        factors = [rng.choice(THREADS), None, *([2] * several)]
    parts = t.take("split", f"{reduced[0]}, factors={factors}", True)
    if not parts:
        return
    lane = f"{parts}[{1 if factors[0] is None else 0}]"
    if t.maybe(0.35):
        made = t.take("rfactor", f"{lane}, {rng.choice((0, 0, len(spatial), -1))}", True)
        if made:
            _after_rfactor(t, made, name, bool(spatial))
            return
    rows = _joined(t, spatial) if spatial else []
    for at, axis in zip(rows, ("blockIdx.x", rng.choice(("blockIdx.y", "threadIdx.y", "threadIdx.z"))), strict=False):
        t.take("bind", f'{at}, "{axis}"')
    t.take("bind", f'{lane}, "threadIdx.{rng.choice(AXES)}"')
    if several and t.maybe(0.3):
        t.take("bind", f'{parts}[2], "threadIdx.{rng.choice("yz")}"')
    now = t.block(name)
    if now is not None:
        stages(t, now, 0.3)
        producers(t, now)


def _after_rfactor(t: Taken, made: str, name: str, has_rows: bool) -> None:
    """The parts in threads, then what puts them together: in the same kernel, or in another."""
    rng = t.rng
    parts, total = t.named(made), t.block(name)
    if parts is None or total is None:
        return
    if has_rows:
        rows = t.take("get_loops", handle(total), True)
        t.take("bind", f'{rows}[0], "blockIdx.x"')
        if t.maybe(0.6):
            t.take("bind", f'{rows}[{len(total.loops) - 1}], "threadIdx.x"')
        if t.maybe(0.6):
            t.take("compute_at", f"{handle(parts)}, {rows}[0]")
            if t.maybe(0.8):
                t.take("set_scope", f'{handle(parts)}, 0, "{rng.choice(("shared", "shared.dyn", "local"))}"')
    elif t.maybe(0.7):
        t.take("bind", f'{loop(total, len(total.loops) - 1)}, "threadIdx.x"')
    parts = t.named(made)
    if parts is not None:
        own = [i for i, x in enumerate(parts.loops) if x.kind is ForKind.SERIAL]
        if own and t.maybe(0.9):
            axis = "threadIdx.x" if is_bound(parts) else rng.choice(("blockIdx.x", "threadIdx.x"))
            t.take("bind", f'{loop(parts, own[0])}, "{axis}"')


def stages(t: Taken, block: BlockView, share: float) -> None:
    """What a block reads, brought to memory on the chip."""
    rng = t.rng
    written = set(block.writes)
    for number, buffer in enumerate(block.reads):
        if buffer in written or not t.maybe(share):
            continue
        made = t.take("cache_read", f'{handle(block)}, {number}, "{rng.choice(ON_CHIP)}"', True)
        now = t.block(block.name)
        if not made or now is None:
            continue
        bring(t, made, now)


def bring(t: Taken, made: str, block: BlockView) -> None:
    """A stage under a loop of a block that reads it, its own loops shared out."""
    rng = t.rng
    bound = [i for i, x in enumerate(block.loops) if x.kind is ForKind.THREAD_BINDING]
    plain = [i for i, x in enumerate(block.loops) if x.kind is ForKind.SERIAL]
    places = [*bound[-1:] * 2, *plain[:1] * 3, *bound, *plain]
    if not places:
        return
    more = ", preserve_unit_loops=True" if t.maybe(0.3) else ""
    if not t.take("compute_at", f"{made}, {loop(block, rng.choice(places))}{more}") and t.maybe(0.9):
        t.take("set_scope", f'{made}, 0, "global"')
        return
    stage, block_now = t.named(made), t.block(block.name)
    if stage is None:
        return
    if t.maybe(0.8):
        together(t, stage, block_now)
    if t.maybe(0.2):
        axis, factor, offset = rng.choice((-2, -1, 0)), rng.choice((8, 16, 32)), rng.choice((0, 1, 4, 8))
        t.take("storage_align", f"{made}, 0, {axis}, {factor}, {offset}")
    if t.maybe(0.1):
        t.take("annotate", f'{made}, "double_buffer_scope", 0')


def together(t: Taken, stage: BlockView, block: BlockView | None) -> None:
    """All threads of a block fetch a stage: its own loops fused, split and bound."""
    rng = t.rng
    around = [] if block is None else block.loops
    first = next((i for i, x in enumerate(stage.loops) if x not in around and not _is(x, around)), len(stage.loops))
    own = range(first, len(stage.loops))
    bound = {x.kind for x in stage.loops[first:]}
    if not own or bound != {ForKind.SERIAL}:
        return
    fused = loop(stage, first)
    if len(own) > 1:
        fused = t.take("fuse", ", ".join(loop(stage, i) for i in own), True)
    sizes = thread_extents(t, around)
    if t.maybe(0.1):
        sizes = {"threadIdx.x": rng.choice(THREADS)}
    lanes = rng.choice((1, 1, 2, 4, 8))
    axes = [a for a in ("threadIdx.z", "threadIdx.y", "threadIdx.x") if a in sizes] or ["threadIdx.x"]
    factors = [None, *(sizes.get(a, 32) for a in axes), *([lanes] if lanes > 1 else [])]
    parts = t.take("split", f"{fused}, factors={factors}", True) if fused else ""
    if not parts:
        return
    for at, axis in enumerate(axes, 1):
        t.take("bind", f'{parts}[{at}], "{axis}"')
    if lanes > 1:
        t.take("vectorize", f"{parts}[{len(factors) - 1}]")
    if t.maybe(0.1):
        t.take("unroll", f"{parts}[0]")


def _is(one: LoopView, others: Sequence[LoopView]) -> bool:
    return any(one.var == x.var and one.depth == x.depth and one.kind is x.kind is not ForKind.SERIAL for x in others)


def thread_extents(t: Taken, around: Sequence[LoopView]) -> dict[str, int]:
    """The axes of threads that the kernel has, with how many there are."""
    func = t.player.sch.mod["main"]
    names = {x.var for x in around}
    made = {}
    from mlcc.ir.node import walk

    for node in (n for s in func.body for n in walk(s)):  # type: ignore[union-attr]
        if isinstance(node, tir.For) and node.thread and node.thread.startswith("threadIdx") and node.var.name in names:
            size = tir.const_int(node.extent)
            if size:
                made[node.thread] = size
    return made


def producers(t: Taken, block: BlockView) -> None:
    """Stages before it under its loops, on the chip."""
    rng = t.rng
    for other in t.view.named():
        if other.name == block.name or is_bound(other) or not set(other.writes) & set(block.reads) or not t.maybe(0.6):
            continue
        now = t.block(block.name)
        if now is None:
            return
        bound = [i for i, x in enumerate(now.loops) if x.kind is ForKind.THREAD_BINDING]
        if not bound:
            return
        grid = t.maybe(0.6)
        if not t.take("compute_at", f"{handle(other)}, {loop(now, bound[0] if grid else rng.choice(bound))}"):
            continue
        scope = rng.choice(("shared", "shared", "shared.dyn", "local") if grid else ("local", "local", "shared"))
        if t.maybe(0.85):
            t.take("set_scope", f'{handle(other)}, 0, "{scope}"')
        stage = t.block(other.name)
        if stage is None or not t.maybe(0.85):
            continue
        if "R" in stage.kinds:
            own = [i for i, x in enumerate(stage.loops) if x.kind is ForKind.SERIAL]
            if own:
                parts = t.take("split", f"{loop(stage, rng.choice(own))}, factors=[None, {rng.choice(THREADS)}]", True)
                if parts:
                    t.take("bind", f'{parts}[1], "threadIdx.x"')
        else:
            together(t, stage, t.block(block.name))


def pipeline(t: Taken, at: str) -> None:
    """Annotations of a software pipeline over what the loop's body is."""
    rng = t.rng
    try:
        found = t.player.sch.get(eval(at, {"__builtins__": {}, **t.player.names, "sch": t.player.sch}))
    except Exception:
        return
    count = len(found.body)
    if count < 2 and not t.maybe(0.1):
        return
    stage = sorted(rng.choice((0, 0, 1, 1, 2, 3)) for _ in range(count))
    order = [*range(count)]
    if t.maybe(0.4):
        order = sorted(range(count), key=lambda i: -stage[i])
        order = [order.index(i) for i in range(count)]
    if t.maybe(0.1):
        rng.shuffle(order)
    if t.maybe(0.05):
        stage.append(1)
    t.take("annotate", f'{at}, "software_pipeline_stage", {stage}')
    t.take("annotate", f'{at}, "software_pipeline_order", {order}')
    if t.maybe(0.5):
        t.take("annotate", f'{at}, "software_pipeline_async_stages", [{rng.choice((0, 0, stage[0]))}]')


def finishing(t: Taken, block: BlockView) -> None:
    rng = t.rng
    if not block.loops:
        return
    at = loop(block, rng.randrange(len(block.loops)))
    kind = rng.choice(("unroll", "pragma", "explicit", "unit", "vectorize", "double"))
    if kind == "unroll":
        t.take("unroll", at)
    elif kind == "pragma":
        t.take("annotate", f'{at}, "pragma_auto_unroll_max_step", {rng.choice((4, 16, 64))}')
    elif kind == "explicit":
        t.take("annotate", f'{at}, "pragma_unroll_explicit", {rng.choice((0, 1))}')
    elif kind == "unit":
        t.take("add_unit_loop", rng.choice((at, handle(block))), True)
    elif kind == "vectorize":
        t.take("vectorize", loop(block, len(block.loops) - 1))
    else:
        t.take("annotate", f'{handle(block)}, "double_buffer_scope", 0')


# ---------------------------------------------------------------- anything anywhere


def wild(t: Taken, count: int) -> None:
    """Steps of any kind, legal or not."""
    names = [n for n in cases.PRIMITIVES if n not in cases.UNSAFE and cases.implemented(n)]
    weights = [WEIGHTS.get(n, 0.15) for n in names]
    chooser = Chooser(t.rng, t.view, legal=0.85)
    chooser.count = 1000 + len(t.steps)
    for _ in range(count):
        chooser.view = t.view
        try:
            step = cases.final(chooser, t.rng.choices(names, weights)[0])
        except Impossible:
            continue
        if UNSAFE_WORDS.search(step.args) or not t.step(step):
            continue
        result = t.player.names.get(step.target)
        cases.hold(chooser, step, len(result) if isinstance(result, list) else 0)
        if t.maybe(0.05) and chooser.view.named():
            block = t.rng.choice(chooser.view.named())
            if block.loops:
                pipeline(t, loop(block, t.rng.randrange(len(block.loops))))


def only_wild(t: Taken) -> None:
    wild(t, t.rng.randint(3, 14))

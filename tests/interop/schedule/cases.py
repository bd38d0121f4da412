"""Generated steps of a schedule: for each primitive, arguments that may be legal or not, after some preparation.

A step is text, `r1 = sch.split(sch.get_loops("C")[0], factors=[2, None])`, so that a case replays on both sides and
prints as a script. The choices of a case depend on its seed and on the programs that the steps before it gave.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from mlcc.ir.tir import ForKind
from mlcc.passes.schedule import registry
from tests.interop.schedule import programs
from tests.interop.schedule.view import BlockView, LoopView, View


@dataclass(frozen=True)
class Step:
    """`target = sch.name(args)`; `args` is the text between the parentheses."""

    name: str
    args: str = ""
    target: str = ""

    def __str__(self) -> str:
        return f"{self.target} = {self.call}" if self.target else self.call

    @property
    def call(self) -> str:
        return f"sch.{self.name}({self.args})"


class Impossible(Exception):
    """The program has nothing that this primitive could take."""


@dataclass
class Chooser:
    """Chooses arguments for the program as it is; `legal` is how often to try for a legal choice."""

    rng: random.Random
    view: View = field(default_factory=View)
    legal: float = 0.8
    held_loops: list[str] = field(default_factory=list)  # expressions that are loop handles from earlier steps
    held_blocks: list[str] = field(default_factory=list)
    held_factors: list[str] = field(default_factory=list)
    annotated: list[tuple[str, str]] = field(default_factory=list)  # places and keys of annotations that were asked for
    count: int = 0
    is_final: bool = False  # the step now given is the one that the case is for

    def well(self) -> bool:
        """Whether this choice shall be a reasonable one."""
        return self.rng.random() < self.legal

    def maybe(self, share: float) -> bool:
        return self.rng.random() < share

    def target(self) -> str:
        self.count += 1
        return f"r{self.count}"

    # ------------------------------------------------------------ places

    def pick(self, where: Callable[[BlockView], bool] = lambda b: True) -> BlockView:
        """A block that has a name of its own, preferably one that fits."""
        named = self.view.named()
        if not named:
            raise Impossible
        fitting = [b for b in named if where(b)]
        if not fitting and self.maybe(0.75):
            raise Impossible
        return self.rng.choice(fitting if fitting and self.well() else named)

    def handle(self, block: BlockView) -> str:
        return f'sch.get_block("{block.name}")'

    def block(self, where: Callable[[BlockView], bool] = lambda b: True, text: bool = True) -> tuple[str, BlockView]:
        """An expression for a block, and the block. `text`: a plain name will do."""
        block = self.pick(where)
        if text and self.maybe(0.3):
            if self.maybe(0.03):
                return '"nowhere"', block
            return f'"{block.name}"', block
        if self.held_blocks and self.maybe(0.08):
            return self.rng.choice(self.held_blocks), block
        return self.handle(block), block

    def loop_of(self, block: BlockView, index: int) -> str:
        return f'sch.get_loops("{block.name}")[{index}]'

    def loop(
        self, where: Callable[[LoopView, BlockView], bool] = lambda x, b: True, block: BlockView | None = None
    ) -> tuple[str, LoopView, BlockView]:
        """An expression for a loop, the loop, and a block below it."""
        blocks = [b for b in self.view.named() if b.loops] if block is None else [block]
        places = [(b, i) for b in blocks for i in range(len(b.loops))]
        if not places:
            raise Impossible
        fitting = [(b, i) for b, i in places if where(b.loops[i], b)]
        b, i = self.rng.choice(fitting if fitting and self.well() else places)
        if block is None and self.held_loops and self.maybe(0.08):
            return self.rng.choice(self.held_loops), b.loops[i], b
        return self.loop_of(b, i), b.loops[i], b

    def place(self) -> str:
        """A block or a loop."""
        return self.block(text=False)[0] if self.maybe(0.5) else self.loop()[0]

    # ------------------------------------------------------------ values

    def factors(self, extent: int | None, parts: int | None = None) -> str:
        rng = self.rng
        parts = parts or rng.choice((2, 2, 2, 3, 3, 1, 4))
        made: list[int | None] = [rng.choice((1, 2, 2, 3, 4, 4, 7, 8, 16)) for _ in range(parts)]
        if extent is not None and self.maybe(0.5):  # a perfect one
            left = extent
            for i in range(parts):
                divisors = [d for d in range(1, left + 1) if left % d == 0] if left < 4096 else [1]
                made[i] = rng.choice(divisors)
                left //= made[i] or 1
            made[rng.randrange(parts)] = None if self.maybe(0.6) else made[0]
        elif self.maybe(0.85):
            made[rng.randrange(parts)] = None
        if not self.well() and self.maybe(0.4):
            made[rng.randrange(parts)] = rng.choice((0, -1, None))
        return str(made)

    def flag(self, name: str, share: float = 0.2) -> str:
        return f", {name}={self.rng.choice((True, False))}" if self.maybe(share) else ""

    def index(self, count: int) -> int:
        return (
            self.rng.randrange(count)
            if count and (self.well() or self.maybe(0.6))
            else self.rng.choice((count, -1, count + 3))
        )

    def scope(self) -> str:
        pool = (
            "global",
            "shared",
            "shared",
            "local",
            "local",
            "shared.dyn",
            "warp",
            "wmma.matrix_a",
            "wmma.accumulator",
        )
        return f'"{self.rng.choice(pool)}"' if self.maybe(0.97) else '"nonsense"'

    def buffer(self, buffers: Sequence[object], both: bool = False, side: str = "") -> str:
        """A buffer by index, by name, or (`both`) by its side and index."""
        index = self.index(len(buffers))
        named = [b for b in buffers if b.name]  # type: ignore[attr-defined]
        if named and self.maybe(0.25):
            return f'"{self.rng.choice(named).name}"' if self.maybe(0.95) else '"no_such"'  # type: ignore[attr-defined]
        return f'("{side}", {index})' if both else str(index)

    def index_map(self, rank: int, dims: Sequence[int | None]) -> str:
        rng = self.rng
        if not self.well() and self.maybe(0.3):
            rank = rng.choice((rank + 1, max(rank - 1, 0)))
        names = ["i", "j", "k", "l", "m", "n", "o", "p"][:rank]
        if rank > len(names):
            raise Impossible
        out = [*names]
        sizes = [d if d is not None else 8 for d in [*dims, *[4] * rank][:rank]]
        kinds = rng.choices(
            ("permute", "split", "fuse", "same", "shift", "bad", "swap tiles", "reverse"), (5, 6, 4, 1, 1, 1.2, 2, 0.5)
        )
        for kind in kinds if self.maybe(0.8) else [*kinds, "permute"]:
            at = rng.randrange(rank) if rank else 0
            if not rank:
                return f"lambda: {rng.choice(('()', '(0,)', '[]'))}"
            f = rng.choice((2, 3, 4, 4, 8, 16))
            if self.maybe(0.5):
                f = rng.choice([d for d in range(1, sizes[at] + 1) if sizes[at] % d == 0])
            x = names[at]
            if kind == "permute":
                rng.shuffle(out)
            elif kind == "split":
                where = out.index(x)
                out[where : where + 1] = [f"{x} // {f}", f"{x} % {f}"]
            elif kind == "swap tiles":
                out.remove(x)
                out = [f"{x} // {f}", *out, f"{x} % {f}"]
            elif kind == "fuse" and rank > 1:
                at = min(at, rank - 2)
                a, b = names[at], names[at + 1]
                if a in out and b in out:
                    out[out.index(a)] = f"{a} * {sizes[at + 1]} + {b}"
                    out.remove(b)
            elif kind == "shift":
                out[0] = rng.choice((f"{out[0]} + 1", f"{out[0]} * 2", f"{out[0]} - 1"))
            elif kind == "reverse":
                out[at] = f"{sizes[at] - 1} - {x}"
            elif kind == "bad":
                out[at] = rng.choice((f"{x} // 2", f"{x} % 2", "0", f"{x} * {x}", f"{x} + {names[0]}"))
        result = f"({', '.join(out)}{',' if len(out) == 1 else ''})"
        if self.maybe(0.15):
            result = f"[{', '.join(out)}]"
        return f"lambda {', '.join(names)}: {result}"


Arguments = Callable[[Chooser], str]
PRIMITIVES: dict[str, Primitive] = {}


@dataclass(frozen=True)
class Primitive:
    """How to choose arguments for one primitive, the programs it is for, and preparations that lead to it."""

    name: str
    arguments: Arguments
    families: tuple[str, ...] = ()
    setups: tuple[Callable[[Chooser], Iterator[Step]], ...] = ()
    common: float = 0.0  # how often it is used as a preparation
    gives: str = ""  # "block", "blocks", "loop", "loops", "factors": what its result may serve for later


def primitive(
    families: str = "",
    setups: Sequence[Callable[[Chooser], Iterator[Step]]] = (),
    common: float = 0.0,
    gives: str = "",
    name: str = "",
) -> Callable[[Arguments], Arguments]:
    def register(arguments: Arguments) -> Arguments:
        key = name or arguments.__name__
        PRIMITIVES[key] = Primitive(key, arguments, tuple(families.split()), tuple(setups), common, gives)
        return arguments

    return register


def _free(loop: LoopView, block: BlockView) -> bool:
    return loop.kind is ForKind.SERIAL


def _has(kinds: str) -> Callable[[BlockView], bool]:
    return lambda b: any(k in b.kinds for k in kinds)


# ---------------------------------------------------------------- preparations


def _some(*names: str) -> Callable[[Chooser], Iterator[Step]]:
    """A preparation that runs these primitives in turn."""

    def run(c: Chooser) -> Iterator[Step]:
        for name in names:
            yield Step(name, PRIMITIVES[name].arguments(c))

    return run


def _tiled(c: Chooser) -> Iterator[Step]:
    """Split the loops of one block and bring the inner parts together."""
    block = c.pick(lambda b: len(b.loops) > 1 and all(x.kind is ForKind.SERIAL for x in b.loops))
    count = len(block.loops)
    factor = c.rng.choice((2, 4, 4, 8))
    for i in range(count):
        yield Step("split", f"{c.loop_of(block, 2 * i)}, factors=[None, {factor}]")
    order = [*range(0, 2 * count, 2), *range(1, 2 * count, 2)]
    yield Step("reorder", ", ".join(c.loop_of(block, i) for i in order))


def _tensor_tile(c: Chooser) -> Iterator[Step]:
    """The last loops cut by 4, the inner parts together; a reduction perhaps without its init."""
    block = c.pick(lambda b: len(b.loops) > 1 and all(x.extent is None or x.extent % 4 == 0 for x in b.loops[-2:]))
    count = min(len(block.loops), 3 if "R" in block.kinds else 2)
    first = len(block.loops) - count
    for i in range(count):
        yield Step("split", f"{c.loop_of(block, first + 2 * i)}, factors=[None, 4]")
    order = [first + i for i in (*range(0, 2 * count, 2), *range(1, 2 * count, 2))]
    yield Step("reorder", ", ".join(c.loop_of(block, i) for i in order))
    if block.reduction and c.maybe(0.85):
        at = first + c.rng.choice((0, count - 1, count - 1))
        yield Step("decompose_reduction", f"{c.handle(block)}, {c.loop_of(block, at)}")


def _inside(name: str) -> Callable[[Chooser], Iterator[Step]]:
    """Bring a producer under a consumer's loop."""

    def run(c: Chooser) -> Iterator[Step]:
        blocks = c.view.named()
        pairs = [(a, b) for a in blocks for b in blocks if a is not b and b.loops and set(a.writes) & set(b.reads)]
        if not pairs:
            raise Impossible
        a, b = c.rng.choice(pairs)
        if name == "reverse_compute_at":
            if not a.loops:
                raise Impossible
            yield Step(name, f"{c.handle(b)}, {c.loop_of(a, c.rng.randrange(len(a.loops)))}")
        else:
            yield Step(name, f"{c.handle(a)}, {c.loop_of(b, c.rng.randrange(len(b.loops)))}")

    return run


def _split_reduction(c: Chooser) -> Iterator[Step]:
    block = c.pick(_has("R"))
    at = [i for i, k in enumerate(block.kinds) if k == "R" and i < len(block.loops)]
    if not at:
        raise Impossible
    yield Step("split", f"{c.loop_of(block, c.rng.choice(at))}, factors=[None, {c.rng.choice((2, 3, 4, 8))}]")


# ---------------------------------------------------------------- look-up


@primitive(name="get_block")
def _get_block(c: Chooser) -> str:
    block = c.pick()
    name = block.name if c.well() else c.rng.choice(("nowhere", "", "root", block.name.upper()))
    return f'"{name}"' + c.rng.choice(("", "", "", ', "main"', ', func_name="other"'))


@primitive()
def get_loops(c: Chooser) -> str:
    return '"root"' if c.maybe(0.1) else c.block()[0]


@primitive()
def get_child_blocks(c: Chooser) -> str:
    roll = c.rng.random()
    return 'sch.get_block("root")' if roll < 0.3 else c.place()


@primitive("elementwise diamond softmax matmul_chain two_matmuls shifted opaque conv2d")
def get_producers(c: Chooser) -> str:
    return c.block()[0]


@primitive("elementwise diamond softmax matmul_chain two_matmuls shifted opaque conv2d")
def get_consumers(c: Chooser) -> str:
    return c.block()[0]


@primitive("elementwise diamond softmax matmul_chain nested")
def get_output_blocks(c: Chooser) -> str:
    return c.rng.choice(('"root"', 'sch.get_block("root")', 'sch.get_block("root")', c.block()[0]))


# ---------------------------------------------------------------- loops


@primitive(common=5, gives="loops")
def split(c: Chooser) -> str:
    loop, seen, _ = c.loop(_free)
    factors = c.rng.choice(c.held_factors) if c.held_factors and c.maybe(0.5) else c.factors(seen.extent)
    return f"{loop}, factors={factors}{c.flag('preserve_unit_iters')}{c.flag('disable_predication', 0.1)}"


@primitive(gives="loops")
def loop_partition(c: Chooser) -> str:
    loop, seen, _ = c.loop(_free)
    rng = c.rng
    made: list[int | None] = [rng.choice((1, 2, 3, 4, 5)) for _ in range(rng.choice((1, 2, 2, 3)))]
    if c.maybe(0.7):
        made[rng.randrange(len(made))] = None
    if c.maybe(0.08):
        made[0] = rng.choice((0, -2, 500))
    return f"{loop}, factors={made}{c.flag('preserve_unit_iters', 0.15)}"


def _run(c: Chooser, size: int | None = None) -> list[str]:
    """Loops that follow one another above a block."""
    block = c.pick(lambda b: len(b.loops) > 1)
    if len(block.loops) < 1:
        raise Impossible
    size = min(size or c.rng.choice((2, 2, 3, 4)), len(block.loops))
    start = c.rng.randrange(len(block.loops) - size + 1)
    return [c.loop_of(block, i) for i in range(start, start + size)]


@primitive(common=2, gives="loop")
def fuse(c: Chooser) -> str:
    loops = _run(c)
    if not c.well():
        roll = c.rng.randrange(4)
        if roll == 0:
            loops.reverse()
        elif roll == 1:
            loops = [loops[0], c.loop()[0]]
        elif roll == 2:
            loops = [*loops, loops[0]]
        else:
            loops = loops[:1]
    return ", ".join(loops) + c.flag("preserve_unit_iters")


@primitive("separate diamond elementwise softmax layer_norm same_nest", gives="loop")
def merge(c: Chooser) -> str:
    blocks = [b for b in c.view.named() if b.loops]
    if not blocks:
        raise Impossible
    chosen = c.rng.sample(blocks, min(len(blocks), c.rng.choice((2, 2, 2, 3))))
    depth = c.rng.randrange(min(len(b.loops) for b in chosen)) if c.maybe(0.5) else 0
    if c.well():
        return ", ".join(c.loop_of(b, depth) for b in chosen)
    return ", ".join(c.loop_of(b, c.rng.randrange(len(b.loops))) for b in chosen)


@primitive(common=3)
def reorder(c: Chooser) -> str:
    block = c.pick(lambda b: len(b.loops) > 1)
    if not block.loops:
        raise Impossible
    count = c.rng.randint(2, max(2, len(block.loops)))
    indices = c.rng.sample(range(len(block.loops)), min(count, len(block.loops)))
    loops = [c.loop_of(block, i) for i in indices]
    if not c.well() and c.maybe(0.5):
        loops.append(c.rng.choice((loops[0], c.loop()[0])))
    return ", ".join(loops)


@primitive()
def reorder_block_iter_var(c: Chooser) -> str:
    handle, block = c.block(lambda b: len(b.kinds) > 1, text=False)
    order = [*range(len(block.kinds))]
    c.rng.shuffle(order)
    if not c.well():
        order = c.rng.choice((order[:-1], [*order, 0], [0] * len(order), [len(order), *order[1:]], [-1, *order[1:]]))
    return f"{handle}, {order}"


@primitive(common=0.5, gives="loop")
def add_unit_loop(c: Chooser) -> str:
    return c.place()


def _kind(c: Chooser) -> str:
    return c.loop(_free)[0]


primitive(common=0.4, name="parallel")(_kind)
primitive(common=0.4, name="vectorize")(_kind)
primitive(common=0.4, name="unroll")(_kind)


_AXES = ("blockIdx.x", "blockIdx.y", "threadIdx.x", "threadIdx.x", "threadIdx.y", "threadIdx.z", "vthread", "vthread.x")


@primitive(common=0.2)
def bind(c: Chooser) -> str:
    axis = c.rng.choice(_AXES if c.maybe(0.97) else ("warp", "threadIdx.w"))
    return f'{c.loop(_free)[0]}, "{axis}"' if c.maybe(0.6) else f'{c.loop(_free)[0]}, thread_axis="{axis}"'


# ---------------------------------------------------------------- stages


def _consumers(c: Chooser, block: BlockView) -> str:
    if not c.maybe(0.2):
        return ""
    other = c.pick()
    return (
        f", consumer_blocks=[{c.handle(other)}]"
        if c.maybe(0.7)
        else f', consumer_blocks=["{other.name}", {c.handle(block)}]'
    )


@primitive("matmul matmul_chain diamond gather nested softmax conv2d predicated", common=1, gives="block")
def cache_read(c: Chooser) -> str:
    handle, block = c.block(lambda b: bool(b.reads))
    return f"{handle}, {c.buffer(block.reads)}, {c.scope()}{_consumers(c, block)}"


@primitive("matmul matmul_chain diamond nested softmax conv2d predicated argmax", common=1, gives="block")
def cache_write(c: Chooser) -> str:
    handle, block = c.block(lambda b: bool(b.writes))
    return f"{handle}, {c.buffer(block.writes)}, {c.scope()}{_consumers(c, block)}"


_POINTS = "elementwise diamond transpose matmul conv2d depthwise batch_matmul resize matmul_chain"


def _axis_map(c: Chooser, block: BlockView) -> str:
    """A map from a block's axes to the indices of a buffer."""
    names = [f"v{i}" for i in range(len(block.kinds))]
    if not names:
        return "lambda: ()"
    keep = [n for n, k in zip(names, block.kinds, strict=True) if k == "S" or c.maybe(0.5)] or list(names)
    c.rng.shuffle(keep)
    if c.maybe(0.3):
        keep = c.rng.sample(keep, max(1, len(keep) - 1))
    if c.maybe(0.35):
        at, f = c.rng.randrange(len(keep)), c.rng.choice((2, 4, 8))
        keep[at : at + 1] = [f"{keep[at]} // {f}", f"{keep[at]} % {f}"]
    elif c.maybe(0.1):
        keep[0] = c.rng.choice((f"{keep[0]} + 1", f"{keep[0]} * 2"))
    if not c.well() and c.maybe(0.3):
        names = [*names, "extra"]
    return f"lambda {', '.join(names)}: ({', '.join(keep)},)"


@primitive(_POINTS, gives="block")
def reindex_cache_read(c: Chooser) -> str:
    handle, block = c.block(lambda b: bool(b.reads))
    return f"{handle}, {c.index(len(block.reads))}, {c.scope()}, {_axis_map(c, block)}"


@primitive(_POINTS, gives="block")
def reindex_cache_write(c: Chooser) -> str:
    handle, block = c.block(lambda b: bool(b.writes))
    return f"{handle}, {c.index(len(block.writes))}, {c.scope()}, {_axis_map(c, block)}"


@primitive("in_place in_place in_place updates matmul cumulative", gives="blocks")
def cache_inplace(c: Chooser) -> str:
    handle, block = c.block(lambda b: bool(set(b.reads) & set(b.writes)))
    return f"{handle}, {c.buffer(block.reads)}, {c.scope()}"


@primitive("resize resize resize resize resize resize gather padding", gives="blocks")
def cache_index(c: Chooser) -> str:
    handle, _ = c.block()
    return f"{handle}, {c.scope()}" + c.rng.choice(("", ", 0", ", 1", ", cse_thresh=2"))


@primitive(_POINTS, gives="block")
def reindex(c: Chooser) -> str:
    handle, block = c.block()
    side = c.rng.choice(("read", "write"))
    return f"{handle}, {c.buffer(block.reads if side == 'read' else block.writes, True, side)}"


def _at(c: Chooser, reads: bool) -> str:
    block = c.pick(lambda b: len(b.loops) > 1)
    loop = c.loop(block=block)[0] if block.loops and c.maybe(0.9) else c.loop()[0]
    buffers = block.reads if reads else block.writes
    return f"{loop}, {c.handle(block)}, {c.index(len(buffers))}, {c.scope()}"


@primitive("matmul matmul_chain conv2d elementwise batch_matmul", gives="block")
def read_at(c: Chooser) -> str:
    return _at(c, True)


@primitive("matmul matmul_chain conv2d elementwise batch_matmul", gives="block")
def write_at(c: Chooser) -> str:
    return _at(c, False)


_CHAINS = (
    "elementwise diamond matmul_chain two_matmuls conv2d softmax layer_norm blur pooling padding opaque predicated "
    "gather symbolic transpose padded_matmul shared_copy reduction shifted matched"
)


def _move(c: Chooser, forwards: bool) -> str:
    block = c.pick(lambda b: bool(b.writes))
    others = [b for b in c.view.named() if b is not block and b.loops]
    near = [b for b in others if (set(block.writes) & set(b.reads) if forwards else set(block.reads) & set(b.writes))]
    if near and c.maybe(0.85):
        loop = c.loop(block=c.rng.choice(near))[0]
    else:
        loop = c.loop()[0]
    more = c.flag("preserve_unit_loops") + (f", index={c.rng.choice((-1, -2, 0, 1, 5))}" if c.maybe(0.15) else "")
    return f"{c.handle(block) if c.maybe(0.7) else repr(block.name)}, {loop}{more}".replace("'", '"')


@primitive(_CHAINS, common=2)
def compute_at(c: Chooser) -> str:
    return _move(c, True)


@primitive(_CHAINS, common=2)
def reverse_compute_at(c: Chooser) -> str:
    return _move(c, False)


@primitive(_CHAINS, common=1)
def compute_inline(c: Chooser) -> str:
    return c.block(lambda b: bool(b.writes) and b.writes[0] not in c.view.params)[0]


@primitive(_CHAINS, common=1)
def reverse_compute_inline(c: Chooser) -> str:
    return c.block(lambda b: any(r not in c.view.params for r in b.reads))[0]


@primitive("matmul_chain matmul_chain matmul_chain padded_matmul symbolic reduction layer_norm two_matmuls")
def fuse_reduction_epilogue(c: Chooser) -> str:
    blocks = c.view.named()
    pairs = [(a, b) for a in blocks if "R" in a.kinds for b in blocks if a is not b and set(a.writes) & set(b.reads)]
    if pairs and c.maybe(0.85):
        a, b = c.rng.choice(pairs)
    else:
        a, b = c.pick(), c.pick()
    return f"{c.handle(a)}, {c.handle(b)}" if c.maybe(0.6) else f'"{a.name}", "{b.name}"'


# ---------------------------------------------------------------- reductions

_FOLDS = (
    "matmul batch_matmul matmul_chain conv2d depthwise pooling softmax layer_norm argmax reduction two_matmuls "
    "symbolic shared_copy"
)


@primitive(_FOLDS, common=1, gives="block")
def decompose_reduction(c: Chooser) -> str:
    handle, block = c.block(lambda b: b.reduction and bool(b.loops))
    if not block.loops:
        raise Impossible
    loop = c.loop(block=block)[0] if c.maybe(0.92) else c.loop()[0]
    return f"{handle}, {loop}"


@primitive(_FOLDS, setups=(_split_reduction,), common=0.5, gives="block")
def rfactor(c: Chooser) -> str:
    block = c.pick(lambda b: "R" in b.kinds and bool(b.loops))
    if not block.loops:
        raise Impossible
    first = block.kinds.count("S")
    at = (
        c.rng.randrange(min(first, len(block.loops) - 1), len(block.loops))
        if c.maybe(0.8)
        else c.rng.randrange(len(block.loops))
    )
    rank = len(block.writes[0].shape) if block.writes else 0
    axis = (
        c.rng.choice((0, 0, rank, -1, c.rng.randint(0, rank))) if c.well() else c.rng.choice((rank + 1, -rank - 2, 9))
    )
    return f"{c.loop_of(block, at)}, {axis}" if c.maybe(0.6) else f"{c.loop_of(block, at)}, factor_axis={axis}"


# ---------------------------------------------------------------- memory and layout

_TEMPORARY = "elementwise diamond matmul_chain two_matmuls softmax conv2d opaque shared_copy matched padding"


@primitive(_TEMPORARY, common=0.5)
def set_scope(c: Chooser) -> str:
    handle, block = c.block(lambda b: any(w not in c.view.params for w in b.writes))
    return f"{handle}, {c.buffer(block.writes)}, {c.scope()}"


@primitive(_TEMPORARY, setups=(_some("storage_align"),))
def storage_align(c: Chooser) -> str:
    handle, block = c.block(lambda b: any(w not in c.view.params for w in b.writes))
    rank = len(block.writes[0].shape) if block.writes else 0
    axis = c.rng.choice((-1, -2, 0, rank - 1)) if c.well() else c.rng.choice((rank, -rank - 1))
    factor, offset = c.rng.choice((16, 32, 32, 8, 1, 16, 8, 0, -1)), c.rng.choice((0, 8, 1, -1))
    return f"{handle}, {c.index(len(block.writes))}, {axis}, {factor}, {offset}"


@primitive(_TEMPORARY)
def unsafe_set_dtype(c: Chooser) -> str:
    handle, block = c.block(lambda b: any(w not in c.view.params for w in b.writes))
    dtype = c.rng.choice(("float16", "float16", "float64", "int32", "int8", "float32", "bfloat16", "bool", "nonsense"))
    return f'{handle}, {c.index(len(block.writes))}, "{dtype}"'


def _layout(c: Chooser) -> str:
    side = c.rng.choice(("read", "write"))
    handle, block = c.block(lambda b: bool(b.reads if side == "read" else b.writes))
    buffers = block.reads if side == "read" else block.writes
    chosen = buffers[c.rng.randrange(len(buffers))] if buffers else None
    rank = len(chosen.shape) if chosen is not None else 0
    dims = [getattr(d, "value", None) for d in chosen.shape] if chosen is not None else []
    where = f'("{side}", {buffers.index(chosen) if chosen is not None and c.maybe(0.95) else 7})'
    if chosen is not None and c.maybe(0.25):
        where = f'"{chosen.name}"'
    return f"{handle}, {where}, {c.index_map(rank, dims)}"


@primitive(common=0.7)
def transform_layout(c: Chooser) -> str:
    more = ""
    if c.maybe(0.25):
        more = f", pad_value={c.rng.choice(('0.0', '0.0', '0', '1', 'None', 'lambda *i: 0.0', '1.5'))}"
    if c.maybe(0.1):
        more += ", assume_injective_transform=True"
    return _layout(c) + more


@primitive(common=0.5)
def transform_block_layout(c: Chooser) -> str:
    handle, block = c.block(lambda b: len(b.kinds) == len(b.loops))
    return f"{handle}, {c.index_map(len(block.kinds), block.extents)}"


@primitive("padded_matmul padded_matmul matmul matmul_chain batch_matmul two_matmuls conv2d conv2d depthwise symbolic")
def pad_einsum(c: Chooser) -> str:
    handle, block = c.block(_has("R"))
    rng = c.rng
    padding = [rng.choice((1, 2, 4, 8, 16, 16, 32)) for _ in block.kinds]
    if len(padding) > 4 and c.maybe(0.7):  # a convolution, whose windows pad along spatial axes
        padding = [p if k == "S" else rng.choice((1, 1, 1, p)) for p, k in zip(padding, block.kinds, strict=True)]
    if not c.well():
        padding = rng.choice((padding[:-1], [*padding, 1], [0, *padding[1:]], [-4, *padding[1:]]))
    return f"{handle}, {padding}"


@primitive(
    "padding padding conv2d padded_matmul elementwise", setups=(_some("split"), _some("pad_einsum")), gives="block"
)
def decompose_padding(c: Chooser) -> str:
    return _padding(c, text=True)


@primitive("padding padding conv2d padded_matmul elementwise", setups=(_some("split"),))
def can_decompose_padding(c: Chooser) -> str:
    return _padding(c, text=False)


def _padding(c: Chooser, text: bool) -> str:
    handle, block = c.block(lambda b: "pad" in b.name and bool(b.loops), text)
    if not block.loops:
        raise Impossible
    return f"{handle}, {c.loop(block=block)[0] if c.maybe(0.92) else c.loop()[0]}"


def _rolling(c: Chooser) -> Iterator[Step]:
    """Tile the last stage, and bring the one before under its tiles."""
    block = c.view.blocks[-1]
    if not block.unique or not block.loops:
        raise Impossible
    at = c.rng.randrange(min(3, len(block.loops)))
    yield Step("split", f"{c.loop_of(block, at)}, factors=[None, {c.rng.choice((2, 4))}]")
    producers = [b for b in c.view.named() if b.name != block.name and b.loops]
    if not producers:
        raise Impossible
    depth = c.rng.choice((at, at, at + 1, 0))
    yield Step("compute_at", f"{c.handle(producers[-1])}, {c.loop_of(block, depth)}")


@primitive("pooling pooling blur blur padding conv2d elementwise", setups=(_rolling, _inside("compute_at"), _rolling))
def rolling_buffer(c: Chooser) -> str:
    handle, block = c.block(lambda b: bool(b.writes) and b.writes[0] not in c.view.params)
    return f"{handle}, {c.index(len(block.writes))}"


# ---------------------------------------------------------------- tensors and annotations


@primitive(setups=(_tiled, _tensor_tile), common=1, gives="block")
def blockize(c: Chooser) -> str:
    if c.maybe(0.2):
        blocks = c.view.named()
        if not blocks:
            raise Impossible
        chosen = c.rng.sample(blocks, min(len(blocks), c.rng.choice((1, 2, 2, 3))))
        return f"[{', '.join(c.handle(b) for b in chosen)}]{c.flag('preserve_unit_iters')}"
    return f"{c.loop(_free)[0]}{c.flag('preserve_unit_iters')}"


@primitive("tiles tiles tiles tiles matmul matmul_chain elementwise batch_matmul", setups=(_tensor_tile,))
def tensorize(c: Chooser) -> str:
    fours = [
        (b, n)
        for b in c.view.named()
        for n in (3, 2)
        if len(b.loops) >= n and (n == 3) == ("R" in b.kinds) and all(x.extent == 4 for x in b.loops[-n:])
    ]
    if fours and c.maybe(0.85):
        block, n = c.rng.choice(fours)
        where = c.loop_of(block, len(block.loops) - n)
        intrin = "mma_4x4x4" if n == 3 else c.rng.choice(("fill_4x4", "copy_4x4")) if block.reads else "fill_4x4"
        if block.reads and n == 2 and c.maybe(0.7):
            intrin = "copy_4x4"
    elif c.maybe(0.7):
        raise Impossible
    else:
        where, intrin = c.place(), c.rng.choice(("mma_4x4x4", "fill_4x4", "no_such_intrinsic"))
    if c.maybe(0.5):
        intrin += "_loops"
    return f'{where}, "{intrin}"{c.flag("preserve_unit_iters", 0.1)}'


_VALUES = ("1", "0", "-3", '"text"', "2.5", "[1, 2, 3]", '["a", "b"]', "True", '{"k": 1}', "64", '["x", 1]')
_KEYS = ("note", "pragma_auto_unroll_max_step", "warp_execution", "meta_schedule.unroll_explicit", "tirx.note", "")


@primitive(common=0.5)
def annotate(c: Chooser) -> str:
    place, key = c.place(), c.rng.choice(_KEYS)
    c.annotated.append((place, key))
    return f'{place}, "{key}", {c.rng.choice(_VALUES)}'


def _annotated(c: Chooser) -> Iterator[Step]:
    for _ in range(c.rng.choice((1, 1, 2))):
        yield Step("annotate", annotate(c))


@primitive("kinds_of_loops elementwise matmul scalars", setups=(_annotated,))
def unannotate(c: Chooser) -> str:
    if c.annotated and c.maybe(0.8):
        place, key = c.rng.choice(c.annotated)
        return f'{place}, "{key}"'
    return f'{c.place()}, "{c.rng.choice(("note", "note", "pragma_note", "warp_execution", "nothing"))}"'


@primitive()
def unsafe_hide_buffer_access(c: Chooser) -> str:
    handle, block = c.block(text=False)
    side = c.rng.choice(("read", "read", "write", "both")) if c.maybe(0.5) else c.rng.choice(("read", "write"))
    count = len(block.reads if side == "read" else block.writes)
    indices = [c.index(count) for _ in range(c.rng.choice((0, 1, 1, 1, 2)))]
    return f'{handle}, "{side}", {indices}'


@primitive("elementwise gather matmul diamond resize nested")
def annotate_buffer_access(c: Chooser) -> str:
    handle, block = c.block(text=False)
    side = c.rng.choice(("read", "write")) if c.maybe(0.95) else "both"
    buffers = block.reads if side == "read" else block.writes
    names = [f"v{i}" for i in range(len(block.kinds))]
    ranges = [
        c.rng.choice((f"({n} - 1, {n} + 1)", f"({n}, {n} + 1)", n, f"({n} * 2, {n} * 2 + 2)", "(0, 4)")) for n in names
    ]
    if not c.well():
        ranges = c.rng.choice((ranges[:-1], [*ranges, "0"], ranges))
    region = "".join(f"{r}, " for r in ranges).rstrip()
    return f'{handle}, {c.index(len(buffers))}, "{side}", lambda {", ".join(names)}: ({region})'


# ---------------------------------------------------------------- chance


@primitive(common=0.5, gives="factors")
def sample_perfect_tile(c: Chooser) -> str:
    loop, seen, _ = c.loop(_free)
    rng = c.rng
    n, limit = rng.choice((1, 2, 2, 3, 4)), rng.choice((4, 16, 16, 64))
    if not c.well():
        n = rng.choice((0, -1, n))
        limit = rng.choice((0, 1, 64))
    left, decision = seen.extent or 16, []
    for _ in range(max(n - 1, 0)):
        d = rng.choice([d for d in range(1, left + 1) if left % d == 0])
        decision.append(d)
        left //= d
    decision = [*([left] if n > 0 else []), *decision]
    if c.maybe(0.1):
        decision = [rng.choice((1, 2, 3)) for _ in range(rng.choice((n, n + 1)))]
    return f"{loop}, {'n=' if c.maybe(0.7) else ''}{n}, max_innermost_factor={limit}, decision={decision}"


@primitive(gives="factors")
def sample_partitioned_tile(c: Chooser) -> str:
    loop, seen, _ = c.loop(_free)
    rng = c.rng
    n = rng.choice((2, 3, 4))
    at, inner = rng.randint(1, n - 1), rng.choice((1, 2, 4, 4, 8))
    if not c.well():
        n, at, inner = rng.choice(((0, 0, 1), (n, n, inner), (n, -1, inner), (n, at, 0), (n, at, 500)))
    extent = seen.extent or 16
    unit = inner if 0 < inner <= extent and extent % inner == 0 else 1
    left, decision = extent // unit, []
    for _ in range(max(n - 1, 0)):
        d = rng.choice([d for d in range(1, left + 1) if left % d == 0])
        decision.append(d)
        left //= d
    decision.append(left * unit)
    return f"{loop}, n={n}, partition_pos={at}, innerpart_factor={inner}, decision={decision}"


@primitive(gives="value")
def sample_categorical(c: Chooser) -> str:
    rng = c.rng
    candidates = rng.sample((0, 1, 2, 4, 8, 16, 64), rng.randint(1, 4))
    probs = [round(1 / len(candidates), 3) for _ in candidates]
    decision = rng.randrange(len(candidates))
    if not c.well():
        probs = rng.choice((probs[:-1], probs))
        decision = rng.choice((len(candidates), -1, decision))
    return f"{candidates}, {probs}, decision={decision}"


@primitive(_CHAINS, gives="loop")
def sample_compute_location(c: Chooser) -> str:
    handle, _ = c.block()
    return f"{handle}, decision={c.rng.choice((-2, -1, 0, 0, 1, 1, 2, 3, 9))}"


# what may change the numbers: the caller says that it does not
UNSAFE = {"unsafe_set_dtype", "unsafe_hide_buffer_access", "annotate_buffer_access"}


# ---------------------------------------------------------------- whole cases


def implemented(name: str) -> bool:
    """Whether mlcc has that primitive."""
    try:
        registry.find(name)
        if name == "sample_compute_location":
            importlib.import_module("mlcc.passes.schedule.primitives.compute_location")
    except (ModuleNotFoundError, KeyError):
        return False
    return True


def steps(chooser: Chooser, name: str) -> Iterator[Step]:
    """The steps of a case for that primitive, one by one; `chooser.view` is brought up to date in between."""
    chosen = PRIMITIVES[name]
    rng = chooser.rng
    if rng.random() < 0.2:
        yield from _hold(chooser)
    if chosen.setups and rng.random() < 0.65:
        yield from _tolerant(rng.choice(chosen.setups), chooser)
    for _ in range(rng.choice((0, 0, 0, 1, 1, 2, 3, 4))):
        yield from preparation(chooser)
    chooser.is_final = True
    yield final(chooser, name)


def _tolerant(setup: Callable[[Chooser], Iterator[Step]], chooser: Chooser) -> Iterator[Step]:
    try:
        yield from setup(chooser)
    except Impossible:
        return


def preparation(chooser: Chooser) -> Iterator[Step]:
    """One random step of those that are often used."""
    names = [n for n, p in PRIMITIVES.items() if p.common]
    name = chooser.rng.choices(names, [PRIMITIVES[n].common for n in names])[0]
    legal, chooser.legal = chooser.legal, 1.0
    try:
        yield final(chooser, name)
    except Impossible:
        pass
    finally:
        chooser.legal = legal


def final(chooser: Chooser, name: str) -> Step:
    arguments = PRIMITIVES[name].arguments(chooser)
    return Step(name, arguments, chooser.target() if PRIMITIVES[name].gives else "")


def hold(chooser: Chooser, step: Step, results: int) -> None:
    """Remember what a step gave, so that later steps may use it. `results`: how many, if it is a list."""
    gives = PRIMITIVES[step.name].gives if step.name in PRIMITIVES else ""
    if step.target == "":
        return
    if gives == "loops":
        chooser.held_loops += [f"{step.target}[{i}]" for i in range(results)]
    elif gives == "loop":
        chooser.held_loops.append(step.target)
    elif gives == "block":
        chooser.held_blocks.append(step.target)
    elif gives == "blocks":
        chooser.held_blocks += [f"{step.target}[{i}]" for i in range(results)]
    elif gives == "factors" and results:
        chooser.held_factors.append(step.target)


def _hold(chooser: Chooser) -> Iterator[Step]:
    """Take handles before anything happens, to see which of them last."""
    named = [b for b in chooser.view.named() if b.loops]
    if not named:
        return
    block = chooser.rng.choice(named)
    target = chooser.target()
    yield Step("get_loops", f'"{block.name}"', target)
    chooser.held_loops += [f"{target}[{i}]" for i in range(len(block.loops))]
    target = chooser.target()
    yield Step("get_block", f'"{block.name}"', target)
    chooser.held_blocks.append(target)


def choose_program(rng: random.Random, name: str, sizes: Sequence[int] = programs.LARGE) -> tuple[str, str]:
    """The family and the text of a program for a case of that primitive."""
    own = PRIMITIVES[name].families
    family = rng.choice(own) if own and rng.random() < 0.75 else rng.choice([*programs.FAMILIES])
    return family, programs.program(family, rng.randrange(1 << 30), sizes)

"""Kernels written by hand, at random: threads hand values on through shared memory, with barriers between.

    python -m tests.fuzz.gpu_kernels --seconds 300 --seed 1 [--count N]

Each is judged by NumPy under emulation, with its barriers, and without any, where lowering has to find them. Then
faults are planted: a barrier is left out, moved under a condition, or an index is shifted. A model of the memory, apart
from the emulator's, says which of these are faults; those have to be reported, and the others must not be.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import mlcc
from mlcc.bisect.search import minimal_subset
from mlcc.ir import tir
from mlcc.reduce.outcomes import run_apart
from mlcc.targets.emulate import run_program
from tests.fuzz.reduction import seconds_allowed
from tests.lower import lower_gpu

BLOCKS = 2
PRIME = 65521
SHAPES = ((8, 1), (16, 1), (32, 1), (33, 1), (48, 1), (64, 1), (128, 1), (8, 8), (16, 3), (32, 2), (5, 7), (32, 4))


@dataclass(frozen=True)
class Item:
    """One statement. `index` is an expression of `lid` (the thread in its block) and `k` (the loop's variable)."""

    kind: str  # write, read, barrier, warp, mix
    buffer: str = ""
    index: str = ""
    below: int | None = None  # only threads up to this one
    shift: int = 0

    @property
    def at(self) -> str:
        return f"{self.index} + {self.shift}" if self.shift else self.index


@dataclass(frozen=True)
class Part:
    """Statements, `times` over; in `even` blocks only, or in all."""

    items: tuple[Item, ...]
    times: int = 1
    even: bool = False


@dataclass(frozen=True)
class Kernel:
    shape: tuple[int, int]
    sizes: dict[str, int]
    parts: tuple[Part, ...]

    @property
    def threads(self) -> int:
        return self.shape[0] * self.shape[1]

    def text(self, barriers: bool = True) -> str:
        x, y = self.shape
        n = self.threads * BLOCKS
        lines = [
            "@T.prim_func", f'def f(A: T.Buffer(({n},), "int32"), B: T.Buffer(({n},), "int32")):',
            *(['    T.func_attr({"mlcc.manual_barriers": True})'] * barriers),
            f'    bx = T.launch_thread("blockIdx.x", {BLOCKS})', f'    tx = T.launch_thread("threadIdx.x", {x})',
            *([f'    ty = T.launch_thread("threadIdx.y", {y})'] * (y > 1)),
            *(f'    {b} = T.alloc_buffer(({size},), "int32", scope="shared")' for b, size in self.sizes.items()),
            '    L = T.alloc_buffer((1,), "int32", scope="local")',
            f"    L[0] = A[bx * {self.threads} + {_lid(y, x)}]",
        ]  # fmt: skip
        for part in self.parts:
            pad = "    "
            if part.even:
                lines.append(f"{pad}if bx % 2 == 0:")
                pad += "    "
            if part.times > 1:
                lines.append(f"{pad}for k in range({part.times}):")
                pad += "    "
            body = [line for item in part.items for line in _lines(item, barriers)]
            lines += [f"{pad}{line}" for line in body or ["L[0] = L[0]"]]
        lines.append(f"    B[bx * {self.threads} + lid] = L[0]")
        text = "\n".join([*lines[:-1], lines[-1]]) + "\n"
        return text.replace("lid", _lid(y, x))

    def steps(self, block: int) -> Iterator[tuple[Item, int]]:
        for part in self.parts:
            if not part.even or block % 2 == 0:
                for k in range(part.times):
                    for item in part.items:
                        yield item, k

    def where(self, item: Item, k: int) -> np.ndarray:
        """The element of each thread; those that take no part have -1."""
        lid = np.arange(self.threads)
        made = np.broadcast_to(eval(item.at, {"__builtins__": {}, "lid": lid, "k": k, "T": np}), lid.shape)
        return made if item.below is None else np.where(lid < item.below, made, -1)


def _lid(y: int, x: int) -> str:
    return f"(ty * {x} + tx)" if y > 1 else "tx"


def _lines(item: Item, barriers: bool) -> list[str]:
    match item.kind:
        case "barrier" | "warp":
            scope = "shared" if item.kind == "barrier" else "warp"
            line = f'T.tvm_storage_sync("{scope}")'
            return ([line] if item.below is None else [f"if lid < {item.below}:", f"    {line}"]) if barriers else []
        case "mix":
            return [f"L[0] = (L[0] * 5 + lid * 3 + 1) % {PRIME}"]
        case "write":
            line = f"{item.buffer}[{item.at}] = L[0]"
        case _:
            line = f"L[0] = (L[0] * 3 + {item.buffer}[{item.at}] + lid) % {PRIME}"
    return [line] if item.below is None else [f"if lid < {item.below}:", f"    {line}"]


# ---------------------------------------------------------------- what it computes, and where it is wrong


def computed(kernel: Kernel, given: np.ndarray) -> np.ndarray:
    """By NumPy: one statement after the other, all threads at once."""
    values = given.reshape(BLOCKS, -1).astype(np.int64)
    lid = np.arange(kernel.threads)
    for block in range(BLOCKS):
        memory = {b: np.zeros(size, np.int64) for b, size in kernel.sizes.items()}
        mine = values[block]
        for item, k in kernel.steps(block):
            if item.kind == "mix":
                mine[:] = (mine * 5 + lid * 3 + 1) % PRIME
            elif item.kind in ("write", "read"):
                at = kernel.where(item, k)
                on = at >= 0
                if item.kind == "write":
                    memory[item.buffer][at[on]] = mine[on]
                else:
                    mine[on] = (mine[on] * 3 + memory[item.buffer][at[on]] + lid[on]) % PRIME
    return values.reshape(-1).astype(given.dtype)


def faults(kernel: Kernel) -> set[str]:
    """What threads do wrong, as codes, by a model that keeps all accesses: who, where, between which barriers."""
    found: set[str] = set()
    for block in range(BLOCKS):
        seen: dict[tuple[str, int], list[tuple[int, bool, int, int]]] = {}
        epoch = warp_epoch = 0
        for item, k in kernel.steps(block):
            if item.kind in ("barrier", "warp"):
                if item.below is not None and item.kind == "barrier":
                    return {"E0740"}  # what follows is anyone's
                epoch += item.kind == "barrier"
                warp_epoch += 1
                continue
            if item.kind == "mix":
                continue
            writes = item.kind == "write"
            for thread, at in enumerate(kernel.where(item, k).tolist()):
                if at == -1 and item.below is not None and thread >= item.below:
                    continue
                if not 0 <= at < kernel.sizes[item.buffer]:
                    found.add("E0744")
                    continue
                past = seen.setdefault((item.buffer, at), [])
                if not writes and not any(wrote for _, wrote, _, _ in past):
                    found.add("E0743")
                for other, wrote, when, warp_when in past:
                    apart = other != thread and when == epoch
                    ordered = other // 32 == thread // 32 and warp_when != warp_epoch
                    if apart and not ordered and (writes or wrote):
                        found.add("E0741" if writes and wrote else "E0742")
                past.append((thread, writes, epoch, warp_epoch))
    return found


# ---------------------------------------------------------------- making them


def made(rng: random.Random) -> Kernel:
    """A kernel without faults; barriers that it does without are left out, or some of them."""
    shape = rng.choice(SHAPES)
    threads = shape[0] * shape[1]
    sizes = {b: threads * rng.choice((1, 1, 2)) for b in ("S", "Q")[: rng.choice((1, 1, 2))]}
    parts: list[Part] = [Part(tuple(x for b in sizes for x in _filled(b, sizes[b], threads)))]
    for _ in range(rng.randint(1, 4)):
        times, items = rng.choice((1, 1, 2, 3)), []
        for _ in range(rng.randint(1, 3)):
            kind, buffer = rng.choice(("write", "read", "read", "mix")), rng.choice([*sizes])
            below = rng.choice((None, None, None, rng.randint(1, threads)))
            if kind == "mix":
                items.append(Item("mix"))
                continue
            items += [Item(kind, buffer, _index(rng, kind, sizes[buffer], threads, times > 1), below), Item("barrier")]
        parts.append(Part(tuple(items), times, rng.random() < 0.15))
    kernel = Kernel(shape, sizes, tuple(parts))
    for place in reversed(_barriers(kernel)):  # those before keep their places
        if rng.random() < 0.7:
            fewer = _without(kernel, place)
            weaker = _changed(kernel, place, kind="warp")
            kernel = fewer if not faults(fewer) else weaker if not faults(weaker) else kernel
    assert not faults(kernel)
    return kernel


def _filled(buffer: str, size: int, threads: int) -> list[Item]:
    return [x for n in range(size // threads) for x in (Item("write", buffer, f"lid + {n * threads}"), Item("barrier"))]


def _index(rng: random.Random, kind: str, size: int, threads: int, in_loop: bool) -> str:
    by = rng.choice([a for a in range(1, threads + 1) if np.gcd(a, threads) == 1])
    forms = ["lid", f"{threads - 1} - lid", f"(lid * {by} + {rng.randrange(threads)}) % {threads}"]
    if in_loop:
        forms += [f"(lid + k) % {threads}", f"(lid * {by} + k * 3) % {threads}"]
    if threads & (threads - 1) == 0:
        forms += [f"T.bitwise_xor(lid, {rng.randrange(1, threads)})"]
    if kind == "read":
        forms += ["lid // 2", "0", f"lid % {rng.choice((2, 4, 5))}"]
    made = rng.choice(forms)
    if size > threads:
        made += f" + k % 2 * {threads}" if in_loop and rng.random() < 0.6 else rng.choice(("", f" + {threads}"))
    return made


def _barriers(kernel: Kernel) -> list[tuple[int, int]]:
    return [(p, i) for p, i in _items(kernel) if kernel.parts[p].items[i].kind in ("barrier", "warp")]


def _items(kernel: Kernel) -> list[tuple[int, int]]:
    return [(p, i) for p, part in enumerate(kernel.parts) for i in range(len(part.items))]


def _without(kernel: Kernel, place: tuple[int, int]) -> Kernel:
    return _with(kernel, place, ())


def _changed(kernel: Kernel, place: tuple[int, int], **changes: Any) -> Kernel:
    return _with(kernel, place, (replace(kernel.parts[place[0]].items[place[1]], **changes),))


def _with(kernel: Kernel, place: tuple[int, int], items: Sequence[Item]) -> Kernel:
    at, number = place
    part = kernel.parts[at]
    new = replace(part, items=(*part.items[:number], *items, *part.items[number + 1 :]))
    return replace(kernel, parts=(*kernel.parts[:at], new, *kernel.parts[at + 1 :]))


def planted(kernel: Kernel, rng: random.Random) -> Iterator[tuple[str, Kernel]]:
    """The kernel with one thing changed, and what that is."""
    barriers = [place for place in _barriers(kernel) if kernel.parts[place[0]].items[place[1]].kind == "barrier"]
    accesses = [place for place in _items(kernel) if kernel.parts[place[0]].items[place[1]].index]
    if barriers:
        yield "barrier left out", _without(kernel, rng.choice(barriers))
        yield "barrier of a warp only", _changed(kernel, rng.choice(barriers), kind="warp")
        if kernel.threads > 1:
            below = rng.randrange(1, kernel.threads)
            yield "barrier under a condition", _changed(kernel, rng.choice(barriers), below=below)
    yield "index shifted", _changed(kernel, rng.choice(accesses), shift=rng.choice((1, -1, 2, kernel.threads)))


# ---------------------------------------------------------------- judging


def run(kernel: Kernel, given: np.ndarray, barriers: bool = True) -> tuple[np.ndarray, set[str]]:
    """What the kernel gives under emulation, and the codes of what is reported."""
    func = mlcc.parse(kernel.text(barriers))["f"]
    assert isinstance(func, tir.PrimFunc)
    result = np.zeros_like(given)
    try:
        run_program(lower_gpu("f", func), given.copy(), result)
    except mlcc.CallError as exc:
        return result, {d.code for d in exc.diagnostics}
    return result, set()


def wrong_numbers(kernel: Kernel, given: np.ndarray, barriers: bool) -> str:
    """What is wrong with a kernel that has no faults; without `barriers`, lowering has to find them."""
    got, codes = run(kernel, given, barriers)
    return "" if not codes and np.array_equal(got, computed(kernel, given)) else f"{sorted(codes) or 'other numbers'}"


def wrong_report(expected: set[str], codes: set[str]) -> str:
    """What is wrong with the codes that are reported of a kernel that may have faults."""
    if bool(expected) == bool(codes & expected if expected else codes):
        return ""
    return f"{sorted(codes) or 'nothing'} reported for {sorted(expected) or 'nothing'}"


def check(seed: str, counts: Counter[str]) -> list[str]:
    """What is wrong with one kernel and its faults, each with a small kernel like it; they are counted."""
    rng = random.Random(seed)
    kernel = made(rng)
    given = np.random.default_rng(rng.randrange(1 << 30)).integers(0, PRIME, kernel.threads * BLOCKS).astype("int32")
    wrong = []
    for barriers in (True, False):
        said = wrong_numbers(kernel, given, barriers)
        how = "as it is" if barriers else "with barriers by lowering"
        if said:
            small = smallest(kernel, lambda k: "" if faults(k) else wrong_numbers(k, given, barriers))  # noqa: B023
            wrong.append(f"{seed} {how}: {said}\n{written(small, barriers)}")
        counts[f"{how}: {'wrong' if said else 'equal'}"] += 1
    for what, changed in planted(kernel, rng):
        expected, (_, codes) = faults(changed), run(changed, given)
        said = wrong_report(expected, codes)
        if said:
            small = smallest(changed, lambda k: wrong_report(faults(k), run(k, given)[1]))
            wrong.append(f"{seed} {what}: {said}\n{written(small, True)}")
        counts[f"{what}: {'a fault' if expected else 'no fault'}, {'reported' if codes else 'not reported'}"] += 1
    return wrong


def smallest(kernel: Kernel, wrong: Callable[[Kernel], str]) -> Kernel:
    """Return the kernel with as few statements as have the same wrong with them, as far as time allows."""
    end = time.monotonic() + seconds_allowed()
    sought = run_apart(lambda: wrong(kernel), seconds_allowed()) if seconds_allowed() > 0 else ""

    def only(places: Sequence[tuple[int, int]]) -> Kernel:
        kept = set(places)
        parts = [
            replace(part, items=tuple(x for i, x in enumerate(part.items) if (p, i) in kept))
            for p, part in enumerate(kernel.parts)
        ]
        return replace(kernel, parts=tuple(part for part in parts if part.items))

    def holds(places: Sequence[tuple[int, int]]) -> bool:
        left = end - time.monotonic()
        return left > 0 and run_apart(lambda: wrong(only(places)), left) == sought

    return only(minimal_subset(_items(kernel), holds)) if sought else kernel


def written(kernel: Kernel, barriers: bool) -> str:
    """Write the text of a kernel to a new file; return the path and the text."""
    text = kernel.text(barriers)
    handle, path = tempfile.mkstemp(prefix="mlcc-reduced-", suffix=".mlc")
    with open(handle, "w") as file:
        file.write(text)
    return f"a small program: {path}\n{text}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.fuzz.gpu_kernels", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--count", type=int, default=1 << 30)
    parser.add_argument("--seed", default="1")
    asked = parser.parse_args(argv)
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    end, number = time.monotonic() + asked.seconds, 0
    while number < asked.count and time.monotonic() < end:
        wrong += check(f"{asked.seed}/{number}", counts)
        number += 1
    for text in wrong:
        print(text)
    for name in sorted(counts):
        print(f"{counts[name]:8} {name}")
    print(f"{number} kernels, {len(wrong)} findings")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())

"""Mutations of source texts: of bytes, of tokens, of lines, of brackets. Seeded: a case is its number."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

TOKEN = re.compile(r"\s+|[A-Za-z_][A-Za-z_0-9]*|\d+(?:\.\d+)?|\"[^\"\n]*\"|#[^\n]*|.", re.S)
WORDS = [
    "T.grid", "T.block", "R.Tensor", "R.dataflow", "T.init", "0", "-1", "2**63", "9999999999999999999999",
    "1e400", "None", "True", "\"float32\"", "\"float99\"", "\"\"", "T.int64()", "lambda x: x", "...", "[]",
    "{}", "()", "for", "with", "def", "class", "return", "not", "T.axis.remap", "R.call_tir", "cls", "vi", "\\",
    "\t", "\n", ":", ",", "=", "@", "*", "**", "nan", "T.float32", "//", "%", "<<", "R.const",
    "metadata[\"relax.expr.Constant\"][0]", "# mlcc.data a float32 4 AAAA",
    "sch", "sch.split", "sch.get_loops", "sch.reorder", "factors=[None, 4]", "range(10**9)", "while True:",
    "lambda i, j: (j, i)", "[-1]", "*rest", "sch.fuse", "sch.merge", "sch.parallel", "sch.vectorize", "sch.bind",
    "sch.cache_read", "sch.cache_write", "sch.rfactor", "sch.decompose_reduction", "sch.compute_inline",
    "sch.loop_partition", "sch.add_unit_loop", "sch.set_scope", "sch.storage_align", "sch.pad_einsum", "sch.unannotate",
    "sch.rolling_buffer", "sch.reorder_block_iter_var", "sch.sample_partitioned_tile", "sch.sample_compute_location",
    '"C"', '"Y"', '"shared"', '"threadIdx.x"', "sch.get", "sch.get_consumers", "[0, 1]", "preserve_unit_iters=False",
]  # fmt: skip


def mutate(text: str, pool: list[str], seed: str) -> bytes:
    """A mutated text as bytes; one to five mutations, the same for the same seed."""
    rng = random.Random(seed)
    if rng.random() < 0.25:
        return mutate_bytes(text.encode(), rng)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5))):
        text = rng.choice(MUTATORS)(text, pool, rng)
    return text.encode("utf-8", "surrogatepass")


def mutate_bytes(raw: bytes, rng: random.Random) -> bytes:
    """A few bytes cut out, put in or changed."""
    data = bytearray(raw)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(4)
        if kind == 0:
            del data[at : at + rng.randint(1, 30)]
        elif kind == 1:
            data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randint(1, 4)))
        elif kind == 2 and data:
            data[at % len(data)] ^= 1 << rng.randrange(8)
        else:
            del data[at:]
    return bytes(data)


def _tokens(text: str) -> list[str]:
    return TOKEN.findall(text)


def _replace_token(text: str, pool: list[str], rng: random.Random) -> str:
    words = _tokens(text)
    if not words:
        return text
    other = _tokens(rng.choice(pool))
    words[rng.randrange(len(words))] = rng.choice(WORDS) if rng.random() < 0.5 or not other else rng.choice(other)
    return "".join(words)


def _drop_token(text: str, pool: list[str], rng: random.Random) -> str:
    words = _tokens(text)
    if words:
        at = rng.randrange(len(words))
        del words[at : at + rng.randint(1, 3)]
    return "".join(words)


def _swap_tokens(text: str, pool: list[str], rng: random.Random) -> str:
    words = _tokens(text)
    if len(words) > 1:
        a, b = rng.randrange(len(words)), rng.randrange(len(words))
        words[a], words[b] = words[b], words[a]
    return "".join(words)


def _lines(
    change: Callable[[list[str], list[str], random.Random], None],
) -> Callable[[str, list[str], random.Random], str]:
    def mutator(text: str, pool: list[str], rng: random.Random) -> str:
        lines = text.split("\n")
        change(lines, rng.choice(pool).split("\n"), rng)
        return "\n".join(lines)

    return mutator


@_lines
def _drop_line(lines: list[str], other: list[str], rng: random.Random) -> None:
    del lines[rng.randrange(len(lines))]


@_lines
def _repeat_line(lines: list[str], other: list[str], rng: random.Random) -> None:
    at = rng.randrange(len(lines))
    lines[at:at] = [lines[at]] * rng.choice((1, 1, 2, 50))


@_lines
def _foreign_line(lines: list[str], other: list[str], rng: random.Random) -> None:
    lines.insert(rng.randrange(len(lines) + 1), rng.choice(other))


@_lines
def _move_line(lines: list[str], other: list[str], rng: random.Random) -> None:
    line = lines.pop(rng.randrange(len(lines)))
    lines.insert(rng.randrange(len(lines) + 1), line)


@_lines
def _indent_line(lines: list[str], other: list[str], rng: random.Random) -> None:
    at = rng.randrange(len(lines))
    lines[at] = " " * rng.choice((1, 4, 8)) + lines[at] if rng.random() < 0.6 else lines[at].lstrip()


@_lines
def _graft_block(lines: list[str], other: list[str], rng: random.Random) -> None:
    """A subtree of another program: a line and all that is indented below it."""
    start = rng.randrange(len(other))
    depth = len(other[start]) - len(other[start].lstrip())
    end = start + 1
    while end < len(other) and (not other[end].strip() or len(other[end]) - len(other[end].lstrip()) > depth):
        end += 1
    at = rng.randrange(len(lines) + 1)
    shift = (len(lines[at]) - len(lines[at].lstrip()) if at < len(lines) else 0) - depth
    lines[at:at] = [(" " * max(0, len(x) - len(x.lstrip()) + shift)) + x.lstrip() for x in other[start:end]]


def _change_number(text: str, pool: list[str], rng: random.Random) -> str:
    found = list(re.finditer(r"\b\d+\b", text))
    if not found:
        return text
    at = rng.choice(found)
    return text[: at.start()] + str(rng.choice((0, 1, 2, 3, 7, 127, 2**31, 2**63, 10**30, -5))) + text[at.end() :]


def _rename(text: str, pool: list[str], rng: random.Random) -> str:
    names = sorted(set(re.findall(r"\b[A-Za-z_]\w*\b", text)))
    if len(names) < 2:
        return text
    old, new = rng.sample(names, 2)
    at = rng.choice(list(re.finditer(rf"\b{old}\b", text)))
    return text[: at.start()] + new + text[at.end() :]


def _nest(text: str, pool: list[str], rng: random.Random) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice("([{-") * rng.choice((1, 20, 3000)) + text[at:]


MUTATORS = (
    _replace_token, _replace_token, _drop_token, _swap_tokens, _drop_line, _repeat_line, _foreign_line, _move_line,
    _indent_line, _graft_block, _graft_block, _change_number, _change_number, _rename, _rename, _nest,
)  # fmt: skip

"""Software pipelines in the source: loops annotated with `software_pipeline_stage`, and the parts that the numbers
refer to.

The numbers count the statements of the loop's body: those of the block in it if that is all there is, and in place of
a block among them that has several statements (its init counts as one) those. An inner pipeline counts as three:
prologue, body, epilogue. `realize_blocks` brackets them, because a block becomes any number of statements.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlcc.errors import CompileError, error
from mlcc.ir import tir
from mlcc.ir.tir import Stmt

STAGE, ORDER = "software_pipeline_stage", "software_pipeline_order"
ASYNC_STAGES = "software_pipeline_async_stages"
ROLLED = "mlcc.pipeline_rolled"  # of a loop: the epilogue runs inside it, with the first stages under a condition
PART = "software_pipeline_part"  # the key of the attribute statements around the parts of an iteration
DOUBLE_BUFFER = "double_buffer_scope"  # of a block: the index of the written buffer that gets two versions or more
BULK_COPY = "mlcc.bulk_copy"  # of a block: the copy engine of a GPU makes the copy (`mlcc.passes.gpu.bulk_tiles`)
ROUND_TF32 = "mlcc.round_tf32"  # of a block: what it copies is rounded to tf32 (`mlcc.passes.lowering.tf32`)
MAX_STAGES = 16


@dataclass(frozen=True, slots=True)
class PipelinePlan:
    """A software pipeline: `stage[i]` and `order[i]` of part i.

    Part i works on the iteration `stage` before that of the loop, and stands at place `order` in the loop's body.
    Copies to shared memory in `asynchronous` stages need not end there.
    """

    stage: tuple[int, ...]
    order: tuple[int, ...]
    asynchronous: frozenset[int]

    @property
    def depth(self) -> int:
        """Return the number of iterations by which the last stage lags behind the loop."""
        return max(self.stage, default=0)


def is_pipelined(stmt: Stmt) -> bool:
    """Return True if a statement is a loop annotated for software pipelining."""
    return isinstance(stmt, tir.For) and STAGE in stmt.annotations


def pipeline_plan(loop: tir.For) -> PipelinePlan:
    """Return the plan in the annotations of a loop. Raises CompileError E0770 if they are invalid."""
    stage = _integers(loop, STAGE)
    order = _integers(loop, ORDER) if ORDER in loop.annotations else tuple(range(len(stage)))
    asynchronous = _integers(loop, ASYNC_STAGES) if ASYNC_STAGES in loop.annotations else ()
    if any(not 0 <= s <= MAX_STAGES for s in stage):
        raise pipeline_error(loop, f"stages must be from 0 to {MAX_STAGES}, not {list(stage)}")
    if len(order) != len(stage):
        raise pipeline_error(loop, f"there are {len(stage)} stages, but {len(order)} positions in the order")
    if sorted(order) != list(range(len(order))):
        raise pipeline_error(loop, f"the order {list(order)} is not a permutation of 0 to {len(order) - 1}")
    return PipelinePlan(stage, order, frozenset(asynchronous))


def _integers(loop: tir.For, key: str) -> tuple[int, ...]:
    value = loop.annotations[key]
    values = value if isinstance(value, tuple) else (value,)
    integers = [tir.const_int(v) if isinstance(v, (int, tir.IntImm)) else None for v in values]
    if any(v is None for v in integers):
        raise pipeline_error(loop, f"`{key}` must be a list of integers")
    return tuple(int(v) for v in integers if v is not None)


def pipeline_error(loop: tir.For, message: str, help: str | None = None) -> CompileError:
    """Return the error for a loop that cannot be pipelined as annotated."""
    return CompileError(
        error("E0770", f"the loop `{loop.var.name}` cannot be pipelined: {message}", loop.span, help=help)
    )


def bracket_part(body: tuple[Stmt, ...], number: int) -> Stmt:
    """Return the statements bracketed as part `number` of a pipeline."""
    return tir.AttrStmt(tir.StringImm("part"), PART, number, body)


def counts_inside_blocks(loop: tir.For) -> list[bool]:
    """Return for each statement of a pipelined loop's body True if the stages count the statements in its block.

    Raises CompileError if they count neither the statements in blocks nor the statements themselves.
    """
    count = len(pipeline_plan(loop).stage)
    inside = [_statements(s) for s in loop.body]
    widths = sum(_statement_count(s) for part in inside for s in part)
    if widths == count:
        return [part != [stmt] for part, stmt in zip(inside, loop.body, strict=True)]
    if sum(map(_statement_count, loop.body)) == count:
        return [False] * len(inside)
    message = f"its body has {widths} statements, but `{STAGE}` has {count} numbers"
    raise pipeline_error(loop, message, "an inner pipeline counts as three: prologue, body and epilogue")


def _statements(stmt: Stmt) -> list[Stmt]:
    """Return the statements of a block that has several, with the init as one; another statement itself."""
    if not isinstance(stmt, tir.BlockRealize) or tir.const_int(stmt.predicate) != 1:
        return [stmt]
    block = stmt.block
    statements = [*(() if block.init is None else (tir.IfThenElse(tir.TRUE, block.init),)), *block.body]
    return statements if len(statements) > 1 else [stmt]


def _statement_count(stmt: Stmt) -> int:
    return 3 if is_pipelined(stmt) else 1

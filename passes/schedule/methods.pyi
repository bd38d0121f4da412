"""The primitives of schedules as methods of `Schedule`.

Written by scripts/stubs.py from what is there at run time.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from mlcc.ir import tir
from mlcc.passes.schedule.handles import BlockRV, ExprRV, LoopRV

Block: TypeAlias = BlockRV | str  # a name stands for `get_block(name)`
Int: TypeAlias = int | ExprRV | tir.IntImm
Buffer: TypeAlias = Int | str | tuple[str, Int] | tir.Buffer
IndexMap: TypeAlias = Callable[..., Any] | tir.IndexMap

class Primitives:
    def add_unit_loop(self, block_or_loop: Block | LoopRV) -> LoopRV:
        """Add a loop `u` of one iteration around a block or a loop."""
    def annotate(self, block_or_loop: Block | LoopRV, ann_key: str, ann_val: Any) -> None:
        """Attach a value to a block or loop for later passes. An existing value under the same key is kept."""
    def annotate_buffer_access(self, block: Block, buffer_index: Int, buf_type: str, gen_new_ranges: Any) -> None:
        """Say which region of a buffer a block reads or writes, where it cannot be inferred."""
    def bind(self, loop: LoopRV, thread_axis: str) -> None:
        """Bind a loop to an axis of GPU threads, such as `blockIdx.x`, `threadIdx.y`, `vthread.x`."""
    def blockize(self, target: Sequence[Block] | LoopRV, preserve_unit_iters: bool = True) -> BlockRV:
        """Make one block `X_o` of the loop `target` and everything below it, which must hold a single block `X`; or one
        block `outer_A_B_` of several adjacent blocks.
        """
    def cache_index(self, block: Block, storage_scope: str, cse_thresh: Int = 0) -> list[BlockRV]:
        """Compute the index expressions of a block's stores beforehand, each in its own block that fills a buffer."""
    def cache_inplace(self, block: Block, read_buffer_index: Buffer, storage_scope: str) -> list[BlockRV]:
        """Let a block read and write a buffer in a cache, which is filled right before the block and copied back right
        after it.
        """
    def cache_read(
        self,
        block: Block,
        read_buffer_index: Buffer,
        storage_scope: str,
        consumer_blocks: Sequence[Block] | None = None,
    ) -> BlockRV:
        """Copy a buffer that a block reads to a cache in other memory, and let its readers read that."""
    def cache_write(
        self,
        block: Block,
        write_buffer_index: Buffer,
        storage_scope: str,
        consumer_blocks: Sequence[Block] | None = None,
    ) -> BlockRV:
        """Let a block write to a cache in other memory, and copy that to the buffer afterwards."""
    def can_decompose_padding(self, block: Block, loop: LoopRV) -> bool:
        """Return whether `decompose_padding` accepts the block and the loop. Changes nothing."""
    def compute_at(self, block: Block, loop: LoopRV, preserve_unit_loops: bool = False, index: Int = -1) -> None:
        """Compute a block under a loop of its consumers, each time as much of it as they need there."""
    def compute_inline(self, block: Block) -> None:
        """Replace every load of a block's buffer by what the block computes, and remove the block and the buffer."""
    def decompose_padding(self, block: Block, loop: LoopRV) -> BlockRV:
        """Split `B[...] = T.if_then_else(condition, x, constant)` into block `B_pad_const`, before `loop`, which fills
        all that the loop covers with the constant, and `B`, which stores `x` where the condition holds.
        """
    def decompose_reduction(self, block: Block, loop: LoopRV) -> BlockRV:
        """Split a reduction block `B` into `B_init`, before `loop`, and `B_update`; the handle of `B` means the
        update.
        """
    def enter_postproc(self) -> None:
        """Mark in the trace where decisions end and clean-up begins; changes nothing."""
    def flip_sign(self, block: Block, buffer: Buffer) -> None:
        """Sum up products with a copy of a factor of the other signedness: uint8 instead of int8, with 128 added to
        each element, or int8 instead of uint8, with 128 subtracted. The difference, 128 times the sums of the other
        factor, is corrected afterwards, so that results stay the same.
        """
    def fuse(self, *loops: LoopRV | Sequence[LoopRV], preserve_unit_iters: bool = True) -> LoopRV:
        """Fuse directly nested loops, outermost first, into one loop."""
    def fuse_reduction_epilogue(self, reduction_block: Block, epilogue_block: Block, every_step: bool = False) -> None:
        """Let a sum start from what its only consumer adds to it, and store where that stores; the consumer is
        removed.
        """
    def get_block(self, name: str, func_name: str | None = None) -> BlockRV:
        """Return the block called `name` in a function: `func_name`, else the one chosen by `work_on`, else the only
        one.
        """
    def get_child_blocks(self, block_or_loop: Block | LoopRV) -> list[BlockRV]:
        """Return the outermost blocks below a block or a loop, in order."""
    def get_consumers(self, block: Block) -> list[BlockRV]:
        """Return the blocks of the same scope that read what this block writes, in order."""
    def get_loops(self, block: Block) -> list[LoopRV]:
        """Return the loops around a block, up to the enclosing block, outermost first."""
    def get_output_blocks(self, scope_block: Block) -> list[BlockRV]:
        """Return the blocks below `scope_block` that write buffers which it does not allocate, in order."""
    def get_producers(self, block: Block) -> list[BlockRV]:
        """Return the blocks of the same scope that write what this block reads, in order."""
    def get_sblock(self, name: str, func_name: str | None = None) -> BlockRV:
        """Return the block called `name` in a function: `func_name`, else the one chosen by `work_on`, else the only
        one.
        """
    def loop_partition(
        self,
        loop: LoopRV,
        factors: Sequence[Int | None],
        preserve_unit_iters: bool = True,
    ) -> list[LoopRV]:
        """Divide a loop into consecutive loops, each over the next `factor` iterations; the last one covers the
        rest.
        """
    def mark_scheduled(self, func_name: str | None = None) -> None:
        """Set the attribute `tir.is_scheduled` of a function, so that rules leave it alone."""
    def merge(self, *loops: LoopRV | Sequence[LoopRV]) -> LoopRV:
        """Merge several nests of equal extents into one, with their bodies in the given order."""
    def pad_einsum(self, block: Block, padding: Sequence[Int]) -> None:
        """Round the extent of each axis of an einsum up to a multiple of `padding[axis]`, such as 127 to 128."""
    def pad_reduction(self, loop: LoopRV, multiple: Int) -> None:
        """Round the extent of a reduction loop up to a multiple, such as 200 to 256; the added iterations contribute
        the identity of the reduction and read nothing.
        """
    def parallel(self, loop: LoopRV) -> None:
        """Run the iterations of a loop in parallel."""
    def read_at(self, loop: LoopRV, block: Block, read_buffer_index: Buffer, storage_scope: str) -> BlockRV:
        """Copy, in each iteration of a loop, what its body reads of a buffer to a cache; one block does, marked
        auto_copy.
        """
    def reindex(self, block: Block, buffer: Buffer) -> BlockRV:
        """Copy a buffer that a block reads, or writes, from or to a buffer that is indexed by the block's axes."""
    def reindex_cache_read(
        self,
        block: Block,
        read_buffer_index: Buffer,
        storage_scope: str,
        index_map: IndexMap,
    ) -> BlockRV:
        """Copy a buffer that a block reads to a cache that the block reads at other indices."""
    def reindex_cache_write(
        self,
        block: Block,
        write_buffer_index: Buffer,
        storage_scope: str,
        index_map: IndexMap,
    ) -> BlockRV:
        """Let a block write to a cache at other indices, and copy that to the buffer afterwards."""
    def reorder(self, *ordered_loops: LoopRV | Sequence[LoopRV]) -> None:
        """Put loops of one nest in the given order, in the positions that they occupy together; other loops stay."""
    def reorder_block_iter_var(self, block: Block, new_order: Sequence[Int]) -> None:
        """Reorder the axes of a block: first the one that was number `new_order[0]`, and so on."""
    def reverse_compute_at(
        self,
        block: Block,
        loop: LoopRV,
        preserve_unit_loops: bool = False,
        index: Int = -1,
    ) -> None:
        """Compute a block under a loop of its producers, each time for as much as they have produced there."""
    def reverse_compute_inline(self, block: Block) -> None:
        """Move a block's computation to where its only producer stores, and remove the block and the buffer between
        them.
        """
    def rfactor(self, loop: LoopRV, factor_axis: Int) -> BlockRV:
        """Factor a reduction by one of its loops: block `B_rf` reduces over the other loops into a buffer `C_rf` with
        an additional dimension (at `factor_axis`, negative from the end), and `B` combines its elements over `loop`.
        """
    def rolling_buffer(self, block: Block, write_buffer_index: Int) -> None:
        """Fold a buffer that a block writes window by window, such as rows `i * 2 .. i * 2 + 3` for each `i`, to the
        size of one window, addressed modulo that size; elements of the overlap are not computed again.
        """
    def sample_categorical(
        self,
        candidates: Sequence[Int],
        probs: Sequence[float],
        decision: Int | None = None,
    ) -> ExprRV:
        """Sample one of `candidates` with the weights `probs` (not negative). The decision is its index."""
    def sample_compute_location(self, block: Block, decision: Int | None = None) -> LoopRV:
        """Sample a loop for `compute_at` of the block, or a mark for inlining it (decision -2) or for leaving it where
        it is (-1); other decisions are the index of the loop among those of the block's first consumer.
        """
    def sample_partitioned_tile(
        self,
        loop: LoopRV,
        n: Int,
        partition_pos: Int = 0,
        innerpart_factor: Int = 1,
        decision: Sequence[Int] | None = None,
    ) -> list[ExprRV]:
        """Sample `n` factors of the loop's extent; the product of those from `partition_pos` on is a multiple of
        `innerpart_factor`.
        """
    def sample_perfect_tile(
        self,
        loop: LoopRV,
        n: Int,
        max_innermost_factor: Int = 16,
        decision: Sequence[Int] | None = None,
    ) -> list[ExprRV]:
        """Sample `n` factors whose product is the loop's extent, the last at most `max_innermost_factor` (-1: any)."""
    def set_axis_separator(self, block: Block, buffer: Buffer, axis_separators: Sequence[Int]) -> None:
        """Set where the dimensions of a buffer are grouped into axes of memory: `[1]` makes the first dimension one
        axis and the others together another.
        """
    def set_scope(self, block: Block, buffer_index: Buffer, storage_scope: str) -> None:
        """Put a buffer that a block writes into memory of another scope; `B` becomes `B_shared`."""
    def simplify_indices(self, block: Block) -> None:
        """Write the indices of a block without the quotients and remainders that the domains of its axes decide: `A[i
        // 8 + j, i % 8]` is `A[j, i]` where `i` is below 8.
        """
    def split(
        self,
        loop: LoopRV,
        factors: Sequence[Int | None],
        preserve_unit_iters: bool = True,
        disable_predication: bool = False,
    ) -> list[LoopRV]:
        """Split a loop into `len(factors)` nested loops; a factor None is computed from the others."""
    def storage_align(self, block: Block, buffer_index: Buffer, axis: Int, factor: Int, offset: Int) -> None:
        """Require the stride of an axis of a buffer that a block writes to be k * factor + offset for some k."""
    def tensorize(self, block_or_loop: Block | LoopRV, tensor_intrin: str, preserve_unit_iters: bool = True) -> None:
        """Replace the body of a block, or of a loop made a block before (`blockize`), by a tensor intrinsic."""
    def transform_block_layout(self, block: Block, index_map: IndexMap) -> None:
        """Run a block over other axes: `lambda i, j: (i * 16 + j,)` makes one axis, and one loop, of two."""
    def transform_layout(
        self,
        block: Block,
        buffer: Buffer,
        index_map: IndexMap,
        pad_value: Any = None,
        assume_injective_transform: bool = False,
    ) -> None:
        """Store a buffer that the block reads or writes under other indices: `lambda i, j: (j, i // 4, i % 4)`."""
    def unannotate(self, block_or_loop: Block | LoopRV, ann_key: str) -> None:
        """Remove an annotation."""
    def unroll(self, loop: LoopRV) -> None:
        """Unroll a loop: repeat its body for each iteration."""
    def unsafe_compute_in(self, block: Block, dtype: str) -> None:
        """Compute what a block computes in float16, bfloat16 or 8-bit floats in a wider float: elements are cast as
        they are loaded, and results rounded once, as they are stored, in the place of every operation: they may be more
        exact.
        """
    def unsafe_hide_buffer_access(self, block: Block, buf_type: str, buf_index_array: Sequence[Int]) -> None:
        """Leave buffers out of what a block says that it reads (`buf_type` "read") or writes ("write")."""
    def unsafe_set_dtype(self, block: Block, buffer_index: Buffer, dtype: str) -> None:
        """Store a buffer that a block writes as `dtype`, cast on the way in and on the way out: results may be less
        exact.
        """
    def vectorize(self, loop: LoopRV) -> None:
        """Run the iterations of a loop in the lanes of vectors."""
    def widen(self, block: Block, buffer_index: Buffer, dtype: str) -> None:
        """Store a buffer that a block writes in a type that can represent every value of its own, such as float16 as
        float32; results stay the same.
        """
    def write_at(self, loop: LoopRV, block: Block, write_buffer_index: Buffer, storage_scope: str) -> BlockRV:
        """Let the body of a loop write a buffer to a cache, and copy that to the buffer where each iteration ends."""

"""The state of a schedule: the module, and the block, loop or value of every handle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mlcc.errors import did_you_mean
from mlcc.ir import tir
from mlcc.ir.module import IRModule
from mlcc.ir.visit import used_vars
from mlcc.passes.schedule.analysis.bindings import inherit_bindings, remembered_bindings
from mlcc.passes.schedule.handles import OPERATORS, BlockRV, ExprRV, Handle, LoopRV
from mlcc.passes.schedule.random import Engine
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.rewrite.outer_regions import complete_regions
from mlcc.passes.schedule.tree import Rebuild, Tree

if TYPE_CHECKING:
    from mlcc.passes.schedule.tensor_intrin import TensorIntrin

INLINE = "inline"  # what `sample_compute_location` gives for "inline it"
ROOT = "root"  # and for "leave it where it is"


class BlockRef:
    """A block of the current function; invalid after the next `State.update`."""

    __slots__ = ("block", "func_name", "state")

    def __init__(self, state: State, func_name: str, block: tir.Block) -> None:
        self.state, self.func_name, self.block = state, func_name, block

    @property
    def tree(self) -> Tree:
        return self.state.tree(self.func_name)

    @property
    def realize(self) -> tir.BlockRealize:
        return self.tree.realize(self.block)

    @property
    def node(self) -> tir.Block:
        return self.block


class LoopRef:
    """A loop of the current function; invalid after the next `State.update`."""

    __slots__ = ("func_name", "loop", "state")

    def __init__(self, state: State, func_name: str, loop: tir.For) -> None:
        self.state, self.func_name, self.loop = state, func_name, loop

    @property
    def tree(self) -> Tree:
        return self.state.tree(self.func_name)

    @property
    def var(self) -> tir.Var:
        return self.loop.var

    @property
    def node(self) -> tir.For:
        return self.loop


class State:
    """The module and the places of handles. Functions are immutable, so a copy is a few small dictionaries.

    Primitives change it through `update` alone; whoever calls one keeps a copy to go back to.
    """

    def __init__(self, module: IRModule, seed: int | None = None) -> None:
        self.module = module.copy()
        self.random = Engine(seed)
        self.working_on: str | None = _default_function(module)
        self.primitive = ""  # the name of the one that runs, for those that come later and find its traces
        self.recorded: dict[str, Any] = {}  # arguments of the running primitive to be recorded otherwise than given
        self.intrins: Mapping[str, TensorIntrin] = {}  # tensor intrinsics registered in this schedule only
        self._blocks: dict[BlockRV, tuple[str, tir.Block]] = {}
        self._loops: dict[LoopRV, tuple[str, tir.Var | str]] = {}
        self._values: dict[ExprRV, int] = {}
        self._ended_by: dict[Handle, str] = {}
        self._trees: dict[str, Tree] = {}
        self._completed: dict[tir.Block, tir.Block] = {}  # by `update`, of blocks that primitives made

    def copy(self) -> State:
        clone = object.__new__(State)
        clone.module = self.module.copy()
        clone.random = self.random.copy()
        clone.working_on = self.working_on
        clone.primitive, clone.recorded = self.primitive, {}
        clone.intrins = self.intrins
        clone._blocks, clone._loops = dict(self._blocks), dict(self._loops)
        clone._values, clone._ended_by = dict(self._values), dict(self._ended_by)
        clone._trees, clone._completed = dict(self._trees), dict(self._completed)
        return clone

    # ------------------------------------------------------------ the program

    def function_name(self, func_name: str | None) -> str:
        """Return the name of the function to search; `@path` is the kernel of a module of the source model. Refuse
        (E0616) an unknown or ambiguous one.
        """
        names = [n for n, f in self.module.functions.items() if isinstance(f, tir.PrimFunc)]
        if func_name is None:
            func_name = self.working_on
            if func_name is None:
                listed = ", ".join(names[:20]) or "none"
                help = f"give `func_name=`, or call `sch.work_on(...)` first; the functions are {listed}"
                raise Refusal("E0616", "the module has several functions and none is selected", help=help)
        if func_name.startswith("@"):
            return self._function_at(func_name)
        if func_name not in names:
            help = did_you_mean(func_name, names) or f"the functions are {', '.join(names[:20]) or 'none'}"
            raise Refusal("E0616", f"the module has no TensorIR function `{func_name}`", help=help)
        return func_name

    def _function_at(self, pattern: str) -> str:
        """Return the only function that comes from a module of the source model. Refuse (E0616) none or several."""
        from mlcc.relax.origins import kernels_matching

        kernels = kernels_matching(self.module, pattern)
        if len(kernels) == 1:
            return kernels[0]
        what = f"{len(kernels)} TensorIR functions come" if kernels else "no TensorIR function comes"
        help = (
            f"they are {', '.join(kernels[:20])}" if kernels else "paths are in the comments after the calls of kernels"
        )
        raise Refusal("E0616", f"{what} from `{pattern}`", help=help)

    def func(self, name: str) -> tir.PrimFunc:
        return self.module[name]  # type: ignore[return-value]

    def tree(self, name: str) -> Tree:
        """Return the index over the current form of a function."""
        func = self.func(name)
        known = self._trees.get(name)
        if known is None or known.func is not func:
            known = self._trees[name] = Tree(func)
        return known

    def update(
        self, name: str, new_form: Rebuild | tir.PrimFunc, reuse: Mapping[tir.Block, tir.Block] | None = None
    ) -> Tree:
        """Replace the function `name` by a changed one, and update the handles.

        A loop handle stays valid if a loop over its variable still exists, a block handle if its block does, or if
        `reuse` (with the map that the rebuilding itself recorded) leads to one that does. All others end here.
        """
        successors = dict(reuse or {})
        if isinstance(new_form, Rebuild):
            func = new_form.build()
            successors = {**new_form.reuse, **successors}
            for old, new in new_form.reuse.items():  # a copy made on the way down may itself have been copied
                if old in successors and successors[old] is not new and new in successors:
                    successors[old] = successors[new]
        else:
            func = new_form
        before = self.tree(name)
        hides_accesses = self.primitive == "unsafe_hide_buffer_access"
        func, completed = (func, {}) if hides_accesses else complete_regions(func, before)
        self._completed |= completed
        successors |= {old: new for old, new in completed.items() if successors.get(old) is not old}
        self.module.update_func(name, func)
        tree = self.tree(name)
        tree.inherit_memo(before)
        inherit_bindings(
            before, tree, {block: _current_block(block, successors) for block in remembered_bindings(before)}
        )
        for rv, (where, block) in list(self._blocks.items()):
            if where != name:
                continue
            current = _current_block(block, successors)
            if tree.has_block(current):
                self._blocks[rv] = (name, current)
            elif not tree.has_block(block):
                self._end_handle(rv)
        for loop_rv, (where, var) in list(self._loops.items()):
            if where == name and isinstance(var, tir.Var) and tree.loop(var) is None:
                self._end_handle(loop_rv)
        return tree

    def _end_handle(self, rv: Handle) -> None:
        self._blocks.pop(rv, None)  # type: ignore[call-overload]
        self._loops.pop(rv, None)  # type: ignore[call-overload]
        self._ended_by[rv] = self.primitive

    # ------------------------------------------------------------ handles

    def block_ref(self, func_name: str, block: tir.Block) -> BlockRef:
        return BlockRef(self, func_name, _current_block(block, self._completed))

    def loop_ref(self, func_name: str, var: tir.Var) -> LoopRef:
        loop = self.tree(func_name).loop(var)
        assert loop is not None, f"no loop over {var.name}"
        return LoopRef(self, func_name, loop)

    def new_block(self, func_name: str, block: tir.Block) -> BlockRV:
        """Return a new handle of a block of the current function."""
        rv = BlockRV(block.name)
        self._blocks[rv] = (func_name, _current_block(block, self._completed))
        return rv

    def new_loop(self, func_name: str, var: tir.Var | str) -> LoopRV:
        """Return a new handle of the loop over `var`, or of INLINE or ROOT."""
        rv = LoopRV(var if isinstance(var, str) else var.name)
        self._loops[rv] = (func_name, var)
        return rv

    def new_value(self, value: int) -> ExprRV:
        rv = ExprRV()
        self._values[rv] = value
        return rv

    def find_block(self, rv: BlockRV) -> BlockRef:
        """Return the block of a handle. Refuse (E0611) a handle that has ended or belongs to another schedule."""
        entry = self._blocks.get(rv)
        if entry is None:
            raise self._ended_refusal(rv, "block")
        return BlockRef(self, *entry)

    def find_loop(self, rv: LoopRV) -> LoopRef | str:
        """The loop, or INLINE or ROOT. Raises Refusal E0611."""
        entry = self._loops.get(rv)
        if entry is None:
            raise self._ended_refusal(rv, "loop")
        name, var = entry
        return var if isinstance(var, str) else self.loop_ref(name, var)

    def value(self, expr: ExprRV | int) -> int:
        """Return the integer value of `expr`. Refuse (E0611, E0613) an unknown one."""
        if isinstance(expr, int):
            return expr
        if expr.is_leaf:
            if expr not in self._values:
                raise self._ended_refusal(expr, "sampled value")
            return self._values[expr]
        try:
            return OPERATORS[expr.op](self.value(expr.lhs), self.value(expr.rhs))
        except ValueError as exc:
            raise Refusal("E0613", f"the value of an expression over sampled values: {exc}") from None

    def sampled_in(self, nodes: Any) -> dict[tir.Var, ExprRV]:
        """The sampled integers whose variables occur in `nodes`."""
        used = used_vars(nodes)
        return {rv.var: rv for rv in self._values if rv.var in used} if used else {}

    def forget(self, rv: Handle) -> None:
        """Drop a handle (TVM `remove_rv`). Raises Refusal E0611 for one that the schedule does not have."""
        tables = (self._blocks, self._loops, self._values)
        if not isinstance(rv, Handle) or not any(rv in table for table in (*tables, self._ended_by)):
            raise Refusal("E0611", "this handle does not belong to the schedule")
        for table in tables:
            table.pop(rv, None)  # type: ignore[call-overload]

    def _ended_refusal(self, rv: Handle, kind: str) -> Refusal:
        by = self._ended_by.get(rv)
        if by is None:
            return Refusal("E0611", f"this {kind} does not belong to the schedule")
        help = "use what that step returned, or look the loops up again with `sch.get_loops(block)`"
        return Refusal("E0611", f"this {kind} is no longer there: `{by}` replaced it", help=help)


def _current_block(block: tir.Block, successors: Mapping[tir.Block, tir.Block]) -> tir.Block:
    """Return the block that `block` has become, through all steps of `successors`."""
    current, steps = block, 0
    while current in successors and successors[current] is not current and steps <= len(successors):
        current, steps = successors[current], steps + 1
    return current


def _default_function(module: IRModule) -> str | None:
    """Return the function that look-ups use by default: the marked entry, else `main`, else the only one."""
    names = [n for n, f in module.functions.items() if isinstance(f, tir.PrimFunc)]
    marked = [n for n in names if module[n].attrs.get("tir.is_entry_func")]
    if marked:
        return marked[-1]
    return "main" if "main" in names else names[0] if len(names) == 1 else None

"""BlockBuilder: relax functions made step by step, in normal form and with struct info inferred."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from mlcc.errors import CompileError, error
from mlcc.ir import relax, tir
from mlcc.ir.module import Func, IRModule
from mlcc.ir.node import Attrs
from mlcc.ops import values
from mlcc.ops.relations import compatible
from mlcc.recursion import deep_recursion
from mlcc.relax import convert
from mlcc.relax.construct import flatten_block, function_info, global_vars, make_function, make_seq
from mlcc.relax.module_builder import ModuleBuilder
from mlcc.relax.normalizer import Normalizer, check_no_dataflow_vars, check_operands_bound
from mlcc.relax.scopes import DataflowScope, FunctionScope, TestingScope, misuse_error, parameters


@dataclass
class _Frame:
    """A block under construction."""

    dataflow: bool
    bindings: list[relax.Binding] = field(default_factory=list)


class BlockBuilder:
    """Builds a module function by function.

    with bb.function("main", [x, w]):
        with bb.dataflow():
            y = bb.emit(relax.op.matmul(x, w))
            out = bb.emit_output(relax.op.nn.relu(y))
        bb.emit_func_output(out)
    mod = bb.get()

    Nested expressions get variables of their own. Names of variables are hints. Equal functions are added once.
    Raises CompileError for what does not fit together and TypeError for what has no meaning where it stands.
    """

    def __init__(self, mod: IRModule | None = None) -> None:
        self._names: dict[str, int] = dict.fromkeys(mod or (), 0)
        self._module = ModuleBuilder(mod or IRModule(), self.get_unique_name)
        self._global_vars = global_vars(self._module.module)
        self._functions_open: list[FunctionScope] = []
        self._frames: list[_Frame] = []
        self._bound: dict[relax.Var, relax.Expr] = {}
        self._normal = Normalizer(self._emit_plain, self._begin, self._end_block, self._global_vars)

    @staticmethod
    def current() -> BlockBuilder | None:
        """The builder of the innermost open function."""
        open_scopes = _scopes.get()
        return open_scopes[-1] if open_scopes else None

    # ------------------------------------------------------------ scopes

    def function(
        self, name: str, params: Any = None, attrs: Mapping[str, Any] | None = None, pure: bool = True,
        private: bool = False,
    ) -> FunctionScope:  # fmt: skip
        """`with bb.function("main", [x, w]):`; parameters may also come with `emit_func_output`.

        A function that is not private has its name as `global_symbol`.
        """
        if not isinstance(name, str):
            raise TypeError(f"a function's name must be a string, not {values.describe(name)}")
        if name != _identifier(name):
            raise TypeError(f"`{name}` is not a valid function name")
        attributes = dict(attrs or {})
        if not private:
            attributes["global_symbol"] = name
        return FunctionScope(self, name, parameters(params), attributes, pure)

    def dataflow(self) -> DataflowScope:
        """`with bb.dataflow():`, a block without side effects; `emit_output` makes what is visible after it."""
        return DataflowScope(self)

    def testing_scope(self, def_vars: Any = ()) -> TestingScope:
        """A block outside of any function, to try expressions in."""
        for var in def_vars:
            convert.dimension(var)
        return TestingScope(self)

    def begin_scope(self, params: Any = None) -> None:
        """Begin a scope, of a function or a branch, in which the parameters are visible."""
        _scopes.set((*_scopes.get(), self))

    def end_scope(self) -> None:
        """End the scope that began last."""
        if self.current() is not self:
            raise misuse_error("no scope of this builder is open")
        _scopes.set(_scopes.get()[:-1])

    def current_block_is_dataflow(self) -> bool:
        """Return True if the current binding block is a dataflow block."""
        return self._frame("current_block_is_dataflow").dataflow

    def _frame(self, what: str) -> _Frame:
        if not self._frames:
            raise misuse_error(f"{what}: no block is open", help="use it inside `with bb.function(...)`")
        return self._frames[-1]

    def _begin(self, dataflow: bool) -> None:
        self._frames.append(_Frame(dataflow))

    def _begin_dataflow_block(self) -> None:
        self._begin(True)

    def _begin_binding_block(self) -> None:
        self._begin(False)

    def _end_block(self) -> relax.BindingBlock:
        frame = self._frames.pop()
        kind = relax.DataflowBlock if frame.dataflow else relax.BindingBlock
        return kind(tuple(frame.bindings))

    def sequence(self, body: Callable[[], Any]) -> relax.SeqExpr:
        """Return the bindings that `body` emits and its result as a sequence: a branch of an `if`.

        Its variables are visible only inside. Raises the exceptions of `body`; nothing is emitted then.
        """
        self._begin_binding_block()
        try:
            result = self._leaf(body())
        finally:
            block = self._end_block()
        return make_seq([*flatten_block(block)], result)

    # ------------------------------------------------------------ bindings

    def emit(self, expr: Any, name_hint: str = "") -> relax.Var:
        """Bind a new variable to an expression; lists are tuples. In a dataflow block it is visible there only."""
        frame = self._writable("emit")
        return self._bind(self._checked(expr), frame.dataflow, name_hint)

    def emit_output(self, output: Any, name_hint: str = "") -> relax.Var:
        """Bind a new variable that is visible after the dataflow block."""
        frame = self._writable("emit_output")
        if not frame.dataflow:
            help = "use emit, or `with bb.dataflow():` around it"
            raise misuse_error("emit_output: this is not a dataflow block", help=help)
        return self._bind(self._checked(output), False, name_hint)

    @convert.accept_newer_names
    def match_cast(self, value: Any, struct_info: relax.StructInfo, name_hint: str = "") -> relax.Var:
        """Bind a variable to a value that run time checks to be as `struct_info` says; binds symbolic variables."""
        frame = self._writable("match_cast")
        convert.struct_info(struct_info, "the target of the cast")
        leaf = self._leaf(value)
        known = leaf.struct_info
        free = any(isinstance(v, tir.Var) for v in _variables(struct_info))
        if known is not None and not free and not compatible(struct_info, known):
            message = f"the value is `{known}` and can never be `{struct_info}`"
            raise CompileError(error("E0462", message, leaf.span))
        var = self._variable(frame.dataflow, name_hint, struct_info)
        self.emit_normalized(relax.MatchCast(var, leaf, struct_info))
        return var

    emit_match_cast = match_cast

    def emit_normalized(self, binding: relax.Binding) -> None:
        """Add a binding as it is; its value is in normal form."""
        if not isinstance(binding, relax.Binding):
            raise TypeError(f"only a binding can be added, not {values.describe(binding)}")
        check_operands_bound(binding)
        self._writable("emit_normalized").bindings.append(binding)
        if isinstance(binding, relax.VarBinding):
            self._bound[binding.var] = binding.value

    def lookup_binding(self, var: Any) -> relax.Expr | None:
        """Return the value bound to a variable; None for parameters, casts, and expressions that are not variables."""
        return self._bound.get(var) if isinstance(var, relax.Var) else None

    def normalize(self, expr: Any) -> relax.Expr:
        """The expression with struct info, its nested parts bound to variables in the open block."""
        with deep_recursion():
            return self._normal.normalize(convert.as_expr(expr))

    def _leaf(self, expr: Any) -> relax.Expr:
        with deep_recursion():
            return self._normal.leaf(convert.as_expr(expr))

    def _writable(self, what: str) -> _Frame:
        frame = self._frame(what)
        if self._functions_open and self._functions_open[-1].done:
            raise misuse_error(f"{what}: the function `{self._functions_open[-1].name}` already has its result")
        return frame

    def _checked(self, value: Any) -> relax.Expr:
        """`value` in normal form. Variables of dataflow blocks that have ended are refused."""
        normal = self.normalize(value)
        if not self._frames[-1].dataflow:
            check_no_dataflow_vars(normal)
        return normal

    def _emit_plain(self, value: relax.Expr) -> relax.Var:
        return self._bind(value, self._frame("a nested expression").dataflow, "")

    def _bind(self, value: relax.Expr, dataflow: bool, hint: str) -> relax.Var:
        if isinstance(value, relax.If) and self._frames[-1].dataflow:
            message = "`if` is not allowed inside a dataflow block"
            raise CompileError(error("E0417", message, value.span, help="emit it before the block or after it"))
        var = self._variable(dataflow, hint, value.struct_info)
        self.emit_normalized(relax.VarBinding(var, value, span=value.span))
        return var

    def _variable(self, dataflow: bool, hint: str, info: relax.StructInfo | None) -> relax.Var:
        kind = relax.DataflowVar if dataflow else relax.Var
        return kind(self.get_unique_name(hint or ("lv" if dataflow else "gv")), info)

    # ------------------------------------------------------------ tensor expressions

    def call_te(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> relax.Call:
        """A `call_tir` of the function that `func` defines by tensor expressions; see `emit_te`."""
        from mlcc.relax.te_call import te_call

        hint = kwargs.pop("primfunc_name_hint", None) or getattr(func, "__name__", "te_func")
        return te_call(self, func, args, kwargs, hint)

    def emit_te(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> relax.Var:
        """Bind a variable to a call of the function that `func` defines by tensor expressions.

        Tensors among the arguments (also in lists and dicts) reach `func` as `te` tensors, everything else as it is.
        Symbolic variables that no shape binds become parameters. Own keywords: `primfunc_name_hint`,
        `primfunc_attrs`, `name_hint`.
        """
        hint = kwargs.pop("name_hint", "")
        self._writable("emit_te")
        return self.emit(self.call_te(func, *args, **kwargs), hint)

    # ------------------------------------------------------------ functions

    def emit_while(
        self, condition: Callable[..., Any], body: Callable[..., Any], init: Any, name_hint: str = "loop"
    ) -> relax.Var:
        """Bind a variable to the values of a loop: starting from the tuple `init`, `values = body(*values)` as long as
        `condition(*values)` holds. Both are called once, with variables, to build functions of the module.

        Outer values that they use must be among the loop values; shapes must not change.
        """
        from mlcc.relax.while_loop import while_loop

        return self.emit(while_loop(self, condition, body, init, name_hint))

    def emit_func_output(self, output: Any, params: Any = None) -> relax.GlobalVar:
        """End the function with its result. Parameters are given here or to `function`."""
        if not self._functions_open:
            raise misuse_error("emit_func_output: no function is open", help="use it inside `with bb.function(...)`")
        scope = self._functions_open[-1]
        if scope.done:
            raise misuse_error(f"the function `{scope.name}` already has its result")
        if self.current_block_is_dataflow():
            raise misuse_error(
                "emit_func_output: a dataflow block is open", help="dedent it out of `with bb.dataflow():`"
            )
        if scope.params is not None and params is not None:
            raise misuse_error(f"the function `{scope.name}` already has its parameters")
        scope.params = parameters(params) if params is not None else scope.params
        if scope.params is None:
            raise misuse_error(f"the function `{scope.name}` has no parameters", help="pass params=[] if it takes none")
        result = self._leaf(output)
        check_no_dataflow_vars(result)
        blocks = [*scope.blocks, self._end_block()]
        self._begin_binding_block()
        body = make_seq([part for b in blocks for part in flatten_block(b)], result)
        scope.done = True
        func = make_function(scope.params, body, Attrs(scope.attrs), is_pure=scope.pure)
        return self._add(func, scope.name, self._function_name)

    def _function_name(self, hint: str) -> str:
        """The name for a function: an existing name is kept, even if a variable has the same one."""
        if hint not in self._module.module:
            self._names.setdefault(hint, 0)
            return hint
        return self.get_unique_name(hint)

    def add_func(self, func: Func, func_name: str) -> relax.GlobalVar:
        """Add a function; its name is made unique. A function that equals one of the module is that one."""
        if not isinstance(func, (relax.Function, tir.PrimFunc)):
            raise TypeError(f"only functions can be added, not {values.describe(func)}")
        return self._add(func, func_name, None)

    def _add(self, func: Func, hint: str, unique: Callable[[str], str] | None) -> relax.GlobalVar:
        name = self._module.add(func, _identifier(hint), unique)
        if name not in self._global_vars:
            self._global_vars[name] = relax.GlobalVar(name, function_info(self._module.module[name]))
        return self._global_vars[name]

    def update_func(self, gv: relax.GlobalVar | str, updated_func: Func) -> None:
        """Put a function in the place of another, or add it under that name."""
        name = gv if isinstance(gv, str) else gv.name
        self._names.setdefault(name, 0)
        self._module.update(name, updated_func)
        self._global_vars[name] = relax.GlobalVar(name, function_info(updated_func))

    def get(self) -> IRModule:
        """The module as it is now; building may go on."""
        return self._module.module.copy()

    def finalize(self) -> IRModule:
        """The module, every public function under the name of its `global_symbol`."""
        from mlcc.relax.public_names import with_public_names

        return with_public_names(self.get())

    def get_unique_name(self, name_prefix: str) -> str:
        """`name_prefix`, or with the first number that makes it new among variables and functions."""
        name = hint = _identifier(name_prefix)
        while name in self._names:
            self._names[hint] += 1
            name = f"{hint}{self._names[hint]}"
        self._names[name] = 0
        return name


def _identifier(hint: str) -> str:
    """A name hint with all characters replaced that are not allowed in a name."""
    name = re.sub(r"\W", "_", hint, flags=re.ASCII)
    return name if name and not name[0].isdigit() else f"_{name}"


def _variables(info: relax.StructInfo) -> list[tir.Var]:
    from mlcc.ops.relations import variables

    return variables(info)


_scopes: ContextVar[tuple[BlockBuilder, ...]] = ContextVar("open scopes", default=())  # of this thread, or task

"""Syntax trees of relax functions to IR: signatures, statements, blocks, and the order in which functions are walked.

Meanings are TVM's. Nested computations are bound to variables of their own; a variable has the struct info that its
annotation states, or else what is inferred.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlcc.errors import Label
from mlcc.grammar.context import UNKNOWN, Skip, TypeVar, Walk
from mlcc.grammar.relax import const as relax_const
from mlcc.grammar.relax import expr as relax_expr
from mlcc.grammar.relax import types as relax_types
from mlcc.grammar.relax.annotations import Cast, erase_to_well_defined, is_opaque, is_symbolic, text_of
from mlcc.grammar.relax.attributes import function_attributes
from mlcc.grammar.relax.branches import if_statement
from mlcc.grammar.relax.scope import MODULE, FunctionWalk
from mlcc.grammar.relax.signature import (
    Signature,
    bound_names,
    declaration,
    last_binding_offsets,
    pairs,
    read_signature,
)
from mlcc.grammar.syntax import tree
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import DType
from mlcc.ir.node import Attrs, replace
from mlcc.ops import relations, values
from mlcc.ops.relations import SubtypeCheck


def walk_function(walk: Walk, def_cst: tree.Def) -> relax.Function:
    """Return the function of a `def` under `@R.function`. Errors are recorded; then Skip is raised.

    The first call walks all relax functions of the module, callees before callers, so that results of calls are known
    whatever the order of the text.
    """
    name = def_cst.name
    if walk.relax is None:
        walk.relax = {}
        for one in _callees_first(walk, def_cst):
            walk.relax[one.name] = _attempt(walk, one)
    if name not in walk.relax or walk.relax[name][0] is not def_cst:
        walk.relax[name] = _attempt(walk, def_cst)
    func: relax.Function | None = walk.relax[name][1]
    if func is None:
        raise Skip
    return func


def _attempt(walk: Walk, def_cst: tree.Def) -> tuple[tree.Def, relax.Function | None]:
    before = len(walk.diagnostics)
    func = None
    with walk.attempt():
        func = _Walker(FunctionWalk(walk), def_cst).function()
    return def_cst, func if len(walk.diagnostics) == before else None


def is_relax(walk: Walk, def_cst: tree.Def) -> bool:
    """Return True if a `def` is a relax function, by its decorator."""
    return any(walk.dotted(tree.callee_of(decorator)) == "R.function" for decorator in def_cst.decorators)


def _callees_first(walk: Walk, wanted: tree.Def) -> list[tree.Def]:
    """The relax functions of the module, each after those that it calls, as far as there is no recursion."""
    known = {name: cst for name, cst in walk.definitions.items() if is_relax(walk, cst)}
    known.setdefault(wanted.name, wanted)
    calls = {name: [n for n in _mentioned(cst) if n in known] for name, cst in known.items()}
    order: list[tree.Def] = []
    done: set[str] = set()
    for root in known:
        stack = [(root, iter(calls[root]))] if root not in done else []
        done.add(root)
        while stack:
            name, rest = stack[-1]
            following = next((n for n in rest if n not in done), None)
            if following is None:
                order.append(known[name])
                stack.pop()
            else:
                done.add(following)
                stack.append((following, iter(calls[following])))
    return order


def _mentioned(cst: tree.Def) -> list[str]:
    names: dict[str, None] = {}
    for node in tree.nodes(cst.body):
        if isinstance(node, tree.Name):
            names[node.id] = None
        elif isinstance(node, tree.Attribute):
            names[node.name] = None
    return list(names)


# ---------------------------------------------------------------- one function


class _Walker:
    """Walks one function; `function()` returns the result."""

    def __init__(self, fw: FunctionWalk, cst: tree.Def) -> None:
        self.fw = fw
        self.walk = fw.walk
        self.cst = cst
        self.nested = fw.outer is not None
        self.attrs: dict[str, Any] = {}
        self.result: relax.Expr | None = None

    def function(self) -> relax.Function:
        """The function. Raises Skip if it cannot be made at all; errors inside are only noted."""
        walk, name = self.walk, self.cst.name
        signature = read_signature(self.fw, self.cst)
        if not self.nested and name in walk.functions:
            walk.functions[name] = replace(walk.functions[name], struct_info=signature.info())
        before = len(walk.diagnostics)
        self.statements(self.cst.body)
        if self.result is None:
            if len(walk.diagnostics) == before:
                walk.note("E0410", f"`{name}` does not return", self.cst.place, help="end it with `return`")
            raise Skip
        ret = self._result(signature)
        self.fw.out.close()
        body = relax.SeqExpr(tuple(self.fw.out.blocks), self.result, self.result.struct_info, span=self.fw.return_span)
        if not self.nested and not signature.private:
            self.attrs.setdefault("global_symbol", name)
        info = replace(signature.info(), ret=ret)
        if not self.nested and name in walk.functions:
            walk.functions[name] = replace(walk.functions[name], struct_info=info)
        span = walk.span(self.cst.place)
        return relax.Function(signature.params, body, ret, signature.pure, Attrs(self.attrs), info, span=span)

    def _result(self, signature: Signature) -> relax.StructInfo:
        """Return the struct info of the result: the inferred or the annotated one, whichever is more specific."""
        assert self.result is not None
        known = self.result.struct_info or relax.ObjectStructInfo()
        visible = {v for p in signature.params for v in relations.variables(p)}
        visible |= _symbols_around(self.fw)  # its own, such as those of `match_cast`, are not seen outside
        known = erase_to_well_defined(known, visible, signature.params)
        if signature.ret is None:
            return known
        fit = relations.check_subtype(signature.ret, known)
        if fit is SubtypeCheck.COVERS or (fit is SubtypeCheck.NARROWS and is_opaque(self.result)):
            return known if fit is SubtypeCheck.COVERS else signature.ret
        if relations.compatible(signature.ret, known):
            self.result = self._checked(
                "result", tree.Name(self.cst.name_start, self.cst.name_end, "result"), self.result, signature.ret
            )
        else:
            text = f"the function returns {text_of(known)}, not {text_of(signature.ret)}"
            self.walk.note("E0411", text, self.cst.returns)
        return signature.ret

    def _checked(self, what: str, target: tree.Name, value: relax.Expr, stated: relax.StructInfo) -> relax.Var:
        """Bind a value to a variable with a run-time check, since its annotation states more than is inferred."""
        span = self.walk.span(target)
        var = self.fw.variable(target.id, target.start, stated, span)
        cast = relax.MatchCast(var, self.fw.leaf(value), stated, what, span=span)
        self.fw.out.bindings.append(cast)
        return var

    # ------------------------------------------------------------ statements

    def statements(self, body: tree.Body) -> None:
        """Walk statements; after an error, the names that the statement binds are unusable, and the walk continues."""
        for statement in body:
            if self.fw.return_span is not None:
                related = (Label(self.fw.return_span, "the function returns here"),)
                self.walk.note("E0414", "no statement may follow `return`", statement, related=related)
                return
            try:
                self.statement(statement)
            except Skip:
                for name in bound_names(statement):
                    self.fw.scope.define(name.id, UNKNOWN)

    def statement(self, cst: tree.Stmt) -> None:
        walk = _STATEMENT.get(type(cst))
        if walk is not None:
            walk(self, cst)
        elif not isinstance(cst, (tree.Pass, tree.Import)):
            help = _INSTEAD.get(type(cst))
            name = _NOUNS.get(type(cst), f"`{cst.kind}`")
            self.walk.fail("E0414", f"relax functions cannot contain {name}", cst, help=help)

    def _expression(self, statement: tree.Expression) -> None:
        """A statement that is an expression: attributes, outputs, calls for their effect."""
        fw, cst = self.fw, statement.value
        if isinstance(cst, tree.Str):
            return
        if isinstance(cst, tree.Const) and cst.value is Ellipsis:
            self.walk.fail("E0414", "`...` stands for a body that is still to be written", cst)
        path = self._path(cst)
        if isinstance(cst, tree.Call) and path == "R.func_attr":
            self.attrs.update(function_attributes(fw, cst))
            return
        if path == "R.output":
            message = "R.output is allowed only at the end of a dataflow block"
            self.walk.fail("E0415", message, cst, "no dataflow block is open here")
        expr = relax_expr.expression(fw, cst)
        empty = isinstance(expr, relax.Tuple) and not expr.fields  # TVM does not bind values without a type
        if not isinstance(expr, relax.Call) and not empty:
            self.walk.fail("E0414", "this has no effect", cst, help="bind it to a name, or return it")
        self._bind(tree.Name(cst.start, cst.start, "_"), expr, None, cst)

    def _return(self, cst: tree.Return) -> None:
        fw = self.fw
        if fw.out.in_dataflow or fw.inside:
            where = "a dataflow block" if fw.out.in_dataflow else "a branch"
            help = "bind the value in both branches, and return it after them" if fw.inside else "return after it"
            self.walk.fail("E0414", f"`return` is not allowed in {where}", cst, help=help)
        fw.return_span = self.walk.span(cst)
        value = tree.unless_none(cst.value)
        if value is None:
            returned: relax.Expr = relax.Tuple((), relax.TupleStructInfo(()), span=self.walk.span(cst))
        else:
            returned = relax_expr.expression(fw, value)
        self.result = fw.leaf(returned)

    # ------------------------------------------------------------ bindings

    def _assign(self, cst: tree.Assign) -> None:
        target, annotation, item = cst.target, cst.annotation, cst.value
        if item is None:
            self.walk.fail("E0414", "a variable needs a value", cst)
        if _is_name(item, self.walk.module_name) and isinstance(target, tree.Name) and target.id == "cls":
            self.fw.define(target, MODULE)
            return
        beside = pairs(target, item)
        if annotation is not None and (len(beside) != 1 or not isinstance(target, tree.Name)):
            self.walk.fail("E0414", "only one name can be annotated", target)
        if len(beside) > 1 and not any(declaration(self.fw, i) for _, i in beside):
            evaluated = [relax_expr.value(self.fw, i) for _, i in beside]  # all values before all names, as in Python
            for (name, place), one in zip(beside, evaluated, strict=True):
                self._store(name, one, None, place)
            return
        for name, place in beside:
            dtype = declaration(self.fw, place)
            if dtype is not None and isinstance(name, tree.Name):
                if _is_type_var(place) and self.fw.find(name.id) is None:
                    # for the functions inside this one, too: each that uses it has a variable of its own
                    self.fw.scope.define(name.id, TypeVar(name.id, dtype), self.walk.span(name))
                else:
                    self._declare(name, dtype)
                continue
            stated = relax_types.struct_info(self.fw, annotation) if annotation is not None else None
            self._store(name, relax_expr.value(self.fw, place), stated, place, annotation)

    def _declare(self, name: tree.Name, dtype: DType) -> None:
        """Walk `n = T.int64()`, which declares a symbolic variable or names one of the signature."""
        binding = self.fw.find(name.id)
        known = binding.value if binding is not None else None
        if isinstance(known, relax.Var) and isinstance(known.struct_info, relax.PrimStructInfo):
            known = known.struct_info.value
        if isinstance(known, tir.Var) and known.name == name.id:
            if known.dtype is not dtype:
                self.walk.fail("E0416", f"`{name.id}` is already {known.dtype} and cannot be {dtype}", name)
            return
        if binding is not None and binding.value is not MODULE:
            where = (Label(binding.span, "it is bound here"),) if binding.span is not None else ()
            self.walk.fail("E0416", f"`{name.id}` is not a symbolic variable", name, related=where)
        self.fw.define(name, tir.Var(name.id, dtype, span=self.walk.span(name)))

    def _store(
        self,
        target: tree.Expr,
        value: Any,
        stated: relax.StructInfo | None,
        cst: tree.Expr,
        annotation: tree.Expr | None = None,
    ) -> None:
        """Bind the value of an expression."""
        fw = self.fw
        if isinstance(target, tree.Display):
            self._unpack(target, value, cst)
            return
        if not isinstance(target, tree.Name):
            help = "tensors do not change: R.slice_scatter, R.scatter_elements and R.index_put return changed ones"
            self.walk.fail("E0414", "only names can be bound in a relax function", target, help=help)
        if value is MODULE or isinstance(value, (str, DType, list, relax.StructInfo, Attrs)) or value is None:
            if value is None:
                self.walk.fail("E0406", "None is not a value of a relax function", cst)
            fw.define(target, value)  # a name for a value that a variable cannot hold
            return
        if isinstance(value, (bool, int, float)):
            scalar = stated.dtype if isinstance(stated, relax.PrimStructInfo) else None
            value = self._scalar(value, scalar, cst) if scalar else relax_const.number(fw, cst, value)
        if isinstance(value, Cast):
            self._cast(target, value, stated, cst)
            return
        self._bind(target, relax_expr.as_expr(fw, value, cst), stated, cst, annotation)

    def _scalar(self, number: Any, dtype: DType, cst: tree.Expr) -> relax.PrimValue:
        from mlcc.ir.construct import const

        with self.fw.guard(cst):
            return values.scalar(const(number, dtype), self.walk.span(cst))

    def _unpack(self, target: tree.Display, value: Any, cst: tree.Expr) -> None:
        """`a, b = ...`: the items of a tuple, which is computed once."""
        names = target.items
        if isinstance(value, (tuple, list)):
            if len(value) != len(names):
                self._wrong_count(target, len(names), len(value))
            for name, part in zip(names, value, strict=True):
                self._store(name, part, None, cst)
            return
        tuple_expr = relax_expr.as_expr(self.fw, value, cst)
        known = tuple_expr.struct_info
        if isinstance(known, relax.TupleStructInfo) and len(known.fields) != len(names):
            self._wrong_count(target, len(names), len(known.fields))
        tuple_expr = self.fw.leaf(tuple_expr)
        for at, name in enumerate(names):
            self._store(name, relax_expr.item(self.fw, tuple_expr, at, name), None, cst)

    def _wrong_count(self, target: tree.Display, names: int, items: int) -> None:
        self.walk.fail("E0408", f"cannot unpack a tuple of {items} into {names} names", target)

    def _bind(
        self,
        target: tree.Name,
        value: relax.Expr,
        stated: relax.StructInfo | None,
        cst: tree.Expr,
        annotation: tree.Expr | None = None,
    ) -> None:
        fw = self.fw
        value = fw.normal(value)
        known = value.struct_info
        fw.check_size(known, cst)
        if stated is not None and known is not None and not isinstance(value, relax.Function):
            fit = relations.check_subtype(stated, known)
            if fit is SubtypeCheck.CONTRADICTS or (fit is SubtypeCheck.NARROWS and not is_opaque(value)):
                if relations.compatible(stated, known):
                    fw.define(target, self._checked("variable", target, value, stated))
                    return
                text = f"`{target.id}` is {text_of(known)}, not {text_of(stated)}"
                self.walk.note("E0411", text, annotation or target)
                stated = known
            elif isinstance(stated, relax.PrimStructInfo) and stated.value is None:
                stated = known if isinstance(known, relax.PrimStructInfo) else stated
        var = fw.variable(target.id, target.start, stated or value.struct_info, self.walk.span(target))
        fw.out.bindings.append(relax.VarBinding(var, value, span=self.walk.span(cst)))
        fw.define(target, var)

    def _cast(self, target: tree.Name, cast: Cast, stated: relax.StructInfo | None, cst: tree.Expr) -> None:
        fw = self.fw
        known = cast.value.struct_info
        if (
            known is not None
            and relations.check_subtype(cast.struct_info, known) is SubtypeCheck.CONTRADICTS
            and not is_symbolic(cast)
        ):
            text = f"the value is {text_of(known)} and can never be {text_of(cast.struct_info)}"
            self.walk.note("E0411", text, cst)
        if stated is not None and relations.check_subtype(stated, cast.struct_info) is not SubtypeCheck.COVERS:
            text = f"`{target.id}` is {text_of(cast.struct_info)}, not {text_of(stated)}"
            self.walk.note("E0411", text, target)
        value = fw.leaf(cast.value)
        var = fw.variable(target.id, target.start, cast.struct_info, self.walk.span(target))
        fw.out.bindings.append(relax.MatchCast(var, value, cast.struct_info, span=self.walk.span(cst)))
        fw.define(target, var)

    # ------------------------------------------------------------ blocks

    def _with(self, cst: tree.With) -> None:
        """`with R.dataflow():`"""
        fw = self.fw
        context, named = cst.items[0]
        bare = isinstance(context, tree.Call) and not context.args and not context.keywords
        if len(cst.items) != 1 or not bare or self._path(context) != "R.dataflow":
            self.walk.fail("E0414", "relax functions allow only `with R.dataflow():`", context)
        if named is not None:
            self.walk.fail("E0414", "a dataflow block cannot have a name", named)
        if fw.out.in_dataflow:
            self.walk.fail("E0415", "dataflow blocks cannot be nested", context)
        body, outputs = self._outputs(cst.body)
        fw.out.close()
        fw.out.in_dataflow = True
        fw.out.outputs = last_binding_offsets(body, outputs)
        try:
            with fw.scope.frame(", and is not an output of its dataflow block"):
                self.statements(body)
                shown = [(name, fw.scope.find(name)) for n in body for name in [b.id for b in bound_names(n)]]
                visible = {name: binding for name, binding in shown if binding is not None}
                self._check_outputs(body, outputs)
        finally:
            fw.out.close()
        wanted = {o.id for o in outputs}
        for name, binding in visible.items():
            if name in wanted or fw.scope.find(name) is None:
                fw.scope.define(name, binding.value, binding.span)

    def _outputs(self, body: tree.Body) -> tuple[tree.Body, tuple[tree.Name, ...]]:
        """The statements of a dataflow block, and the names in its R.output."""
        last = body[-1]
        lines = [s for s in body if isinstance(s, tree.Expression)]
        output = next((s for s in lines if self._path(s.value) == "R.output"), None)
        if output is None or not isinstance(output.value, tree.Call):
            return body, ()
        if output is not last:
            self.walk.fail("E0415", "R.output must be the last statement of its block", output)
        names: list[tree.Name] = []
        for name in output.value.args:
            if not isinstance(name, tree.Name):
                self.walk.fail("E0415", "R.output takes names of variables", name)
            names.append(name)
        return body[:-1], tuple(names)

    def _path(self, cst: tree.Expr) -> str | None:
        """The function that a call names; None for anything else."""
        return self.walk.dotted(cst.function, self.fw.scope) if isinstance(cst, tree.Call) else None

    def _check_outputs(self, body: tree.Body, outputs: tuple[tree.Name, ...]) -> None:
        bound = {name.id for statement in body for name in bound_names(statement)}
        for output in outputs:
            if output.id not in bound:
                from mlcc.errors import did_you_mean

                help = did_you_mean(output.id, bound)
                self.walk.note("E0415", f"`{output.id}` is not bound in this dataflow block", output, help=help)

    # ------------------------------------------------------------ functions in functions

    def _nested(self, cst: tree.Def) -> None:
        if not is_relax(self.walk, cst):
            self.walk.fail("E0414", "a function inside a relax function must be an R.function itself", cst.place)
        fw = self.fw
        inner = _Walker(FunctionWalk(self.walk, fw), cst)
        place = cst.place
        recursive = any(isinstance(n, tree.Name) and n.id == cst.name for n in tree.nodes(cst.body))
        var = None
        if recursive:
            if cst.returns is None:
                self.walk.fail(
                    "E0413", f"recursive function `{cst.name}` needs a return type", place, help="-> R.Tensor(...)"
                )
            probe = read_signature(FunctionWalk(self.walk, fw), cst)
            var = fw.variable(cst.name, place.start, probe.info(), self.walk.span(place))
            fw.define(place, var)
        before = len(self.walk.diagnostics)
        func = inner.function()
        if len(self.walk.diagnostics) != before:
            raise Skip
        if var is None:
            var = fw.variable(cst.name, place.start, func.struct_info, self.walk.span(place))
            fw.define(place, var)
        fw.out.bindings.append(relax.VarBinding(var, func, span=self.walk.span(place)))


_STATEMENT: dict[type[tree.Stmt], Callable[[_Walker, Any], None]] = {
    tree.Assign: _Walker._assign, tree.Expression: _Walker._expression, tree.Return: _Walker._return,
    tree.With: _Walker._with, tree.If: lambda w, cst: if_statement(w.fw, cst, w.statements), tree.Def: _Walker._nested,
}  # fmt: skip
_LOOP = (
    "write the steps out one by one, or a loop in a `@T.prim_func`; a function that calls itself at its end is a loop"
)
_INSTEAD: dict[type[tree.Stmt], str] = {
    tree.For: _LOOP, tree.While: _LOOP, tree.AugAssign: "write `y = R.add(y, x)`",
    tree.Assert: "R.assert_op checks a condition",
}  # fmt: skip
_NOUNS: dict[type[tree.Stmt], str] = {
    tree.For: "loops", tree.While: "loops", tree.AugAssign: "`+=` and the like", tree.Assert: "`assert`",
}  # fmt: skip


def _symbols_around(fw: FunctionWalk) -> set[tir.Var]:
    """The symbolic variables of the functions around one."""
    symbols: set[tir.Var] = set()
    outer = fw.outer
    while outer is not None:
        symbols.update(outer.symbols.values())
        for _, binding in outer.scope.bindings():
            value = binding.value
            if isinstance(value, tir.Var):
                symbols.add(value)
            elif isinstance(value, relax.Var) and value.struct_info is not None:
                symbols.update(relations.variables(value.struct_info))
        outer = outer.outer
    return symbols


def _is_type_var(cst: tree.Expr) -> bool:
    """Return True if a declaration is `TypeVar("n")`."""
    return isinstance(cst, tree.Call) and _is_name(cst.function, "TypeVar")


def _is_name(cst: tree.Expr, name: str) -> bool:
    return isinstance(cst, tree.Name) and cst.id == name

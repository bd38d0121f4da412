"""`with` statements: blocks, annotated scopes, threads, and the scopes that older texts open."""

from __future__ import annotations

from mlcc.grammar.syntax import tree
from mlcc.grammar.tir import blocks as tir_blocks
from mlcc.grammar.tir import loops as tir_loops
from mlcc.grammar.tir.scope import FunctionWalk
from mlcc.grammar.tir.statements import assert_line, attr_makers, bind_line, bind_var, call_binding, callee_name, launch
from mlcc.ir import tir


def walk_with(fw: FunctionWalk, cst: tree.With) -> None:
    """Walk a `with`; each of several items is nested in the one before."""
    items, body = cst.items, cst.body
    context, target = items[0]
    if len(items) > 1:
        body = (tree.With(cst.start, cst.end, items[1:], body),)
    if not isinstance(context, tree.Call):
        fw.walk.fail("E0305", "this cannot be used in a `with` statement", context, help=_SCOPES_HELP)
    name = callee_name(fw, context)
    if name in ("block", "sblock"):
        _no_target(fw, target, context)
        tir_blocks.walk_block(fw, context, body, cst)
    elif name == "init":
        _no_target(fw, target, context)
        tir_blocks.walk_init(fw, context, body, cst)
    elif name == "attr":
        _no_target(fw, target, context)
        makers = attr_makers(fw, context)
        inner = fw.inner(body, " in a `with`", cst)
        for make in reversed(makers):
            inner = (make(inner),)
        fw.out.add(inner[0])
    elif name == "launch_thread":
        _with_thread(fw, context, target, body, cst)
    elif name in (
        "LetStmt",
        "let",
        "Let",
        "allocate",
        "decl_buffer",
        "alloc_buffer_stmt",
        "alloc_buffer",
        "Assert",
        "Bind",
    ):
        _with_flat(fw, name, context, target, body, cst)
    elif name in tir_loops.LOOPS:
        _with_loop(fw, context, target, body, cst)
    else:
        fw.walk.fail("E0305", "this cannot be used in a `with` statement", context, help=_SCOPES_HELP)


_FLAT = {"LetStmt", "let", "Let", "allocate", "decl_buffer", "alloc_buffer_stmt", "alloc_buffer", "Assert", "Bind"}
_SCOPES_HELP = '`with` takes `T.block("name")`, `T.init()`, `T.attr(...)`, `T.launch_thread(...)`'


def _no_target(fw: FunctionWalk, target: tree.Expr | None, context: tree.Call) -> None:
    if target is not None:
        fw.walk.fail("E0305", "this has no value that could be named", target)


def _with_thread(
    fw: FunctionWalk, context: tree.Call, target: tree.Expr | None, body: tree.Body, cst: tree.With
) -> None:
    if target is not None and not isinstance(target, tree.Name):
        fw.walk.fail("E0302", "a thread variable must be a name", target)
    make, var = launch(fw, context, target.id if target is not None else "thread", target)
    with fw.scope.frame(" in a `with`"):
        if target is not None:
            fw.scope.define(target.id, var, fw.walk.span(target))
        fw.out.add(make(fw.inner(body, " in a `with`", cst)))


def _with_flat(
    fw: FunctionWalk, name: str, context: tree.Call, target: tree.Expr | None, body: tree.Body, cst: tree.With
) -> None:
    """Walk a `with` of older texts around what is now a statement that applies to the rest of the body."""
    with fw.scope.frame(" in a `with`"):
        if name in ("let", "Let") and target is None:
            if len(context.args) != 2 or context.keywords:
                fw.walk.fail("E0304", "`T.let` takes a variable and its value", context)
            var = fw.ev.value(context.args[0])
            if not isinstance(var, tir.Var):
                fw.walk.fail("E0302", "`T.let` must bind a variable", context.args[0], help='`x = T.var("int32")`')
            bind_var(fw, var, fw.ev.expr(context.args[1]), context)
        elif name == "Assert":
            assert_line(fw, context)
        elif target is None or not isinstance(target, tree.Name):
            if name in ("LetStmt", "Bind") and target is None:
                bind_line(fw, context)
            else:
                fw.walk.fail(
                    "E0305", f"the result of `T.{name}` needs a name", context, help=f"`with T.{name}(...) as x:`"
                )
        else:
            call_binding(fw, target, context)
        for stmt in fw.inner(body, " in a `with`", cst):
            fw.out.add(stmt)


def _with_loop(fw: FunctionWalk, context: tree.Call, target: tree.Expr | None, body: tree.Body, cst: tree.With) -> None:
    """Walk `with T.grid(4, 4) as (i, j):` as a `for`."""
    if target is None:
        fw.walk.fail("E0305", "the loop variable needs a name", context, help="`for i in ...:`")
    tir_loops.walk_for(fw, tree.For(cst.start, cst.end, target, context, body))

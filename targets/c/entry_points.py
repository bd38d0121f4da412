"""Print the functions that C programs call, as wrappers of the query and run functions, and those of the whole file."""

from __future__ import annotations

from collections.abc import Callable

from mlcc.runtime.abi import ALIGNMENT, KIND_BY_NAME, PLACEHOLDER_PREFIX, dtype_code
from mlcc.targets.c import host_helpers
from mlcc.targets.c.context import Shared
from mlcc.targets.c.expressions import string_literal
from mlcc.targets.c.host_writer import HostWriter
from mlcc.targets.plan.exports import error_messages
from mlcc.targets.plan.steps import HostFunction, Leaf

TIME_RUN = f"""\
/* Run a function a number of times; for tools that measure. */
int32_t {PLACEHOLDER_PREFIX}_time_run(
    int32_t (*run)(const void *args, const int64_t *symbols, void *workspace), const void *args, const int64_t *symbols,
    void *workspace, int64_t number, int32_t (*clock)(int32_t id, int64_t *time), int64_t *nanoseconds);

int32_t {PLACEHOLDER_PREFIX}_time_run(
    int32_t (*run)(const void *args, const int64_t *symbols, void *workspace), const void *args, const int64_t *symbols,
    void *workspace, int64_t number, int32_t (*clock)(int32_t id, int64_t *time), int64_t *nanoseconds) {{
    int64_t begin[2], end[2];
    (void)clock(1, begin);
    for (int64_t i = 0; i < number; ++i) {{
        const int32_t code = run(args, symbols, workspace);
        if (code != 0) return code;
    }}
    (void)clock(1, end);
    *nanoseconds = (end[0] - begin[0]) * 1000000000 + (end[1] - begin[1]);
    return 0;
}}"""


def workspace_from(func: HostFunction, shared: Shared) -> str:
    """Return where `f` takes its workspace from: `stack` if it is small, else `heap`."""
    return "heap" if func.places or func.fixed_bytes > shared.ctx.stack_bytes else "stack"


def entry_points_text(func: HostFunction, shared: Shared, symbol: Callable[[str], str]) -> str:
    """Return `f`, `f_ws`, `f_ws_size`, `f_shape` (for functions with results) and `f_error`."""
    return _EntryPoints(func, shared, symbol).text()


class _EntryPoints:
    def __init__(self, func: HostFunction, shared: Shared, symbol: Callable[[str], str]) -> None:
        self.func = func
        self.shared = shared
        self.symbol = symbol
        self.inputs, self.outputs = func.inputs(), func.outputs()

    def text(self) -> str:
        functions = [self._call(), self._call_with_workspace(), self._workspace_size()]
        if self.outputs:
            functions.append(self._shapes())
        code = "int32_t code"
        functions.append(f"const char *{self.symbol('_error')}({code}) {{\n    return error_text(code);\n}}")
        return "\n\n".join(functions)

    def _writer(self) -> HostWriter:
        w = HostWriter(self.shared)
        w.taken |= {"args", "facts", "code", "ws", "ws_size", "room", "memory", "aligned"}
        return w

    def _function(
        self,
        w: HostWriter,
        suffix: str,
        result: str,
        results: bool,
        leading: tuple[str, ...] = (),
        shapes: bool = False,
    ) -> str:
        """Return the head of a function of `leading` parameters, parameters and results, with the argument vector."""
        params, cells = [*leading], []
        for leaf in self.inputs:
            name = w.fresh(leaf.name)
            params.append(f"{_type(leaf)}{name}")
            cells.append(self._cell(w, leaf, name))
        for leaf in self.outputs if results or shapes else ():
            name = w.fresh(f"{leaf.name or 'out'}_shape" if shapes else leaf.name or "out")
            params.append(f"int64_t *{name}" if shapes else f"{_type(leaf, result=True)}{name}")
            cells.append("0" if shapes else f"cell_of({name})")
            if not shapes:
                w.use("cell_of", host_helpers.CELL)
        vector = max(len(self.inputs) + len(self.outputs), 1)
        head = f"{result} {self.symbol(suffix)}({', '.join(params) or 'void'}) {{"
        self._shape_names = [p.rpartition("*")[2] for p in params[len(leading) + len(self.inputs) :]] if shapes else []
        return "\n".join([
            head,
            f"    const int64_t args[{vector}] = {{{', '.join(cells) or '0'}}};",
            f"    int64_t facts[{1 + len(self.func.symbols)}];",
        ])  # fmt: skip

    @staticmethod
    def _cell(w: HostWriter, leaf: Leaf, name: str) -> str:
        if leaf.kind != "scalar":
            w.use("cell_of", host_helpers.CELL)
            return f"cell_of({name})"
        assert leaf.dtype is not None
        if leaf.dtype.is_float:
            w.use("cell_of_double", host_helpers.FLOAT_CELL)
            return f"cell_of_double({name})"
        return name

    def _query(self, results: bool) -> str:
        return f"    const int32_t code = {self.symbol('_query')}(args, facts, {int(results)});"

    def _call(self) -> str:
        """`f`, which allocates its workspace: on the stack if it is small, else on the heap."""
        w = self._writer()
        lines = [self._function(w, "", "int32_t", True)]
        run, fixed = self.symbol("_run"), self.func.fixed_bytes
        if workspace_from(self.func, self.shared) == "stack":
            if not fixed:
                lines += [
                    self._query(True),
                    "    if (code != 0) return code;",
                    f"    return {run}(args, facts + 1, NULL);",
                ]
                return "\n".join([*lines, "}"])
            lines += [f"    unsigned char memory[{fixed + ALIGNMENT - 1}];", self._query(True)]
            lines += ["    if (code != 0) return code;"]
            lines += [f"    return {run}(args, facts + 1, aligned(memory));", "}"]
        else:
            missing = self.shared.code("MEMORY", "out of memory for the workspace")
            w.use("allocate", host_helpers.ALLOCATE)
            lines += ["    unsigned char *memory;", f"    int32_t code = {self.symbol('_query')}(args, facts, 1);"]
            lines += ["    if (code != 0) return code;"]
            lines += [f"    memory = (unsigned char *)allocate(facts[0] + {ALIGNMENT});"]
            lines += [f"    if (memory == NULL) return {missing};"]
            lines += [f"    code = {run}(args, facts + 1, aligned(memory));", "    release(memory);"]
            lines += ["    return code;", "}"]
        w.use("aligned", _ALIGNED)
        return "\n".join(lines)

    def _call_with_workspace(self) -> str:
        """`f_ws`, which takes the workspace from the caller."""
        w = self._writer()
        text = f"the workspace is smaller than `{self.func.name}` needs, or not aligned to {ALIGNMENT} bytes"
        unusable = self.shared.code("WORKSPACE", text)
        return "\n".join([
            self._function(w, "_ws", "int32_t", True, ("void *ws", "int64_t ws_size")), self._query(True),
            "    if (code != 0) return code;",
            f"    if (facts[0] != 0 && (ws == NULL || ws_size < facts[0] || (uintptr_t)ws % {ALIGNMENT} != 0))",
            f"        return {unusable};", f"    return {self.symbol('_run')}(args, facts + 1, ws);", "}",
        ])  # fmt: skip

    def _workspace_size(self) -> str:
        """`f_ws_size`: the workspace bytes for these parameters, or a negated error code."""
        w = self._writer()
        return "\n".join([
            self._function(w, "_ws_size", "int64_t", False), self._query(self.func.kind == "prim"),
            "    return code != 0 ? -(int64_t)code : facts[0];", "}",
        ])  # fmt: skip

    def _shapes(self) -> str:
        """`f_shape`: the extents of every tensor result for these parameters."""
        w = self._writer()
        head = self._function(w, "_shape", "int32_t", False, shapes=True)
        names = self._shape_names
        for index, symbol in enumerate(self.func.symbols, 1):
            name = w.define(symbol)
            w.lines.add(f"const int64_t {name} = facts[{index}];", name)
        for leaf, name in zip(self.outputs, names, strict=True):
            dims = leaf.dims if leaf.kind == "tensor" else ()
            for at, dim in enumerate(dims):
                w.lines.add(f"{name}[{at}] = {w.size(dim)};")
            if not dims:
                w.lines.add(f"(void){name};")
        lines, _ = w.lines.finish()
        return "\n".join([head, self._query(False), "    if (code != 0) return code;", *lines, "    return 0;", "}"])


_ALIGNED = f"""
static inline void *aligned(unsigned char *memory) {{
    return memory + ({ALIGNMENT} - (uintptr_t)memory % {ALIGNMENT}) % {ALIGNMENT};
}}"""


def _type(leaf: Leaf, result: bool = False) -> str:
    """Return the C type of a parameter, up to its name."""
    if leaf.kind == "tensor":
        return "DLTensor *" if result or leaf.written else "const DLTensor *"
    if leaf.kind == "pointer":
        return "void *"
    if leaf.kind == "shape":
        return "int64_t *" if result else "const int64_t *"
    assert leaf.dtype is not None
    kind = dtype_code(str(leaf.dtype))[0]
    type = "bool" if leaf.dtype.is_bool else "int64_t" if kind in (0, 1) else "double"
    return f"{type} *" if result else f"{type} "


def packed_setters(shared: Shared) -> str:
    """Return `PREFIX_set_packed_slot` and `PREFIX_set_packed`."""
    specs, value = shared.packed_specs(), KIND_BY_NAME["VALUE"].code
    slot = f"{PLACEHOLDER_PREFIX}_set_packed_slot"
    params = "mlcc_packed_fn fn, void *context"
    lines = [f"int32_t {slot}(int32_t slot, {params}) {{"]
    lines += [f"    if (slot < 0 || slot >= {len(specs)}) return {value};"]
    lines += ["    packed_slots[slot].fn = fn;", "    packed_slots[slot].context = context;", "    return 0;", "}", ""]
    lines += [f"int32_t {PLACEHOLDER_PREFIX}_set_packed(const char *name, {params}) {{"]
    lines += [f"    static const char *const names[{len(specs)}] = {{"]
    lines += [f"        {string_literal(spec.name)}," for spec in specs]
    lines += ["    };", f"    int32_t code = {value};", f"    for (int32_t i = 0; i < {len(specs)}; ++i)"]
    lines += [f"        if (strcmp(names[i], name) == 0) code = {slot}(i, fn, context);", "    return code;", "}"]
    return "\n".join(lines)


def error_function(shared: Shared) -> str:
    """Return the table of error codes, and the function that gives the text of one."""
    return host_helpers.error_text(error_messages(shared), shared.ctx.has_faults)

"""Generate C99 headers from manifests: declarations, DLTensor, the table of error codes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mlcc.runtime.abi import ALIGNMENT, KINDS, dtype_code
from mlcc.runtime.manifest import FunctionSpec, Value, read, show, show_shape
from mlcc.targets.plan.exports import c_identifier

_DLPACK_HEADER = """\
/* Tensors are those of DLPack (https://dmlc.github.io/dlpack): of its own dlpack.h where the compiler finds one or
   MLCC_DLPACK_H names one (-DMLCC_DLPACK_H='"my/dlpack.h"'); else the same types, declared below. */
#ifdef MLCC_DLPACK_H
#include MLCC_DLPACK_H
#elif !defined(DLPACK_DLPACK_H_) && !defined(MLCC_DLTENSOR) && defined(__has_include)
#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#elif __has_include(<dlpack.h>)
#include <dlpack.h>
#elif __has_include("dlpack.h")
#include "dlpack.h"
#elif __has_include(<ATen/dlpack.h>)
#include <ATen/dlpack.h>
#endif
#endif
"""
_DLPACK = """\
#ifndef DLPACK_DLPACK_H_
#ifndef MLCC_DLTENSOR
#define MLCC_DLTENSOR
typedef struct { int32_t device_type; int32_t device_id; } DLDevice;
typedef struct { uint8_t code; uint8_t bits; uint16_t lanes; } DLDataType;
typedef struct {
    void *data;           /* with byte_offset: aligned to the element */
    DLDevice device;      /* {1, 0}: memory of the CPU */
    int32_t ndim;
    DLDataType dtype;     /* code 0 int, 1 uint, 2 float, 4 bfloat, 6 bool; then bits and lanes */
    int64_t *shape;
    int64_t *strides;     /* in elements; NULL: row-major without gaps */
    uint64_t byte_offset;
} DLTensor;
#endif
#endif
"""
_PACKED = """\
#ifndef MLCC_PACKED_FN
#define MLCC_PACKED_FN
/* A packed function: inputs first, then the tensors that it writes; 0 or an error. Scalars come as tensors without
   dimensions (int64, float64, bool), shapes as int64 vectors, strings as uint8 vectors. */
typedef int32_t (*mlcc_packed_fn)(void *context, DLTensor **args, int32_t count);
#endif
"""
_THREADS = """\
#ifndef MLCC_PARALLEL_FOR_FN
#define MLCC_PARALLEL_FOR_FN
/* Calls body(context, begin, end) for ranges that make up 0 .. n - 1, each but the last of at least `grain` indices, in
   any order and on any threads, also while it is at another such call; 0, or what a body returned that is not 0. */
typedef int32_t (*mlcc_parallel_for_fn)(int32_t (*body)(void *context, int64_t begin, int64_t end), void *context,
                                        int64_t n, int64_t grain);
#endif
/* Parallel loops run on a pool of threads that all objects of the program share. It uses as many as the process may use
   CPUs, or MLCC_NUM_THREADS in the environment if that is less, or what is set here (0: the former again); or the
   program's own threads, by a function that replaces the pool (NULL: the pool again). Both are for all objects. */
void {prefix}_set_num_threads(int32_t count);
void {prefix}_set_parallel_for(mlcc_parallel_for_fn fn);
"""


def c_header(facts: dict[str, Any]) -> str:
    """Return the header of an artifact."""
    manifest = read(facts)
    prefix = manifest.prefix
    guard = f"MLCC_{c_identifier(prefix).upper()}_H"
    lines = [
        f"/* {prefix}: made by mlcc {facts['mlcc']['version']}. {_link_with(facts)} */",
        f"#ifndef {guard}", f"#define {guard}", "#include <stdbool.h>", "#include <stdint.h>", "",
        _DLPACK_HEADER, "#ifdef __cplusplus", 'extern "C" {', "#endif", "", _DLPACK,
        "/* Functions return 0 or an error code: the low byte is the kind of error, PREFIX_f_error gives the text. */",
    ]  # fmt: skip
    lines += ["#ifndef MLCC_ERROR_KINDS", "#define MLCC_ERROR_KINDS", "enum {"]
    lines += [f"    MLCC_{kind.name} = {kind.code}, /* {kind.text} */" for kind in KINDS]
    lines += ["    MLCC_ERROR_KIND_MASK = 255", "};", "#endif", ""]
    for spec in manifest.functions.values():
        lines += _function(spec)
    if facts.get("pool"):
        lines += [_THREADS.format(prefix=prefix)]
    if manifest.packed:
        lines += _packed(prefix, [(p.name, p.args, p.results) for p in manifest.packed])
    lines += ["#ifdef __cplusplus", "}", "#endif", "#endif", ""]
    return "\n".join(lines)


def _link_with(facts: dict[str, Any]) -> str:
    """Return how to link the object, for the header's first line."""
    if facts["target"].get("freestanding"):
        return "Freestanding: needs memory functions and libm at most (`mlcc inspect` lists which)."
    return "Link the object with -lm and nothing else."


def _function(spec: FunctionSpec) -> Iterator[str]:
    symbol = spec.symbol
    inputs = [leaf for p in spec.params for leaf in p.leaves()]
    outputs = [] if spec.results is None else list(spec.results.leaves())
    used_names: set[str] = set()
    params_text = [_declare(leaf, used_names, leaf.role == "in") for leaf in inputs]
    results_text = [_declare(leaf, used_names, False, result=True) for leaf in outputs]
    yield f"/* {spec.name}({', '.join(_describe(leaf) for leaf in inputs)})"
    if spec.kind == "relax":
        yield f"   -> {', '.join(_describe(leaf) for leaf in outputs) or 'nothing'}"
    where = {"stack": " has its workspace on the stack;", "heap": " allocates its workspace;"}.get(spec.workspace_from)
    yield f"   {f'`{symbol}`{where} ' if where else ''}`{symbol}_ws` takes {ALIGNMENT}-byte-aligned memory of"
    yield f"   `{symbol}_ws_size` bytes (negative: minus an error code). Outputs must not overlap other arguments."
    if any(leaf.at_most for leaf in outputs):
        yield "   The data decide the extents of a result `at most` so large: pass it with the greatest extents; a call"
        yield "   puts the real ones into its `shape`, and as many elements, compact, to the start of its memory."
    yield "   */"
    if where is not None:
        yield _prototype("int32_t", symbol, [*params_text, *results_text])
    yield _prototype("int32_t", f"{symbol}_ws", ["void *ws", "int64_t ws_size", *params_text, *results_text])
    yield _prototype("int64_t", f"{symbol}_ws_size", params_text)
    if outputs:
        shapes = [f"int64_t *{_unique((leaf.name or 'out') + '_shape', used_names)}" for leaf in outputs]
        is_bounded = any(leaf.at_most for leaf in outputs)
        yield f"/* The {'greatest ' if is_bounded else ''}extents of every result for these parameters. */"
        yield _prototype("int32_t", f"{symbol}_shape", [*params_text, *shapes])
    yield _prototype("const char *", f"{symbol}_error", ["int32_t code"])
    yield ""


def _prototype(ret: str, name: str, params: list[str]) -> str:
    space = "" if ret.endswith("*") else " "
    return f"{ret}{space}{name}({', '.join(params) or 'void'});"


def _declare(leaf: Value, used_names: set[str], constant: bool, result: bool = False) -> str:
    name = _unique(leaf.name or "out", used_names)
    if leaf.kind == "tensor":
        return f"{'const ' if constant else ''}DLTensor *{name}"
    if leaf.kind == "pointer":
        return f"void *{name}"
    if leaf.kind == "shape":
        return f"int64_t *{name}" if result else f"const int64_t *{name}"
    code = dtype_code(leaf.dtype)[0]
    type = "bool" if leaf.dtype == "bool" else "int64_t" if code in (0, 1) else "double"
    return f"{type} *{name}" if result else f"{type} {name}"


_KEYWORDS = frozenset(
    """auto bool break case char const continue default do double else enum extern float for goto if inline int long
    register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while ws
    ws_size code class new delete this template namespace public private protected virtual operator try catch throw
    true false""".split()  # noqa: SIM905
)


def _unique(name: str, used_names: set[str]) -> str:
    """Return a C parameter name that is not taken, and add it to `used_names`."""
    base = unique = c_identifier(name)
    number = 1
    while unique in used_names or unique in _KEYWORDS:
        unique, number = f"{base}_{number}", number + 1
    used_names.add(unique)
    return unique


def _describe(leaf: Value) -> str:
    if leaf.kind == "tensor":
        bound = "at most " if leaf.at_most else ""
        text = f"{leaf.name}: {leaf.dtype}{bound and ' '}{bound}{show_shape(leaf.dims)}"
    elif leaf.kind == "shape":
        text = f"{leaf.name}: shape {show_shape(leaf.dims)}"
    elif leaf.kind == "pointer":
        text = f"{leaf.name}: pointer"
    else:
        text = f"{leaf.name}: {leaf.dtype}" + ("" if leaf.value is None else f" = {show(leaf.value)}")
    return text.replace("*/", "* /")


def _packed(prefix: str, functions: list[tuple[str, tuple[str, ...] | None, int]]) -> Iterator[str]:
    yield _PACKED
    yield "/* The packed functions that must be set before a call:"
    for name, args, results in functions:
        inputs = "any tensors" if args is None else ", ".join(args) or "nothing"
        text = f"     {name}({inputs}){f' -> {results} tensor(s), as last arguments' if results else ''}"
        yield text.replace("*/", "* /")
    yield "   0, or MLCC_VALUE if the object calls no function of that name. Set them before other threads call. */"
    yield f"int32_t {prefix}_set_packed(const char *name, mlcc_packed_fn fn, void *context);"
    yield "/* The same by number, in the order above: where a name is called with several kinds of arguments. */"
    yield f"int32_t {prefix}_set_packed_slot(int32_t slot, mlcc_packed_fn fn, void *context);"
    yield ""

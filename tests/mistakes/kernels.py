"""Mistakes in TensorIR functions."""

from __future__ import annotations

from tests.mistakes.case import Case

_HEAD = '@T.prim_func\ndef main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):\n'
_LOOP = "    for i in range(8):\n"


def body(name: str, *lines: str, command: str = "mlcc check a.mlc") -> Case:
    """A TensorIR function whose body is `lines`."""
    return Case(name, command, {"a.mlc": _HEAD + "".join(f"    {line}\n" for line in lines)})


def loop(name: str, *lines: str, command: str = "mlcc check a.mlc") -> Case:
    """A TensorIR function with one loop around `lines`."""
    return body(name, "for i in range(8):", *(f"    {line}" for line in lines), command=command)


def text(name: str, whole: str) -> Case:
    return Case(name, "mlcc check a.mlc", {"a.mlc": whole})


CASES = [
    loop("sum in a name", "s = T.float32(0)", "for j in range(8):", "    s = s + A[j]", "B[i] = s"),
    # indices and memory
    body("constant index outside", "B[8] = A[0]"),
    body("negative index", "B[-1] = A[0]"),
    body("loop too long", "for i in range(9):", "    B[i] = A[i]"),
    loop("too many indices", "B[i, 0] = A[i]"),
    loop("float as an index", "B[i + 0.5] = A[i]"),
    loop("call for an index", "B(i) = A(i)"),
    loop("float64 into float32", 'B[i] = T.Cast("float64", A[i]) * T.float64(3)'),
    loop("string", 'B[i] = "one"'),
    loop("buffer for an element", "B[i] = A"),
    loop("buffer is assigned", "B = A[i]"),
    loop("mixed dtypes", "B[i] = A[i] + T.float64(1)"),
    body("race", "for i in T.parallel(8):", "    B[0] = A[i]"),
    body("read before a write", 'C = T.alloc_buffer((8,), "float32")', "for i in range(8):", "    B[i] = C[i]"),
    # names
    body("loop variable outside", "for i in range(8):", "    B[i] = A[i]", "B[0] = A[i]"),
    loop("unknown buffer", "C[i] = A[i]"),
    loop("math.sqrt", "B[i] = math.sqrt(A[i])"),
    loop("np.exp", "B[i] = np.exp(A[i])"),
    loop("exp", "B[i] = exp(A[i])"),
    loop("T.exq", "B[i] = T.exq(A[i])"),
    loop("T.relu", "B[i] = T.relu(A[i])"),
    loop("R in a kernel", "B[i] = R.nn.relu(A[i])"),
    loop("T.max of one", "B[i] = T.max(A[i])"),
    loop("T.float33", "B[i] = T.float33(1)"),
    loop("print", "print(A[i])", "B[i] = A[i]"),
    loop("method", "B[i] = A[i].sqrt()"),
    loop("unknown function", "B[i] = foo(A[i])"),
    # statements
    loop("sum in a variable", "s = 0.0", "s += A[i]", "B[i] = s"),
    loop("increment", "B[i]++"),
    loop("loop of C", "for (int j = 0; j < 8; j++)", "    B[j] = A[j]"),
    body("loop over a number", "for i in 8:", "    B[i] = A[i]"),
    body("loop over a list", "for i in [0, 1, 2]:", "    B[i] = A[i]"),
    body("one name for a grid", "for i in T.grid(2, 4):", "    B[i] = A[i]"),
    body("two names for a range", "for i, j in range(8):", "    B[i] = A[i]"),
    body("enumerate", "for i, a in enumerate(A):", "    B[i] = a"),
    body("continue outside", "continue"),
    loop("lambda", "f = lambda v: v + 1", "B[i] = f(A[i])"),
    # blocks
    loop("domain of a block axis", 'with T.block("B"):', "    vi = T.axis.spatial(4, i)", "    B[vi] = A[vi]"),
    loop(
        "block without a name",
        "with T.block():",
        "    vi = T.axis.spatial(8, i)",
        "    B[vi] = A[vi]",
        "    vi = T.axis.spatial(8, i)",
    ),
    loop("T.blok", 'with T.blok("B"):', "    B[i] = A[i]"),
    loop("T.axis.parallel", 'with T.block("B"):', "    vi = T.axis.parallel(8, i)", "    B[vi] = A[vi]"),
    loop("remap too short", 'with T.block("B"):', '    vi, vj = T.axis.remap("S", [i])', "    B[vi] = A[vi]"),
    loop(
        "reads of another buffer",
        'with T.block("B"):',
        "    vi = T.axis.spatial(8, i)",
        "    T.reads(D[vi])",
        "    B[vi] = A[vi]",
    ),
    loop("loop variable in a block", 'with T.block("B"):', "    vi = T.axis.spatial(8, i)", "    B[vi] = A[j]"),
    # signatures
    text("T.primfunc", _HEAD.replace("prim_func", "primfunc") + _LOOP + "        B[i] = A[i]\n"),
    text("bare Buffer", _HEAD.replace("T.Buffer", "Buffer") + _LOOP + "        B[i] = A[i]\n"),
    text("unknown size", _HEAD.replace("(8,)", "(n,)") + _LOOP + "        B[i] = A[i]\n"),
    text("parameter without a type", "@T.prim_func\ndef main(A, B):\n    B[0] = A[0]\n"),
    text("handle used as a buffer", "@T.prim_func\ndef main(a: T.handle):\n    a[0] = 1.0\n"),
    text("jit of numba", _HEAD.replace("@T.prim_func", "@njit") + _LOOP + "        B[i] = A[i]\n"),
    loop("extern function", 'B[i] = T.call_extern("float32", "frobnicate", A[i])', command="mlcc compile a.mlc -o a.o"),
    body("threads on a CPU", 'for i in T.thread_binding(8, thread="threadIdx.y.z"):', "    B[i] = A[i]"),
]

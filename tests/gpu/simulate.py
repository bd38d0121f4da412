"""A slow and simple GPU for tests: runs the kernels of a `DeviceProgram` thread by thread, and watches them.

Threads of a block are generators that stop at barriers and shuffles. Two threads that touch an element without a
barrier between them, one of them writing another value, raise `Race`; so do two blocks. Barriers that not all threads
reach raise `Divergence`. Every index is checked.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Generator
from typing import Any

import numpy as np

from mlcc.interp.arithmetic import stored
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import DType
from mlcc.ir.node import children, walk
from mlcc.passes.gpu import DeviceKernel, DeviceProgram
from mlcc.passes.lowering.symbols import symbols_of

Env = dict[tir.Var, Any]


class Race(AssertionError):
    pass


class Divergence(AssertionError):
    pass


class Memory:
    """The elements of one allocation. `touched` are, by element, who wrote and who read since the last barrier."""

    def __init__(self, name: str, data: np.ndarray, shared: bool) -> None:
        self.name, self.data, self.shared = name, data, shared
        self.written: dict[int, tuple[Any, int]] = {}  # element -> (thread, epoch)
        self.read: dict[int, dict[Any, int]] = {}


class Trap(Exception):
    """The number of an assertion that failed."""


def run_program(program: DeviceProgram, arguments: list[Any]) -> dict[str, int]:
    """Runs the host code with NumPy arrays and scalars for the parameters of the function, in place. Gives how often
    each kernel was launched."""
    env: Env = {}
    func = program.func
    for param, buffer, value in zip(func.params, func.buffers, arguments, strict=True):
        if buffer is None:
            env[param] = value
            continue
        env[param] = env[buffer.data] = Memory(buffer.name, value.reshape(-1), True)
        for dim, extent in zip(buffer.shape, value.shape, strict=True):
            if isinstance(dim, tir.Var):
                env[dim] = extent
    assert all(symbol in env for symbol in symbols_of(func))
    kernels = {k.name: k for k in program.kernels}
    launched: dict[str, int] = {}
    _host(program.func.body, env, kernels, launched)
    return launched


def _host(body: Any, env: Env, kernels: dict[str, DeviceKernel], launched: dict[str, int]) -> None:
    for stmt in body:
        match stmt:
            case tir.Evaluate(value=tir.Call(op=relax.GlobalVar(name=name), args=args)):
                launched[name] = launched.get(name, 0) + 1
                run_kernel(kernels[name], [env[a] if isinstance(a, tir.Var) else value_of(a, env) for a in args])
            case tir.AllocBuffer(buffer=buffer):
                env[buffer.data] = _fresh(buffer, env)
            case tir.Bind(var=var, value=value):
                env[var] = value_of(value, env)
            case tir.For(var=var, min=low, extent=extent, body=inner):
                start = int(value_of(low, env))
                for number in range(start, start + int(value_of(extent, env))):
                    env[var] = number
                    _host(inner, env, kernels, launched)
            case tir.IfThenElse(condition=condition, then_body=then, else_body=other):
                _host(then if value_of(condition, env) else other or (), env, kernels, launched)
            case tir.AttrStmt(body=inner):
                _host(inner, env, kernels, launched)
            case tir.AssertStmt(condition=condition, message=message):
                assert value_of(condition, env), message
            case _:
                raise AssertionError(f"a host cannot do this: {stmt}")


def run_kernel(kernel: DeviceKernel, arguments: list[Any]) -> None:
    base: Env = dict(zip(kernel.params, arguments, strict=True))
    for argument in arguments:
        if isinstance(argument, Memory):  # kernels run one after the other
            argument.written, argument.read = {}, {}
    trap = np.zeros(1, np.int32)
    if kernel.asserts:
        base[kernel.params[-1]] = Memory("error", trap, False)
    sizes = {tag: int(value_of(extent, base)) for tag, extent in kernel.extents.items()}
    grid = [range(sizes.get(f"blockIdx.{d}", 1)) for d in "zyx"]
    block = [range(sizes.get(f"threadIdx.{d}", 1)) for d in "zyx"]
    count = math.prod(len(r) for r in block)
    assert count <= 1024
    for bz, by, bx in itertools.product(*grid):
        place = {"blockIdx.x": bx, "blockIdx.y": by, "blockIdx.z": bz}
        shared: dict[tir.Var, Memory] = {}
        threads = []
        for number, (tz, ty, tx) in enumerate(itertools.product(*block)):
            here = {**place, "threadIdx.x": tx, "threadIdx.y": ty, "threadIdx.z": tz}
            env = base | {var: here[tag] for tag, var in kernel.axes.items()}
            threads.append(_Thread((bx, by, bz), number, env, shared))
        _run_block(threads, kernel.body)
    if trap[0]:
        raise Trap(kernel.asserts[trap[0] - 1])


def _run_block(threads: list[_Thread], body: Any) -> None:
    """Warps one after the other, up to the next barrier."""
    waiting = {t: t.body(body) for t in threads}
    answers: dict[_Thread, Any] = dict.fromkeys(threads)
    while waiting:
        at: dict[_Thread, Any] = {}
        for first in range(0, len(threads), 32):
            warp = [t for t in threads[first : first + 32] if t in waiting]
            _run_warp(warp, waiting, answers, at)
        if at and (len(at) < len(threads) or len({id(node) for node in at.values()}) > 1):
            raise Divergence("a barrier that not all threads of the block reach")
        for t in threads:
            t.epoch += 1


def _run_warp(warp: list[_Thread], waiting: Any, answers: Any, at: dict[_Thread, Any]) -> None:
    """Until all threads of the warp are at a barrier or done."""
    asked: dict[_Thread, Any] = {}
    while any(t in waiting and t not in at for t in warp):
        asked.clear()
        for t in warp:
            if t not in waiting or t in at:
                continue
            try:
                kind, *rest = waiting[t].send(answers[t])
                answers[t] = None
            except StopIteration:
                del waiting[t]
                continue
            if kind == "barrier":
                at[t] = rest[0]
            else:
                asked[t] = (kind, *rest)
        if asked:
            if len(asked) < len(warp) or len({id(a[1]) for a in asked.values()}) > 1:
                raise Divergence("a shuffle that not all threads of the warp reach")
            if next(iter(asked.values()))[0] == "warp":
                continue
            values = {t.number % 32: a[2] for t, a in asked.items()}
            for t, (name, _, value, by) in asked.items():
                lane = t.number % 32
                source = {"": by, "_up": lane - by, "_down": lane + by, "_xor": lane ^ by}[name]
                answers[t] = values.get(int(source), value) if 0 <= source < 32 else value


_SHUFFLES = {"tir.tvm_warp_shuffle" + suffix: suffix for suffix in ("", "_up", "_down", "_xor")}


def _talks(stmt: Any) -> bool:
    return any(
        isinstance(n, tir.Call) and isinstance(n.op, tir.Op) and (n.op.name in _SHUFFLES or n.op.name.endswith("_sync"))
        for n in walk(stmt)
    )


class _Thread:
    _known: dict[int, tuple[Any, bool]] = {}

    def __init__(self, block: tuple[int, ...], number: int, env: Env, shared: dict[tir.Var, Memory]) -> None:
        self.block, self.number, self.env, self.shared = block, number, env, shared
        self.epoch = 0
        env[_THREAD] = self

    def _quiet(self, stmt: Any) -> bool:
        found = self._known.get(id(stmt))
        if found is None or found[0] is not stmt:
            found = self._known[id(stmt)] = (stmt, not _talks(stmt))
        return found[1]

    def body(self, body: Any) -> Generator[Any, Any, None]:
        for stmt in body:
            if self._quiet(stmt):
                self.do(stmt)
                continue
            match stmt:
                case tir.Evaluate(value=tir.Call(op=tir.Op("tir.tvm_storage_sync"), args=args)):
                    yield ("barrier" if args[0].value.startswith("shared") else "warp", stmt)
                case tir.For(var=var, min=low, extent=extent, body=inner):
                    start = int(value_of(low, self.env))
                    for number in range(start, start + int(value_of(extent, self.env))):
                        self.env[var] = number
                        yield from self.body(inner)
                case tir.While(condition=condition, body=inner):
                    while value_of(condition, self.env):
                        yield from self.body(inner)
                case tir.IfThenElse(condition=condition, then_body=then, else_body=other):
                    yield from self.body(then if value_of(condition, self.env) else other or ())
                case tir.AttrStmt(body=inner):
                    yield from self.body(inner)
                case _:
                    for node in reversed(list(walk(stmt))):
                        if isinstance(node, tir.Call) and isinstance(node.op, tir.Op) and node.op.name in _SHUFFLES:
                            _, value, by, _, _ = (value_of(a, self.env) for a in node.args)
                            self.env[node] = yield (_SHUFFLES[node.op.name], node, value, by)  # type: ignore[index]
                    self.do(stmt)

    def do(self, stmt: Any) -> None:
        env = self.env
        match stmt:
            case tir.BufferStore(buffer=buffer, value=value, indices=(index,)):
                self.store(buffer, value_of(index, env), value_of(value, env))
            case tir.Bind(var=var, value=value):
                env[var] = value_of(value, env)
            case tir.AllocBuffer(buffer=buffer):
                if buffer.scope == "local":
                    env[buffer.data] = _fresh(buffer, env)
                else:
                    if buffer.data not in self.shared:
                        self.shared[buffer.data] = _fresh(buffer, env)
                    env[buffer.data] = self.shared[buffer.data]
            case tir.DeclBuffer(buffer=buffer, data=data):
                env[buffer.data] = value_of(data, env)
            case tir.For(var=var, min=low, extent=extent, body=inner):
                start = int(value_of(low, env))
                for number in range(start, start + int(value_of(extent, env))):
                    env[var] = number
                    for each in inner:
                        self.do(each)
            case tir.While(condition=condition, body=inner):
                while value_of(condition, env):
                    for each in inner:
                        self.do(each)
            case tir.IfThenElse(condition=condition, then_body=then, else_body=other):
                assert condition.dtype.lanes == 1, "branches are taken by threads, not lanes"
                for each in then if value_of(condition, env) else other or ():
                    self.do(each)
            case tir.AttrStmt(body=inner):
                for each in inner:
                    self.do(each)
            case tir.Evaluate(value=value):
                value_of(value, env)
            case _:
                raise AssertionError(f"a kernel cannot do this: {stmt}")

    def memory(self, buffer: tir.Buffer, index: Any) -> Memory:
        memory: Memory = self.env[buffer.data]
        if np.min(index) < 0 or np.max(index) >= memory.data.size:
            raise IndexError(f"{buffer.name}[{index}] of {memory.data.size}")
        return memory

    def load(self, buffer: tir.Buffer, index: Any) -> Any:
        memory = self.memory(buffer, index)
        if memory.shared:
            for at in np.atleast_1d(index):
                writer = memory.written.get(int(at))
                if writer is not None:
                    self.check(memory, int(at), *writer)
                memory.read.setdefault(int(at), {})[(self.block, self.number)] = self.epoch
        return memory.data[index]

    def store(self, buffer: tir.Buffer, index: Any, value: Any) -> None:
        memory = self.memory(buffer, index)
        new = np.broadcast_to(np.asarray(value).astype(memory.data.dtype), np.shape(index))
        if memory.shared:
            for at, one in zip(np.atleast_1d(index), np.atleast_1d(new), strict=True):
                writer = memory.written.get(int(at))
                same = np.array_equal(memory.data[at], one, equal_nan=True)
                if writer is not None and not same:
                    self.check(memory, int(at), *writer)
                for reader, epoch in memory.read.get(int(at), {}).items():
                    if not same:
                        self.check(memory, int(at), reader, epoch)
                memory.written[int(at)] = ((self.block, self.number), self.epoch)
        memory.data[index] = new

    def check(self, memory: Memory, at: int, other: Any, epoch: int) -> None:
        block, number = other
        if block != self.block or (number != self.number and epoch == self.epoch):
            raise Race(f"{memory.name}[{at}]: thread {number} of block {block} and {self.number} of {self.block}")


_THREAD = tir.Var("thread", DType.of("handle"))


def _fresh(buffer: tir.Buffer, env: Env) -> Memory:
    """Memory that holds what nobody wants."""
    size = math.prod(int(value_of(d, env)) for d in buffer.shape) * buffer.dtype.lanes
    data = np.frombuffer(np.full(size * stored(buffer.dtype).itemsize, 0x7B, np.uint8), stored(buffer.dtype)).copy()
    if buffer.dtype.is_bool:
        data[:] = False
    return Memory(buffer.name, data, buffer.scope != "local")


_MATH: dict[str, Callable[..., Any]] = {
    "assume_number": lambda x: x, "allow_reciprocal": lambda x: x,
    "exp": np.exp, "sqrt": np.sqrt, "tanh": np.tanh, "log": np.log, "fabs": np.abs, "abs": np.abs, "floor": np.floor,
    "ceil": np.ceil, "likely": lambda x: x, "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor, "shift_left": np.left_shift, "shift_right": np.right_shift, "pow": np.power,
    "exp2": np.exp2, "rsqrt": lambda x: x.dtype.type(1) / np.sqrt(x), "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "bitwise_not": np.bitwise_not, "isnan": np.isnan, "erf": np.vectorize(math.erf),
}  # fmt: skip
_OPS: dict[type, Callable[..., Any]] = {
    tir.Add: np.add, tir.Sub: np.subtract, tir.Mul: np.multiply, tir.FloorDiv: np.floor_divide,
    tir.FloorMod: np.mod, tir.Min: np.minimum, tir.Max: np.maximum, tir.EQ: np.equal, tir.NE: np.not_equal,
    tir.LT: np.less, tir.LE: np.less_equal, tir.GT: np.greater, tir.GE: np.greater_equal, tir.And: np.logical_and,
    tir.Or: np.logical_or, tir.Mod: np.fmod,
}  # fmt: skip


def value_of(node: Any, env: Any) -> Any:
    """The value of an expression: a NumPy scalar, or an array of lanes."""
    match node:
        case tir.IntImm(dtype=dtype, value=value) | tir.FloatImm(dtype=dtype, value=value):
            return stored(dtype).type(value)
        case tir.StringImm(value=value):
            return value
        case tir.Var(dtype=dtype):
            found = env[node]
            return found if dtype.is_handle or np.ndim(found) else stored(dtype).type(found)
        case tir.And(lhs=a, rhs=b) if a.dtype.lanes == 1:
            return np.bool_(value_of(a, env) and value_of(b, env))
        case tir.Or(lhs=a, rhs=b) if a.dtype.lanes == 1:
            return np.bool_(value_of(a, env) or value_of(b, env))
        case tir.Div(dtype=dtype, lhs=a, rhs=b):
            x, y = value_of(a, env), value_of(b, env)
            return stored(dtype).type(int(x / y)) if dtype.is_int else x / y
        case tir.BinaryOp(lhs=a, rhs=b):
            return _OPS[type(node)](value_of(a, env), value_of(b, env))
        case tir.Not(value=value):
            return np.logical_not(value_of(value, env))
        case tir.Cast(dtype=dtype, value=value):
            return np.asarray(value_of(value, env)).astype(stored(dtype))[()]
        case tir.Select(condition=condition, true_value=yes, false_value=no):
            return np.where(value_of(condition, env), value_of(yes, env), value_of(no, env))[()]
        case tir.Ramp(base=base, stride=stride, lanes=lanes):
            return value_of(base, env) + np.arange(lanes, dtype=base.dtype.kind + str(base.dtype.bits)) * value_of(
                stride, env
            )
        case tir.Broadcast(value=value, lanes=lanes):
            return np.repeat(value_of(value, env), lanes)
        case tir.Shuffle(vectors=vectors, indices=indices):
            lanes = np.concatenate([np.atleast_1d(value_of(v, env)) for v in vectors])
            picked = lanes[[int(value_of(i, env)) for i in indices]]
            return picked if len(picked) > 1 else picked[0]
        case tir.Let(var=var, value=value, body=body):
            return value_of(body, {**env, var: value_of(value, env)})
        case tir.BufferLoad(buffer=buffer, indices=(index,)):
            return env[_THREAD].load(buffer, value_of(index, env))
        case tir.Call(op=tir.Op("tir.if_then_else"), args=(condition, yes, no)):
            assert condition.dtype.lanes == 1
            return value_of(yes if value_of(condition, env) else no, env)
        case tir.Call(op=tir.Op(name)) if name in _SHUFFLES:
            return env[node]
        case tir.Call(op=tir.Op("tir.tvm_warp_activemask")):
            return np.uint32(0xFFFFFFFF)
        case tir.Call(op=tir.Op(name), args=args):
            made = _MATH[name.removeprefix("tir.")](*(value_of(a, env) for a in args))
            return made if node.dtype.lanes > 1 else np.asarray(made).astype(stored(node.dtype))[()]
    raise AssertionError(f"{type(node).__name__}: {[type(n) for n in children(node)]}")

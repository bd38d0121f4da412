"""Read a launch plan: validate its JSON and compile it to operations.

`docs/cuda.md` describes the JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from mlcc.runtime.abi import dtype_code
from mlcc.runtime.launch.device import SCALARS, KernelSpec
from mlcc.runtime.launch.plan import (
    POINTER_ALIGNMENT,
    VERSION,
    ConstantSpec,
    FunctionPlan,
    Kernel,
    Location,
    Operation,
    PackedArgument,
    Plan,
    Runner,
)
from mlcc.runtime.launch.scalars import ROUND, Compute, Values, compute, constant, damaged
from mlcc.runtime.launch.tensor_map import BYTES, DTYPES, MAX_DIMS, SWIZZLES, MapSpec, TensorMap, tensor_map
from mlcc.runtime.manifest import DEPTH, FunctionSpec, PackedSpec

_READABLE_VERSIONS = (1, VERSION)  # kernels of version 1 only report the number of a failed check


def read_plan(raw: Any, functions: Mapping[str, FunctionSpec], packed: Sequence[PackedSpec]) -> Plan:
    """Validate a plan and compile it to operations. Raises LoadError E0869."""
    try:
        return _Reader(raw, functions, packed).plan()
    except RecursionError:
        raise damaged("it is nested too deeply") from None
    except KeyError as exc:
        raise damaged(f"it has no `{exc.args[0]}`") from None
    except (TypeError, ValueError, AttributeError, IndexError, OverflowError):
        raise damaged("a part of it has the wrong type") from None


def _integer(value: Any) -> int:
    number = constant(value)
    if number is None:
        raise damaged(f"`{value}` is not an integer")
    return number


class _Reader:
    def __init__(self, raw: Any, functions: Mapping[str, FunctionSpec], packed: Sequence[PackedSpec]) -> None:
        if not isinstance(raw, dict) or raw.get("version") not in _READABLE_VERSIONS:
            raise damaged("it has another version")
        self.raw = raw
        self.specs = functions
        self.packed = packed
        self.kernels: dict[str, Kernel] = {}
        self.programs: dict[str, _Program] = {}
        self.measured: list[str] = []
        self.dynamic = False  # True if a step depends on data or calls a packed function
        self.arguments = 0

    def plan(self) -> Plan:
        raw = self.raw
        for name, entry in raw["kernels"].items():
            self.kernels[name] = self.kernel(name, entry)
        self.constants = tuple(
            ConstantSpec(str(c["dtype"]), tuple(map(_integer, c["shape"])), _integer(c["bytes"]), str(c["sha256"]))
            for c in raw["constants"]
        )
        for name, entry in raw["programs"].items():
            self.programs[name] = _Program(self, entry)
        functions = {name: self.function(self.specs[name], raw["functions"][name]) for name in self.specs}
        errors = {_integer(code): str(text) for code, text in raw["errors"]}
        words = sum(k.word >= 0 for k in self.kernels.values())
        return Plan(functions, self.kernels, self.constants, errors, words)

    def kernel(self, name: str, raw: Any) -> Kernel:
        params = tuple(map(str, raw["params"]))
        for kind in params:
            by_value = kind.startswith("bytes") and kind[5:].isdigit()
            if kind != "ptr" and kind not in SCALARS and not by_value:
                raise damaged(f"kernel `{name}` takes a `{kind}`")
        x, y, z = map(_integer, raw["block"])
        symbol = str(raw.get("symbol", name))
        spec = KernelSpec(symbol, params, (x, y, z), _integer(raw["shared"]), _integer(raw.get("dynamic_shared", 0)))
        asserts = tuple(map(_integer, raw.get("asserts", ())))
        if asserts and (not params or params[-1] != "ptr"):
            raise damaged(f"kernel `{name}` has no parameter for its error record")
        return Kernel(name, spec, asserts, sum(k.word >= 0 for k in self.kernels.values()) if asserts else -1)

    # ------------------------------------------------------------ functions

    def function(self, spec: FunctionSpec, raw: Any) -> FunctionPlan:
        inputs = [leaf for p in spec.params for leaf in p.leaves()]
        outputs = list(spec.results.leaves()) if spec.results is not None else []
        self.arguments = len(inputs) + len(outputs)
        self.dynamic, self.measured = False, []
        names = set(spec.symbols)
        floats = tuple((self.index(i), str(name)) for i, name in raw.get("floats", ()))
        names |= {name for _, name in floats}
        places = []
        for name, tree in raw["places"]:
            places.append((str(name), compute(tree, names)))
            names.add(str(name))
        _collect_data_dependent(raw["steps"], self.measured, 0)
        names |= set(self.measured)
        workspace = compute(raw["workspace"], names)
        steps = self.steps(raw["steps"], names, 0)
        values = tuple((self.index(i), compute(tree, names)) for i, tree in raw.get("values", ()))
        shifts = {self.index(i): compute(tree, names) for i, tree in raw.get("shifts", ())}
        actual = {self.index(i): tuple(compute(t, names) for t in trees) for i, trees in raw.get("actual", ())}
        return FunctionPlan(
            tuple(places), workspace, floats, shifts, steps, values, actual, tuple(self.measured), not self.dynamic
        )

    def index(self, value: Any) -> int:
        number = _integer(value)
        if not 0 <= number < self.arguments:
            raise damaged(f"there is no argument {number}")
        return number

    def steps(self, raw: Any, names: Collection[str], depth: int) -> tuple[Operation, ...]:
        if depth > DEPTH:
            raise damaged("its branches are nested too deeply")
        return tuple(self.step(step, names, depth) for step in raw)

    def step(self, raw: Any, names: Collection[str], depth: int) -> Operation:
        match raw["do"]:
            case "run":
                return self.run(raw, names)
            case "copy":
                target, source = self.place(raw["to"], names), self.place(raw["from"], names)
                size = compute(raw["bytes"], names)
                return lambda run, values: run.copy(target(run, values), source(run, values), size(values))
            case "check":
                holds, code = self.condition(raw["cond"], names), _integer(raw["code"])
                return lambda run, values: None if holds(run, values) else run.fail(code)
            case "if":
                test = self.condition(raw["cond"], names)
                then = self.steps(raw["then"], names, depth + 1)
                other = self.steps(raw.get("else", ()), names, depth + 1)
                return branch(test, then, other)
            case "loop":
                return loop(self.steps(raw["body"], names, depth + 1))
            case "again":
                self.dynamic = True
                return next_pass
            case "measure":
                self.dynamic = True
                name, place, code = str(raw["name"]), self.place(raw["from"], names), _integer(raw["code"])
                return lambda run, values: run.measure(values, name, place(run, values), code)
            case "packed":
                self.dynamic = True
                slot = _integer(raw["slot"])
                if not 0 <= slot < len(self.packed):
                    raise damaged(f"there is no packed function {slot}")
                spec = self.packed[slot]
                args = tuple(self.packed_argument(a, names) for a in raw["args"])
                if spec.results > len(args) or any(a.kind != "tensor" for a in args[len(args) - spec.results :]):
                    raise damaged(f"packed function `{spec.name}` lacks results")
                return lambda run, values: run.packed(spec, args, values)
        raise damaged(f"it has the step `{raw['do']}`")

    def condition(self, raw: Any, names: Collection[str]) -> Callable[[Runner, Values], Any]:
        if isinstance(raw, dict):
            self.dynamic = True
            place = self.place(raw["load"], names)
            return lambda run, values: run.flag(place(run, values))
        value = compute(raw, names)
        return lambda run, values: value(values)

    def place(self, raw: Any, names: Collection[str]) -> Location:
        """Parse a memory location; a fourth part is the size in bytes of memory that a kernel needs aligned."""
        where, number, offset = raw[:3]
        shift, index = compute(offset, names), _integer(number)
        if where == "work":
            return lambda run, values: run.work + shift(values)
        if where == "arg":
            self.index(index)
            return lambda run, values: run.args[index] + shift(values)
        if where == "const" and 0 <= index < len(self.constants):
            return lambda run, values: run.constants[index] + shift(values)
        raise damaged(f"there is no place `{where}` {index}")

    def packed_argument(self, raw: Any, names: Collection[str]) -> PackedArgument:
        if "tensor" in raw:
            dtype_code(raw["dtype"])
            dims = tuple(compute(d, names) for d in raw["shape"])
            return PackedArgument("tensor", self.place(raw["tensor"], names), raw["dtype"], dims)
        if "shape" in raw:
            return PackedArgument("shape", dims=tuple(compute(d, names) for d in raw["shape"]))
        if "str" in raw:
            return PackedArgument("str", text=str(raw["str"]))
        ((kind, tree),) = raw.items()
        if kind not in ("int", "float", "bool"):
            raise damaged(f"a packed function takes a `{kind}`")
        return PackedArgument(kind, value=compute(tree, names))

    # ------------------------------------------------------------ programs

    def run(self, raw: Any, names: Collection[str]) -> Operation:
        """Compile the call of a program with values for its parameters and symbols."""
        program = self.programs[raw["program"]]
        if len(raw["args"]) != len(program.params) or len(raw.get("symbols", ())) != len(program.symbols):
            raise damaged(f"`{raw['program']}` is run with other arguments than it takes")
        pointers: list[tuple[str, Location, Compute | None, str]] = []
        scalars: list[tuple[str, Compute]] = []
        for (name, kind, role), arg in zip(program.params, raw["args"], strict=True):
            if kind in ("buffer", "pointer"):
                size = compute(arg[3], names) if len(arg) > 3 else None
                pointers.append((name, self.place(arg, names), size, role))
            else:
                scalars.append((name, _rounded(kind, compute(arg, names))))
        scalars += [(n, compute(t, names)) for n, t in zip(program.symbols, raw.get("symbols", ()), strict=True)]
        work = self.place(raw["work"], names) if "work" in raw else None
        body = program.steps

        def operation(run: Runner, values: Values) -> None:
            inner: Values = {name: value(values) for name, value in scalars}
            copies_back = []
            for name, place, size, role in pointers:
                address = place(run, values)
                if size is not None and address % POINTER_ALIGNMENT:
                    aligned = run.realigned(address, size(values), role != "out")
                    if role != "in":
                        copies_back.append((address, aligned, size(values)))
                    address = aligned
                inner[name] = address
            base = 0 if work is None else work(run, values)
            for step in body:
                step(run, base, inner)
            for target, source, count in copies_back:
                run.copy(target, source, count)

        return operation


def _tensor_map(raw: Any, names: Collection[str]) -> Callable[[Values], TensorMap]:
    """Compile a tensor map to a function of the values; see `docs/cuda.md`."""
    box, steps = (tuple(map(_integer, raw[key])) for key in ("box", "steps"))
    spec = MapSpec(str(raw["name"]), str(raw["dtype"]), box, steps, _integer(raw["swizzle"]))
    dims, strides = ([compute(e, names) for e in raw[key]] for key in ("dims", "strides"))
    rank, is_default = len(dims), (raw["interleave"], raw["fill"]) == ("none", "zeros")
    is_valid = 1 <= rank <= MAX_DIMS and len(strides) == rank - 1 and len(box) == len(steps) == rank and is_default
    if not is_valid or spec.dtype not in DTYPES or spec.swizzle not in SWIZZLES or not all((*box, *steps)):
        raise damaged(f"the tensor map of `{spec.name}` is malformed")
    base = compute(raw["base"], names)
    return lambda v: tensor_map(spec, base(v), [d(v) for d in dims], [s(v) for s in strides])


def branch(
    test: Callable[[Runner, Values], Any], then: Sequence[Operation], otherwise: Sequence[Operation]
) -> Operation:
    def operation(run: Runner, values: Values) -> None:
        for step in then if test(run, values) else otherwise:
            step(run, values)

    return operation


class _NextIteration(Exception):
    """Ends an iteration of the innermost loop."""


def next_pass(run: Runner, values: Values) -> None:
    raise _NextIteration


def loop(body: Sequence[Operation]) -> Operation:
    def operation(run: Runner, values: Values) -> None:
        while True:
            try:
                for step in body:
                    step(run, values)
                return
            except _NextIteration:
                pass

    return operation


def _rounded(kind: str, value: Compute) -> Compute:
    """Round a scalar argument to the parameter's dtype."""
    rounded = ROUND.get(kind)
    if rounded is None:
        return value
    return lambda values: rounded(value(values))


def _collect_data_dependent(raw: Any, names: list[str], depth: int) -> None:
    for step in raw:
        if step["do"] == "measure":
            names.append(str(step["name"]))
        elif step["do"] == "if" and depth < DEPTH:
            _collect_data_dependent(step["then"], names, depth + 1)
            _collect_data_dependent(step.get("else", ()), names, depth + 1)
        elif step["do"] == "loop" and depth < DEPTH:
            _collect_data_dependent(step["body"], names, depth + 1)


HostStep = Callable[[Runner, int, Values], None]  # run, start of the program's workspace, values


class _Program:
    """The compiled host code of a PrimFunc."""

    def __init__(self, reader: _Reader, raw: Any) -> None:
        self.kernels = reader.kernels
        self.params = [(str(p["name"]), str(p["kind"]), str(p.get("role", "inout"))) for p in raw["params"]]
        self.symbols = list(map(str, raw["symbols"]))
        names = {name for name, _, _ in self.params} | set(self.symbols)
        self.steps = self.body(raw["steps"], names, 0)

    def body(self, raw: Any, names: Collection[str], depth: int) -> tuple[HostStep, ...]:
        if depth > DEPTH:
            raise damaged("its loops are nested too deeply")
        known = set(names)
        return tuple(self.step(step, known, depth) for step in raw)

    def step(self, raw: Any, names: set[str], depth: int) -> HostStep:
        match raw["do"]:
            case "launch":
                return self.launch(raw, names)
            case "let":
                name, value = str(raw["name"]), compute(raw["value"], names)
                names.add(name)
                return lambda run, base, values: values.__setitem__(name, value(values))
            case "alloc":
                name, at = str(raw["name"]), compute(raw["at"], names)
                names.add(name)
                return lambda run, base, values: values.__setitem__(name, base + at(values))
            case "check":
                holds, code = compute(raw["cond"], names), _integer(raw["code"])
                return lambda run, base, values: None if holds(values) else run.fail(code)
            case "if":
                return self.branch(raw, names, depth)
            case "for":
                return self.loop(raw, names, depth)
        raise damaged(f"it has the step `{raw['do']}`")

    def branch(self, raw: Any, names: set[str], depth: int) -> HostStep:
        test = compute(raw["cond"], names)
        then, other = self.body(raw["then"], names, depth + 1), self.body(raw.get("else", ()), names, depth + 1)

        def step(run: Runner, base: int, values: Values) -> None:
            for inner in then if test(values) else other:
                inner(run, base, values)

        return step

    def loop(self, raw: Any, names: set[str], depth: int) -> HostStep:
        name = str(raw["name"])
        low, extent, stride = (compute(raw.get(k, 1), names) for k in ("min", "extent", "step"))
        body = self.body(raw["body"], {*names, name}, depth + 1)

        def step(run: Runner, base: int, values: Values) -> None:
            first = low(values)
            for value in range(first, first + extent(values), stride(values) or 1):
                values[name] = value
                for inner in body:
                    inner(run, base, values)

        return step

    def launch(self, raw: Any, names: set[str]) -> HostStep:
        kernel = self.kernels[raw["kernel"]]
        if len(raw["args"]) + bool(kernel.asserts) != len(kernel.spec.params):
            raise damaged(f"`{kernel.name}` is launched with other arguments than it takes")
        grid, block = ([compute(e, names) for e in raw[k]] for k in ("grid", "block"))
        if len(grid) != 3 or len(block) != 3:
            raise damaged(f"the launch of `{kernel.name}` needs three extents")
        shared = compute(raw.get("shared", 0), names)
        args = [_tensor_map(a["map"], names) if isinstance(a, dict) else compute(a, names) for a in raw["args"]]
        for arg, kind in zip(raw["args"], kernel.spec.params, strict=False):
            if isinstance(arg, dict) != (kind == f"bytes{BYTES}"):
                raise damaged(f"`{kernel.name}` is launched with other arguments than it takes")

        def step(run: Runner, base: int, values: Values) -> None:
            x, y, z = (e(values) for e in grid)
            u, v, w = (e(values) for e in block)
            if x > 0 and y > 0 and z > 0 and u > 0 and v > 0 and w > 0:
                run.launch(kernel, (x, y, z), (u, v, w), shared(values), [a(values) for a in args])

        return step

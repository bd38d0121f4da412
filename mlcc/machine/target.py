"""Targets of code generation: `llvm`, `llvm{cpu=native}`, `llvm{triple=aarch64-linux-gnu}`, `cuda{arch=sm_90}`.

TVM's tags, such as `nvidia/geforce-rtx-3090`, are accepted, too.

Each kind of target is a subclass of `Target` with typed options. Its code generation is in its `mlcc.backends.Backend`,
facts about this machine are in `mlcc.machine.host`.
"""

from __future__ import annotations

import functools
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from mlcc.errors import CompileError, Diagnostic, Source, Span, did_you_mean, error
from mlcc.machine.cpu import CPUS
from mlcc.machine.triples import is_bare_metal
from mlcc.options.text import Item, Option, format_item, format_value, parse_one
from mlcc.options.typed import Codes, given_fields, kebab, typed_fields

NATIVE = "native"
ENTRY_POINTS = "mlcc.targets"  # of packages that provide backends
_CODES = Codes(unknown="E0792", value="E0793", missing="E0793")
_TVM_WITHOUT_MEANING = {
    "keys",
    "model",
    "tag",
    "device",
    "libs",
    "system_lib",
    "runtime",
    "host",
    "thread_warp_size",
    "max_num_threads",
}
_CHECK_INDICES = "an index in the data that lies outside is an error; without the check it accesses any memory"
_WORD = re.compile(r"[\w.+-]*$")
_TAG = re.compile(r"[\w.-]+(/[\w.,-]+)+$")


@dataclass(frozen=True, repr=False)
class Target:
    """A machine to generate code for. Compares by value; `str()` prints what `Target.parse` reads.

    A subclass has a kind as the default of `kind`, and the options of that kind as further fields;
    `Target("cuda", arch="sm_90")` is a `CudaTarget`. `check_indices`: out-of-bounds indices in the data are errors;
    without the checks they would access arbitrary memory.
    """

    kind: str = "llvm"
    check_indices: bool = True
    tvm_names: ClassVar[Mapping[str, str]] = {}  # options whose name in TVM differs
    meanings: ClassVar[Mapping[str, str]] = {}  # what each option means, for `mlcc explain`

    def __new__(cls, kind: str | None = None, **options: Any) -> Target:
        if cls is Target:
            return object.__new__(_class_of("llvm" if kind is None else kind))
        if kind not in (None, cls.kind):
            raise CompileError(error("E0794", f"`{kind}` is not a target of kind {cls.kind}"))
        return object.__new__(cls)

    if TYPE_CHECKING:  # the options are those of the kind

        def __init__(self, kind: str = "llvm", **options: Any) -> None: ...

    @classmethod
    def parse(cls, text: str | Target) -> Self:
        """Parse a target, or return the given one.

        Raises CompileError E0790 to E0793 for an invalid text, E0794 for a target of another kind than this class.
        """
        target = text if isinstance(text, Target) else _parse(text)
        if not isinstance(target, cls):
            raise CompileError(error("E0794", f"`{target}` is not a target of kind {cls.kind}"))
        return target

    def __str__(self) -> str:
        return format_item(self.kind, [(name, value) for name, value in given_fields(self) if name != "kind"])

    def __repr__(self) -> str:
        return f"<Target {self}>"

    def resolved(self) -> Self:
        """Return the target with all defaults that depend on the machine resolved.

        Raises MachineError (E0860) for a native GPU if there is none.
        """
        return self

    def wrong(self) -> Iterator[tuple[str, str]]:
        """Yield (option, expected value) for each invalid option."""
        return iter(())


@dataclass(frozen=True, repr=False)
class LlvmTarget(Target):
    """A CPU. An empty `triple` is this machine's, an empty `cpu` the baseline of the triple, `native` this machine's
    CPU; `features` are LLVM's, each with its sign (`+avx2`). `num_cores` 0: the number of cores at run time.

    Schedules are chosen for the cache sizes in bytes (`l1`, `l2`, `l3`) and the vector width in bits; 0 takes the value
    known for the CPU (`mlcc.machine.cpu_tables`). `fast_math`: floating-point arithmetic may be reassociated and lose
    the sign of zeros; NaN and infinities are respected.

    `versions` are further CPUs that kernels have versions for, the best last; the object selects one at its first call.
    A target that only names an architecture has default versions (`version_cpus`).

    `freestanding`: the code needs no operating system (`is_freestanding`); implied by a triple of bare metal.
    """

    kind: str = "llvm"
    cpu: str = ""
    triple: str = ""
    features: tuple[str, ...] = ()
    num_cores: int = 0
    l1: int = 0
    l2: int = 0
    l3: int = 0
    vector_width: int = 0
    fast_math: bool = False
    versions: tuple[str, ...] = ()
    freestanding: bool = False
    tvm_names: ClassVar[Mapping[str, str]] = {"mcpu": "cpu", "mtriple": "triple", "mattr": "features"}
    meanings: ClassVar[Mapping[str, str]] = {
        "check_indices": _CHECK_INDICES,
        "cpu": "LLVM's name of the CPU; `native` is that of this machine, empty the baseline of the triple",
        "triple": "LLVM's name of architecture and system; empty is this machine's",
        "features": "LLVM's names of instruction sets, each with its sign, in addition to those of the CPU",
        "num_cores": "cores that schedules are chosen for, and the most threads of a parallel loop; 0: all at run time",
        "l1": "bytes of the first-level data cache, for schedules; 0: those known of the CPU",
        "l2": "bytes of the second-level cache, for schedules; 0: those known of the CPU",
        "l3": "bytes of the third-level cache, for schedules; 0: those known of the CPU",
        "vector_width": "bits of a vector: 64 to 2048, a power of two; 0: those of the CPU",
        "fast_math": "arithmetic may be reassociated and lose the sign of zeros",
        "versions": "further CPUs that kernels have versions for, the best last",
        "freestanding": "no allocator, threads or environment: workspaces come from the caller; implied by bare metal",
    }

    @property
    def is_native(self) -> bool:
        """True if the code is for the CPU that compiles it (`cpu=native`)."""
        return self.cpu == NATIVE

    def resolved(self) -> Self:
        """Resolve triple, CPU and features: `native` and empty defaults become LLVM's names."""
        from mlcc.machine import host

        triple = self.triple or host.triple()
        if self.is_native:
            features = host.cpu_features() + tuple(f for f in self.features if f not in host.cpu_features())
            return replace(self, triple=triple, cpu=host.cpu_name(), features=features)
        return replace(self, triple=triple, cpu=self.cpu or baseline_cpu(triple))

    @property
    def arch(self) -> str:
        """Return the architecture of the triple."""
        from mlcc.machine import host

        return (self.triple or host.triple()).partition("-")[0]

    @property
    def is_freestanding(self) -> bool:
        """True if the code may use only memory functions and libm: no allocator, threads, or environment."""
        return self.freestanding or is_bare_metal(self.triple)

    @property
    def max_threads(self) -> int:
        """Return the most threads of a parallel loop; 0 for as many as there are cores at run time."""
        return 1 if self.is_freestanding else self.num_cores

    @property
    def version_cpus(self) -> tuple[str, ...]:
        """Return the CPUs that kernels have versions for, in addition to the target's own."""
        from mlcc.machine import host

        if self.versions or self.cpu or self.features or self.vector_width or self.is_freestanding:
            return self.versions
        if self.arch == "x86_64" and host.triple().partition("-")[0] != "x86_64":
            return ()  # querying the CPU needs LLVM's assembler, which is only available for this machine
        return _DEFAULT_VERSIONS.get(self.arch, ())

    def for_version(self, cpu: str) -> Self:
        """Return the target for a kernel's version for a CPU."""
        return replace(self, cpu=cpu, versions=())

    def wrong(self) -> Iterator[tuple[str, str]]:
        if not 0 <= self.num_cores <= 65536:
            yield "num_cores", "a number of cores from 1 on expected, or 0 for all"
        yield from _invalid_sizes(self, "l1", "l2", "l3")
        if self.vector_width not in (0, 64, 128, 256, 512, 1024, 2048):
            yield "vector_width", "a power of two from 64 to 2048 bits expected, or 0 for the CPU's own"
        for feature in self.features:
            if not re.fullmatch(r"[+-][\w.-]+", feature):
                yield "features", f"a feature with its sign expected, as `+{feature.lstrip('+-') or 'avx2'}`"
        yield from self._invalid_versions()

    def _invalid_versions(self) -> Iterator[tuple[str, str]]:
        """Check that each version has features that the target and earlier versions lack."""
        from mlcc.machine.cpu import features_of

        if self.versions and self.is_freestanding:
            yield "versions", "freestanding code has one version: choosing one takes the environment"
            return
        if self.versions and self.arch not in _DEFAULT_VERSIONS:
            yield "versions", f"kernels have versions on {' and '.join(_DEFAULT_VERSIONS)}, not on {self.arch}"
            return
        full = self.resolved() if self.versions else self
        previous = [(full.cpu, features_of(full.triple, full.cpu, full.features))] if self.versions else []
        for cpu in self.versions:
            if cpu not in CPUS.get(self.arch, ()):
                yield "versions", f"CPUs of {self.arch} expected; `{cpu}` is not one"
                return
            features = features_of(full.triple, cpu, full.features)
            for previous_cpu, previous_features in previous:
                if features <= previous_features:
                    yield (
                        "versions",
                        f"`{cpu}` has no features beyond `{previous_cpu}` before it: list the best CPU last",
                    )
                    return
            previous.append((cpu, features))


@dataclass(frozen=True, repr=False)
class CudaTarget(Target):
    """An NVIDIA GPU. `arch` is the compute capability; `native` is that of this machine's GPU.

    Schedules are chosen for the number of multiprocessors, the limits of a block (threads, bytes of shared memory,
    registers) and the bytes of the L2 cache; 0 takes the value known for the architecture (`mlcc.machine.gpu_tables`).
    `fast_math`: approximate divisions, roots and elementary functions. `tf32`: products of float32 on tensor cores.
    """

    kind: str = "cuda"
    arch: str = ""
    sm_count: int = 0
    max_threads: int = 0
    shared_bytes: int = 0
    registers: int = 0
    l2: int = 0
    fast_math: bool = False
    tf32: bool = False
    tvm_names: ClassVar[Mapping[str, str]] = {
        "max_threads_per_block": "max_threads", "max_shared_memory_per_block": "shared_bytes",
        "registers_per_block": "registers", "l2_cache_size_bytes": "l2",
    }  # fmt: skip
    meanings: ClassVar[Mapping[str, str]] = {
        "check_indices": _CHECK_INDICES,
        "arch": "the compute capability, such as sm_90; `native` is that of this machine's GPU",
        "sm_count": "multiprocessors, for schedules; 0: as known of the architecture",
        "max_threads": "the most threads of a block, for schedules; 0: as known of the architecture",
        "shared_bytes": "the most bytes of shared memory of a block; 0: as known of the architecture",
        "registers": "registers of a block, for schedules; 0: as known of the architecture",
        "l2": "bytes of the L2 cache, for schedules; 0: as known of the architecture",
        "fast_math": "divisions, roots and elementary functions may be approximate",
        "tf32": "products of float32 may round their factors to 10 bits of fraction, for tensor cores",
    }

    def resolved(self) -> Self:
        from mlcc.machine import gpu as gpus
        from mlcc.machine import host

        if self.arch != NATIVE:
            return replace(self, arch=self.arch or gpus.DEFAULT_ARCH)
        gpu = host.gpu()
        sizes: dict[str, Any] = {name: getattr(self, name) or number for name, number in gpu.sizes.items()}
        return replace(self, arch=gpus.best_for(gpu.capability), **sizes)

    def wrong(self) -> Iterator[tuple[str, str]]:
        for name in ("sm_count", "max_threads", "shared_bytes", "registers"):
            if not 0 <= getattr(self, name) <= 1 << 20:
                yield name, "a number expected, or 0 for what is known of the architecture"
        yield from _invalid_sizes(self, "l2")
        if not re.fullmatch(rf"(sm_\d{{2,3}}[af]?|{NATIVE})?", self.arch):
            yield "arch", "a compute capability such as sm_90 expected, or native for this machine's GPU"


@dataclass(frozen=True, repr=False)
class CTarget(Target):
    """Portable C99 source for any CPU with a C compiler. `stack_bytes` bounds the temporaries of a function that are on
    the stack; others are in its workspace.
    """

    kind: str = "c"
    stack_bytes: int = 16 * 1024
    meanings: ClassVar[Mapping[str, str]] = {
        "check_indices": _CHECK_INDICES,
        "stack_bytes": "bytes of a function's temporaries on the stack; others are in the workspace",
    }

    def wrong(self) -> Iterator[tuple[str, str]]:
        if not 0 <= self.stack_bytes <= 1 << 30:
            yield "stack_bytes", "a number of bytes expected, at most 2**30"


# default versions of code for any machine of an architecture: vectors of 32 and of 64 bytes, masks, and dot products of
# bytes and of bfloat16; with fewer versions, some machines would lose a third of their speed
_DEFAULT_VERSIONS = {
    "x86_64": ("x86-64-v3", "x86-64-v4", "cascadelake", "cooperlake"),
    "aarch64": ("neoverse-n1", "neoverse-v1"),
}
_CPU, _GPU = "a CPU is `llvm`, this very one `llvm{cpu=native}`", "a GPU of NVIDIA's is `cuda`, as `cuda{arch=sm_90}`"
_MEANT = {  # words for machines that are no targets
    **dict.fromkeys(("cpu", "host", "native", "x86", "x86_64", "amd64", "x64", "intel"), _CPU),
    **dict.fromkeys(("arm", "arm64", "aarch64"), "it is `llvm{triple=aarch64-linux-gnu}`"),
    **dict.fromkeys(("gpu", "nvidia", "nvptx", "ptx"), _GPU),
    **dict.fromkeys(
        ("opencl", "vulkan", "metal", "rocm", "hip", "webgpu", "amd"),
        "the targets are `llvm`, a CPU, `c`, source for any, and `cuda`, a GPU of NVIDIA's (`--emit metal` writes its "
        "kernels as Metal)",
    ),
    **dict.fromkeys(("riscv", "riscv64"), "it is `llvm{triple=riscv64-linux-gnu}`"),
    **dict.fromkeys(
        ("wasm", "hexagon"), "`llvm` is for x86_64, aarch64 and riscv64; `c` makes C source for any compiler"
    ),
}
KINDS: dict[str, type[Target]] = {"c": CTarget, "cuda": CudaTarget, "llvm": LlvmTarget}


def _invalid_sizes(target: Target, *names: str) -> Iterator[tuple[str, str]]:
    for name in names:
        if not 0 <= getattr(target, name) <= 1 << 40:
            yield name, "a size in bytes expected, or 0 for what is known of the machine"


def baseline_cpu(triple: str) -> str:
    """Return the baseline CPU of an architecture, under LLVM's name; every machine of the triple runs its code."""
    arch = triple.partition("-")[0]
    return {"x86_64": "x86-64", "i686": "i686", "riscv64": "generic-rv64"}.get(arch, "generic")


# ---------------------------------------------------------------- reading


def _class_of(kind: str, span: Span | None = None) -> type[Target]:
    """Return the class of a kind, including those of installed packages. Raises CompileError E0791."""
    if kind not in KINDS:
        _register_installed(kind, span)
    cls = KINDS.get(kind)
    if cls is None:
        help = _MEANT.get(kind.lower()) or did_you_mean(kind, KINDS)
        help = help or f"the targets are {', '.join(f'`{k}`' for k in KINDS)}"
        raise CompileError(error("E0791", f"unknown target `{kind}`", span, help=help))
    return cls


def _register_installed(kind: str, span: Span | None) -> None:
    """Register a backend of this kind from the entry points of installed packages, if there is one."""
    from importlib.metadata import entry_points

    for entry in entry_points(group=ENTRY_POINTS, name=kind):
        try:
            entry.load().register()
        except Exception as exc:
            message = f"the backend `{entry.value}` of target `{kind}` cannot be loaded: {exc}"
            raise CompileError(error("E0791", message, span)) from exc


@functools.lru_cache(maxsize=64)
def _parse(text: str) -> Target:
    stripped = text.strip()
    if _TAG.match(stripped):
        return _parse(_expand_tag(stripped))
    if stripped.startswith("{"):
        return _from_item(_from_json(text))
    if re.match(r"[\w/.]+\s+-", stripped):
        return _from_item(_from_flags(text))
    _refuse_equals(text)
    return _from_item(parse_one(text, "TARGET", "E0790"))


def _refuse_equals(text: str) -> None:
    """Raises CompileError E0790 for `llvm=native`, which has the value where options should be."""
    match = re.match(r"\s*(\w+)([=:])(.+)", text)
    if match is not None and match[1] in KINDS:
        key = "arch" if match[1] == "cuda" else "cpu"
        span = Span(Source("TARGET", text), match.start(2), len(text))
        help = f"options stand in braces: `{match[1]}{{{key}={match[3].strip()}}}`"
        raise CompileError(error("E0790", f"unexpected text after `{match[1]}`", span, help=help))


def _expand_tag(name: str) -> str:
    """Return the target text of a tag. Raises CompileError E0791."""
    from mlcc.machine.tags import TAGS

    if name not in TAGS:
        span = Span(Source("TARGET", name), 0, len(name))
        help = did_you_mean(name, TAGS) or "known are GPUs (`nvidia/geforce-rtx-3090`) and CPUs (`aws/cpu/c5.large`)"
        raise CompileError(error("E0791", f"unknown machine tag `{name}`", span, help=help))
    return TAGS[name]


def _from_item(item: Item) -> Target:
    cls = _class_of(item.name, item.name_span)
    lists = {f.name for f in fields(cls) if isinstance(f.default, tuple)}
    item = replace(item, options=tuple(_as_list(o) if o.name in lists else o for o in item.options))
    names = [f.name for f in fields(cls) if f.name != "kind"]
    target = cls(**typed_fields(item, cls, _CODES, "target", names))
    options = {option.name: option for option in item.options}
    findings = [_invalid_option(options[name], text) for name, text in target.wrong() if name in options]
    findings = findings or [
        _invalid_option(o, "a word of letters, digits and `.+-_` expected") for o in _invalid_words(target, options)
    ]
    if findings:
        raise CompileError(findings)
    return target


def _as_list(option: Option) -> Option:
    """Convert a list option that is given as one word, such as TVM's comma-separated features."""
    if not isinstance(option.value, str):
        return option
    return replace(option, value=[f for f in option.value.split(",") if f], raw=None)


def _invalid_words(target: Target, options: Mapping[str, Option]) -> Iterator[Option]:
    """Yield options with characters that are not allowed in names of machines."""
    for name, option in options.items():
        value = getattr(target, name)
        if isinstance(value, str) and not _WORD.match(value):
            yield option


def _invalid_option(option: Option, text: str) -> Diagnostic:
    return error("E0793", f"wrong value of option `{kebab(option.name)}`", option.span, text)


# ---------------------------------------------------------------- TVM's forms


def _from_flags(text: str) -> Item:
    """Parse TVM's flags: `kind -name=value -name value --name=value`."""
    source = Source("TARGET", text)
    span = Span(source, 0, len(text))
    try:
        words = shlex.split(text)
    except ValueError as exc:
        raise CompileError(error("E0790", f"not a target: {str(exc).lower()}", span)) from None
    pairs: list[tuple[str, str]] = []
    index = 1
    while index < len(words):
        word = words[index]
        if not word.startswith("-"):
            raise CompileError(error("E0790", f"expected an option such as `-mcpu=...`, found `{word}`", span))
        name, equals, value = word.lstrip("-").partition("=")
        index += 1
        if not equals and index < len(words) and not words[index].startswith("-"):
            value = words[index]
            index += 1
        elif not equals and name in ("mcpu", "mtriple", "mattr", "arch"):
            raise CompileError(error("E0790", f"`{word}` needs a value", span, help=f"write `{word}=...`"))
        elif not equals:
            value = "true"
        pairs.append((name, value))
    return _item(source, words[0], pairs)


def _from_json(text: str) -> Item:
    """Parse TVM's JSON: `{"kind": "llvm", "mcpu": "skylake"}`."""
    source = Source("TARGET", text)
    try:
        config = json.loads(text)
    except (ValueError, RecursionError):
        config = None
    if not isinstance(config, dict) or not isinstance(config.get("kind"), str):
        message = 'not a target: expected a map with a "kind"'
        raise CompileError(error("E0790", message, Span(source, 0, len(text))))
    kind = config.pop("kind")
    pairs = [(k, ",".join(map(str, v)) if isinstance(v, list) else format_value(v)) for k, v in config.items()]
    return _item(source, kind, pairs)


def _item(source: Source, kind: str, pairs: list[tuple[str, str]]) -> Item:
    """Convert TVM's names and values to an item; attributes without an effect on code are dropped."""
    options = []
    whole = Span(source, 0, len(source.text))
    names = _class_of(kind, whole).tvm_names
    for name, value in pairs:
        key = name.replace("-", "_")
        if key in _TVM_WITHOUT_MEANING:
            continue
        start = max(source.text.find(name), 0)
        span = Span(source, start, start + len(name))
        number = int(value) if value.isascii() and value.isdigit() and len(value) < 10 else value
        options.append(Option(names.get(key, key), number, value, span, span))
    return Item(kind, tuple(options), whole, whole)

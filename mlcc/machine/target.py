"""What to generate code for: `llvm`, `llvm{cpu=native}`, `llvm{triple=aarch64-linux-gnu}`, `cuda{arch=sm_90}`.

TVM's strings read too: `llvm -mcpu=skylake -num-cores 2`, `llvm --num-cores=1`, `{"kind": "cuda", "arch": "sm_80"}`.
Facts about this machine are in `mlcc.machine.host` and are looked at only when asked for.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from mlcc.errors import CompileError, Source, Span, did_you_mean, error
from mlcc.options.text import Item, Option, format_item, format_value, parse_one
from mlcc.options.typed import Codes, given_fields, kebab, typed_fields

_CODES = Codes(unknown="E0792", value="E0793", missing="E0793")
_TVM_NAMES = {
    "mcpu": "cpu", "mtriple": "triple", "mattr": "features", "max_threads_per_block": "max_threads",
    "max_shared_memory_per_block": "shared_bytes", "registers_per_block": "registers", "l2_cache_size_bytes": "l2",
}  # fmt: skip
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
_WORD = re.compile(r"[\w.+-]*$")


@dataclass(frozen=True)
class Target:
    """A machine to generate code for. Compares by value; `str()` prints what `Target.parse` reads.

    llvm: an empty `triple` is this machine's, an empty `cpu` the baseline of the triple, `native` this very CPU;
    `features` are LLVM's, each with its sign (`+avx2`). cuda: `arch` is the compute capability, `native` that of the
    GPU here. `num_cores` 0: as many as the machine has at run time. Cache sizes in bytes (`l1`, `l2`, `l3`) and the
    width of vectors in bits are what schedules are chosen for; 0 is what is known of the CPU
    (`mlcc.machine.cpu_tables`). So are, for cuda, the number of multiprocessors, and the threads, bytes of shared
    memory and registers that a block may have; 0 is what is known of the architecture (`mlcc.machine.gpu_tables`).
    `fast_math`: floating-point arithmetic may be regrouped, and signs of zeros lost; NaN and infinities still count.
    `check_indices`: indices in the data that lie outside are errors, where they would else read and write any memory.
    """

    kind: str = "llvm"
    triple: str = ""
    cpu: str = ""
    features: tuple[str, ...] = ()
    arch: str = ""
    num_cores: int = 0
    l1: int = 0
    l2: int = 0
    l3: int = 0
    vector_width: int = 0
    fast_math: bool = False
    sm_count: int = 0
    max_threads: int = 0
    shared_bytes: int = 0
    registers: int = 0
    check_indices: bool = True

    @staticmethod
    def parse(text: str | Target) -> Target:
        """Raises CompileError (E0790 to E0793) for a text that names no known target."""
        return text if isinstance(text, Target) else _parse(text)

    def __str__(self) -> str:
        return format_item(self.kind, [(name, value) for name, value in given_fields(self) if name != "kind"])

    def __repr__(self) -> str:
        return f"<Target {self}>"

    @property
    def is_native(self) -> bool:
        """Whether the code is for the very CPU that compiles it."""
        return self.cpu == NATIVE

    def resolved(self) -> Target:
        """With triple, CPU and features written out: `native` and the empty defaults become names that LLVM knows.

        Raises MachineError (E0860) for a native GPU where none can be used.
        """
        from mlcc.machine import gpu as gpus
        from mlcc.machine import host

        if self.kind == "cuda" and self.arch == NATIVE:
            here = host.gpu()
            own: dict[str, Any] = {name: getattr(self, name) or number for name, number in here.sizes.items()}
            return replace(self, arch=gpus.best_for(here.capability), **own)
        if self.kind == "cuda":
            return replace(self, arch=self.arch or DEFAULT_ARCH)
        triple = self.triple or host.triple()
        if self.is_native:
            features = host.cpu_features() + tuple(f for f in self.features if f not in host.cpu_features())
            return replace(self, triple=triple, cpu=host.cpu_name(), features=features)
        return replace(self, triple=triple, cpu=self.cpu or baseline_cpu(triple))


DEFAULT_ARCH = "sm_80"
NATIVE = "native"
KINDS: dict[str, tuple[str, ...]] = {
    "cuda": ("arch", "fast_math", "sm_count", "max_threads", "shared_bytes", "registers", "l2", "check_indices"),
    "llvm": ("cpu", "triple", "features", "num_cores", "l1", "l2", "l3", "vector_width", "fast_math", "check_indices"),
}


def baseline_cpu(triple: str) -> str:
    """The least CPU of an architecture, as LLVM names it; every machine of the triple runs its code."""
    arch = triple.partition("-")[0]
    return {"x86_64": "x86-64", "i686": "i686", "riscv64": "generic-rv64"}.get(arch, "generic")


def _parse(text: str) -> Target:
    stripped = text.strip()
    if stripped.startswith("{"):
        item = _from_json(text)
    elif re.match(r"[\w/.]+\s+-", stripped):
        item = _from_flags(text)
    else:
        item = parse_one(text, "TARGET", "E0790")
    return _from_item(item)


def _from_item(item: Item) -> Target:
    names = KINDS.get(item.name)
    if names is None:
        help = did_you_mean(item.name, KINDS) or f"the targets are {', '.join(f'`{k}`' for k in KINDS)}"
        raise CompileError(error("E0791", f"no target `{item.name}`", item.name_span, help=help))
    options = tuple(_listed(o) for o in item.options)
    made = Target(item.name, **typed_fields(replace(item, options=options), Target, _CODES, "target", names))
    for option in options:
        _check(option, getattr(made, option.name))
    return made


def _listed(option: Option) -> Option:
    """`features=+avx2` and TVM's comma-separated features are lists."""
    if option.name == "features" and isinstance(option.value, str):
        return replace(option, value=[f for f in option.value.split(",") if f], raw=None)
    return option


def _check(option: Option, value: Any) -> None:
    if option.name == "num_cores" and not 0 <= value <= 65536:
        _wrong(option, "a number of cores from 1 on expected, or 0 for all")
    if option.name in ("l1", "l2", "l3") and not 0 <= value <= 1 << 40:
        _wrong(option, "a size in bytes expected, or 0 for what is known of the machine")
    if option.name == "vector_width" and value not in (0, 64, 128, 256, 512, 1024, 2048):
        _wrong(option, "a power of two from 64 to 2048 bits expected, or 0 for the CPU's own")
    if option.name in ("sm_count", "max_threads", "shared_bytes", "registers") and not 0 <= value <= 1 << 20:
        _wrong(option, "a number expected, or 0 for what is known of the architecture")
    if option.name == "arch" and not re.fullmatch(rf"sm_\d{{2,3}}[af]?|{NATIVE}", value):
        _wrong(option, "a compute capability such as sm_90 expected, or native for the GPU here")
    if isinstance(value, str) and not _WORD.match(value):
        _wrong(option, "a word of letters, digits and `.+-_` expected")
    if option.name == "features":
        for feature in value:
            if not re.fullmatch(r"[+-][\w.-]+", feature):
                _wrong(option, f"features stand with their sign, as `+{feature.lstrip('+-') or 'avx2'}`")


def _wrong(option: Option, text: str) -> NoReturn:
    raise CompileError(error("E0793", f"wrong value of option `{kebab(option.name)}`", option.span, text))


# ---------------------------------------------------------------- TVM's forms


def _from_flags(text: str) -> Item:
    """`kind -name=value -name value --name=value`."""
    source = Source("TARGET", text)
    whole = Span(source, 0, len(text))
    try:
        words = shlex.split(text)
    except ValueError as exc:
        raise CompileError(error("E0790", f"not a target: {str(exc).lower()}", whole)) from None
    pairs: list[tuple[str, str]] = []
    at = 1
    while at < len(words):
        word = words[at]
        if not word.startswith("-"):
            raise CompileError(error("E0790", f"expected an option such as `-mcpu=...`, found `{word}`", whole))
        name, equals, value = word.lstrip("-").partition("=")
        at += 1
        if not equals and at < len(words) and not words[at].startswith("-"):
            value = words[at]
            at += 1
        elif not equals:
            value = "true"
        pairs.append((name, value))
    return _item(source, words[0], pairs)


def _from_json(text: str) -> Item:
    """`{"kind": "llvm", "mcpu": "skylake"}`, as TVM prints a target's configuration."""
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
    """The item that TVM's names and values stand for; attributes that change no code here are dropped."""
    options = []
    for name, value in pairs:
        key = name.replace("-", "_")
        if key in _TVM_WITHOUT_MEANING:
            continue
        start = max(source.text.find(name), 0)
        span = Span(source, start, start + len(name))
        number = int(value) if value.isascii() and value.isdigit() and len(value) < 10 else value
        options.append(Option(_TVM_NAMES.get(key, key), number, value, span, span))
    whole = Span(source, 0, len(source.text))
    return Item(kind, tuple(options), whole, whole)

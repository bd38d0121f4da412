"""The registry of backends: one `Backend` record for each kind of target.

The records of mlcc's own targets are in `targets/llvm/backend.py` and `targets/cuda/backend.py`, imported at the first
query; `docs/adding-a-target.md` adds another.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mlcc.errors import CompileError, error
from mlcc.machine.target import KINDS, Target
from mlcc.outputs import KINDS as OUTPUTS
from mlcc.outputs import Kind
from mlcc.passes import PASSES
from mlcc.passes.manage.levels import LEVELS

if TYPE_CHECKING:
    from mlcc.ir.module import IRModule
    from mlcc.machine.cpu_tables import CpuFacts
    from mlcc.machine.gpu_tables import GpuFacts
    from mlcc.passes.lowering.options import LowerOptions
    from mlcc.targets.artifact import Artifact

T = TypeVar("T", bound=Target)
_BUILTIN = {"c": "mlcc.targets.c.backend", "cuda": "mlcc.targets.cuda.backend", "llvm": "mlcc.targets.llvm.backend"}
_KNOWN: dict[str, Backend[Any]] = {}


@dataclass(frozen=True, slots=True)
class LazyFunction:
    """A function named by `module:name` that is imported when it is called, so that a record imports nothing."""

    place: str

    def __call__(self, *args: Any) -> Any:
        module, _, name = self.place.partition(":")
        return attrgetter(name)(importlib.import_module(module))(*args)


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """The options of a build besides the target; see `mlcc.build`. `pipeline` is the pipeline that has been run.

    With `profile` the code counts and logs the time of each kernel (`mlcc bench --profile`, `mlcc run --trace`). With
    `observe` it calls an observer after each kernel (`mlcc run --check-nan`). With `debug_lines` it says for its
    instructions which line of the source they come from: as `.loc` in assembly and PTX, as `#line` in C. With
    `only_emulated` kernels are planned, and no code is generated for them.
    """

    prefix: str | None = None
    opt_level: int = 2
    pipeline: str = ""
    allow_extern: tuple[str, ...] = ()
    allow_native: bool = True
    profile: bool = False
    debug_lines: bool = False
    observe: bool = False
    only_emulated: bool = False


@dataclass(frozen=True, eq=False, repr=False)
class Backend(Generic[T]):
    """A target: its options, its pipelines, its output formats, and its code generator.

    options           the subclass of `Target` with its options; its `kind` is the name of the target
    lowering          the lowering passes, by name, from scheduled TensorIR to the input of `compile`
    compile           generates the artifact of a lowered module; raises CompileError
    outputs           the output formats, the default first; each is a value of `mlcc compile --emit`
    loadable          the self-contained format, which `mlcc run` and the cache use
    levels            the pipelines of -O0 to -O3, up to scheduled TensorIR
    before_lowering   the passes that run first in the group `lower`
    lower_names       target-specific aliases of the group `lower` of all lowering passes
    passes            the target's own passes, in the form of `mlcc.passes.PASSES`
    lower_options     computes the target properties that lowering passes use
    facts             computes the hardware properties that schedule rules use: `CpuFacts` or `GpuFacts`
    header            generates a C header from a manifest
    inspect           adds the findings of the vendor's tools on an artifact, a path or bytes, to its manifest
    many_threads      lower operators for thousands of threads rather than for a few
    emulated          code can be emulated thread by thread, which detects races (`--emulate`, `mlcc analyze`)
    sanitizing        the lowering passes, instead of `lowering`, for code with checked accesses (`--sanitize`)
    regroups          has an option `fast_math` that allows reassociation (`--fast-math`)
    """

    options: type[T]
    lowering: tuple[str, ...]
    compile: Callable[[IRModule, T, BuildOptions], Artifact]
    outputs: tuple[Kind, ...]
    loadable: Kind
    levels: Mapping[str, str] = field(default_factory=lambda: LEVELS)
    before_lowering: tuple[str, ...] = ("remove-unused-functions",)
    lower_names: tuple[str, ...] = ()
    passes: Mapping[str, str] = field(default_factory=dict)
    lower_options: Callable[[T], LowerOptions] = LazyFunction("mlcc.passes.lowering.options:plain_lower_options")
    facts: Callable[[T], CpuFacts | GpuFacts] | None = None
    header: Callable[[dict[str, Any]], str] | None = None
    inspect: Callable[[str | bytes, dict[str, Any]], None] | None = None
    many_threads: bool = False
    emulated: bool = False
    sanitizing: tuple[str, ...] = ()
    regroups: bool = False

    def __repr__(self) -> str:
        return f"<Backend {self.kind}>"

    @property
    def kind(self) -> str:
        return self.options.kind

    def register(self) -> None:
        """Make the backend known to target strings, pipelines and the command line. Replaces one of the same kind."""
        PASSES.update(self.passes)
        OUTPUTS.update({kind.name: kind for kind in self.outputs if kind.name not in OUTPUTS})
        _KNOWN[self.kind] = self
        KINDS[self.kind] = self.options  # last, because other threads look up the available kinds here

    # ------------------------------------------------------------ pipelines

    @property
    def groups(self) -> Mapping[str, str]:
        """The named groups of passes, with their pipelines."""
        groups = {**self.levels, **dict.fromkeys(("lower", *self.lower_names), self.lowering_pipeline)}
        return {**groups, "sanitize": self.pipeline_of_steps(self.sanitizing)} if self.sanitizing else groups

    @property
    def lowering_pipeline(self) -> str:
        """The pipeline from scheduled TensorIR to the input of code generation: the group `lower`."""
        return self.pipeline_of_steps(self.lowering)

    def pipeline_of_steps(self, steps: tuple[str, ...]) -> str:
        """The pipeline that lowers a module in these steps."""
        return ",".join((*self.before_lowering, *steps))

    def level_pipeline(self, level: int) -> str:
        """The passes of a level up to scheduled TensorIR: the group `O<level>`."""
        return self.levels[f"O{level}"]

    def full_pipeline(self, level: int) -> str:
        """The whole pipeline of `-O<level>`, up to the input of code generation."""
        return f"{self.level_pipeline(level)},{self.lowering_pipeline}"


def get(kind: str) -> Backend[Any]:
    """The backend of a kind of target."""
    if kind not in _KNOWN and kind in _BUILTIN:
        _KNOWN[kind] = importlib.import_module(_BUILTIN[kind]).BACKEND
    return _KNOWN[kind]


def of(target: Target | str) -> Backend[Any]:
    """The backend of a target. Raises CompileError for a string that names no known target."""
    return get(Target.parse(target).kind)


def registered_backends() -> list[Backend[Any]]:
    """Return all registered backends."""
    return [get(kind) for kind in [*KINDS]]


def facts_of(target: Target | str) -> CpuFacts | GpuFacts:
    """Return the hardware properties of a target. Raises CompileError E0547 for a target that defines none."""
    where = Target.parse(target)
    facts = get(where.kind).facts
    if facts is None:
        raise CompileError(error("E0547", f"there are no schedule rules for the target {where.kind}"))
    return facts(where)


def cpu_facts(target: Target) -> CpuFacts | None:
    """The hardware properties of a CPU target; None for other targets."""
    from mlcc.machine.cpu_tables import CpuFacts

    facts = get(target.kind).facts and facts_of(target)
    return facts if isinstance(facts, CpuFacts) else None


def gpu_facts(target: Target) -> GpuFacts:
    """The hardware properties of a GPU target; for other targets those of the default GPU, so that passes run."""
    from mlcc.machine.gpu_tables import GpuFacts

    facts = get(target.kind).facts and facts_of(target)
    return facts if isinstance(facts, GpuFacts) else GpuFacts.of("cuda")

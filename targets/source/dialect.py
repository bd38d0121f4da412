"""The interface of the C dialects in which kernels are printed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from mlcc.errors import CompileError, Span, error
from mlcc.ir import tir
from mlcc.ir.dtypes import DType

_C_WORDS = """
    alignas alignof and asm auto bool break case catch char class const constexpr continue decltype default
    delete do double else enum explicit extern false float for friend goto if inline int long mutable
    namespace new noexcept not nullptr operator or private protected public register return short signed
    sizeof static struct switch template this throw true try typedef typename union unsigned using virtual
    void volatile while xor half bfloat uint uchar ushort ulong min max abs exp log sin cos tan pow sqrt floor
    ceil round trunc main error
"""
C_WORDS = frozenset(_C_WORDS.split())


def refuse(message: str, span: Span | None = None, help: str | None = None) -> CompileError:
    """Return the error for a construct that a dialect cannot express."""
    return CompileError(error("E0780", message, span, help=help))


class Dialect(ABC):
    """A C dialect. It records which helper functions the printed text uses; `prelude` defines these."""

    name: ClassVar[str]
    words: ClassVar[frozenset[str]] = C_WORDS  # reserved words and functions, not available as names
    inline: ClassVar[str]  # the prefix of a helper function
    shared: ClassVar[str]  # the prefix of a shared array, its alignment in braces
    in_registers: ClassVar[str] = ""  # prefix of a local array that instructions access as 32-bit registers
    types: ClassVar[Mapping[str, str]]  # the type of a scalar in memory, by dtype
    long_suffix: ClassVar[str]  # of 64-bit integer literals

    helpers: ClassVar[Mapping[str, tuple[str, str, str]]] = {}  # additional helpers, as in HELPERS

    def __init__(self) -> None:
        self._helpers: dict[str, None] = {}
        self.sums: list[tuple[str, str]] = []  # asm operands (`registers`) of the accumulators in scope

    # ------------------------------------------------------------ types

    def tensor_map(self, span: Span | None = None) -> str:
        """Return the type of a tensor map parameter. Raises CompileError."""
        raise refuse(f"{self.name} has no tensor maps", span)

    def memory(self, dtype: DType, span: Span | None = None) -> str:
        """Return the type of an element in memory. Raises CompileError for an unsupported dtype."""
        name = self.types.get(str(dtype.element))
        if name is None:
            raise refuse(f"{self.name} has no {dtype.element}", span)
        return name

    def register(self, dtype: DType, span: Span | None = None) -> str:
        """Return the type of a value in computations: bool, float for narrower floats, else the type in memory."""
        if dtype.is_bool:
            return "bool"
        if dtype.is_float and dtype.bits < 32:
            self.memory(dtype, span)
            return "float"
        return self.memory(dtype, span)

    @abstractmethod
    def vector(self, dtype: DType, lanes: int) -> str | None:
        """Return the vector type in memory; None if there is none of this size."""

    @abstractmethod
    def make_vector(self, dtype: DType, lanes: Sequence[str]) -> str:
        """Build a vector from elements in their memory type."""

    @abstractmethod
    def lane(self, vector: str, dtype: DType, lanes: int, lane: int) -> str:
        """Extract a lane of a vector, in its memory type."""

    @abstractmethod
    def pointer(self, type: str, scope: str, const: bool = False) -> str:
        """Return the type of a pointer to elements in a storage scope."""

    # ------------------------------------------------------------ values

    @abstractmethod
    def from_memory(self, text: str, dtype: DType) -> str:
        """Convert an element of a narrow float dtype to float."""

    @abstractmethod
    def to_memory(self, text: str, dtype: DType, source: DType) -> str:
        """Round a float (or double, by `source`) to an element of a narrow float dtype."""

    def round(self, text: str, dtype: DType, source: DType) -> str:
        """Round a float to a narrower dtype, as a float."""
        return self.from_memory(self.to_memory(text, dtype, source), dtype)

    # ------------------------------------------------------------ functions

    @abstractmethod
    def math(self, name: str, dtype: DType, span: Span | None) -> str:
        """Return the function for an intrinsic on float32 or float64. Raises CompileError."""

    @abstractmethod
    def intrinsic(self, name: str, args: Sequence[str], node: tir.Call) -> str | None:
        """Print a call of a GPU intrinsic, such as a barrier or shuffle; None for an unknown one."""

    def registers(self, name: str, buffer: tir.Buffer) -> list[tuple[str, str]]:
        """Return the asm operands of an accumulator buffer of warpgroup products: constraint letters and lvalues."""
        return []

    # ------------------------------------------------------------ kernels

    @abstractmethod
    def head(
        self, name: str, params: Sequence[Param], threads: int | None, axes: Mapping[str, str], dynamic: int
    ) -> list[str]:
        """Return a kernel's first lines, up to its opening brace and the definitions of the variables of `axes`.

        `threads` is the block size, if constant; `dynamic` is the alignment of dynamic shared memory, 0 without any.
        """

    # ------------------------------------------------------------ helpers

    def use(self, helper: str) -> str:
        """Record that the prelude has to define a helper function, and return its name."""
        self._helpers.setdefault(helper)
        return helper

    def uses(self, helper: str) -> bool:
        return helper in self._helpers

    @abstractmethod
    def includes(self) -> list[str]: ...

    def prelude(self) -> list[str]:
        """Return the lines before the kernels: includes, and the helpers in use."""
        lines = [f"// {self.name} by mlcc", *self.includes()]
        for name, (result, params, body) in {**HELPERS, **self.helpers}.items():
            if name in self._helpers:
                types = [f"typename {t}" for t in ("T", "F") if t in f"{result} {params}".split()]
                lines += ["", *([f"template <{', '.join(types)}>"] if types else [])]
                lines += [f"{self.inline} {result} {name}({params}) {{", f"  {body}", "}"]
        return [*lines, ""]


class Param:
    """A printed parameter: its name, its type, and whether it is a pointer.

    `const`: the kernel only reads the memory; `restrict`: no other pointer accesses it.
    """

    __slots__ = ("const", "is_pointer", "name", "restrict", "type")

    def __init__(self, name: str, type: str, is_pointer: bool, const: bool, restrict: bool) -> None:
        self.name, self.type, self.is_pointer, self.const, self.restrict = name, type, is_pointer, const, restrict


# name -> result type, parameters, body; integer division is total: x / 0 = x % 0 = 0, and MIN / -1 = MIN
HELPERS: dict[str, tuple[str, str, str]] = {
    "div_trunc": ("T", "T a, T b", "return b == 0 ? T(0) : (T(-1) < T(0) && b == T(-1)) ? T(T(0) - a) : T(a / b);"),
    "mod_trunc": ("T", "T a, T b", "return b == 0 || (T(-1) < T(0) && b == T(-1)) ? T(0) : T(a % b);"),
    "div_floor": (
        "T", "T a, T b",
        "return b == 0 ? T(0) : (T(-1) < T(0) && b == T(-1)) ? T(T(0) - a)\n"
        "       : T(a / b - ((a % b != 0) & ((a % b < 0) != (b < 0))));",
    ),
    "mod_floor": (
        "T", "T a, T b",
        "return b == 0 || (T(-1) < T(0) && b == T(-1)) ? T(0)\n"
        "       : T(a % b + (((a % b != 0) & ((a % b < 0) != (b < 0))) ? b : T(0)));",
    ),
    "least": ("T", "T a, T b", "return a <= b || a != a ? a : b;"),
    "most": ("T", "T a, T b", "return a >= b || a != a ? a : b;"),
    "floor_mod": (
        "F", "F a, F b",
        "const F r = fmod(a, b);\n"
        "  return r == F(0) ? copysign(F(0), b) : (r < F(0)) != (b < F(0)) ? r + b : r;",
    ),
    "saturated": (
        "T", "F x, T low, T high",
        "return x != x ? T(0) : x <= F(low) ? low : x >= F(high) ? high : T(x);",
    ),
    "as_type": ("T", "F x", "T y;\n  memcpy(&y, &x, sizeof(T));\n  return y;"),
    "shift_up": ("T", "T a, T n", "return n < 0 || n >= T(8 * sizeof(T)) ? T(0) : T(a << n);"),
    "shift_down": (
        "T", "T a, T n", "const T most = T(8 * sizeof(T) - 1);\n"
        "  return n >= 0 && n <= most ? T(a >> n) : T(-1) < T(0) ? T(a >> most) : T(0);",
    ),
}  # fmt: skip

"""The outputs of a command: all are named and judged before anything is compiled, and written together at the end.

What would destroy a file of the user's is refused. An output is never an input, and two outputs are never one file, by
whatever names and links; the suffix of a file fits what is written to it; a file that is written only by implication,
such as the `net.npz` of `-o net.mlc`, replaces nothing but what mlcc wrote for the same purpose.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from mlcc.array_files import SUFFIXES, ArrayFile, arrays_content
from mlcc.errors import CompileError, Diagnostic, error
from mlcc.files import Content, Destination, pieces_of, watch_reads, write_files

if TYPE_CHECKING:
    import numpy as np


class Kind(NamedTuple):
    """A kind of output: its description, and the suffixes of its files, the usual one first.

    `runs`: the runtime loads it. `has_data_beside`: large constants are in an .npz beside it.
    """

    name: str
    words: str
    suffixes: tuple[str, ...]
    is_binary: bool = False
    runs: bool = False
    has_data_beside: bool = False

    @property
    def suffix(self) -> str:
        return self.suffixes[0]


# what targets have code written as
OBJECT = Kind("obj", "an object", (".o", ".obj"), is_binary=True, runs=True)
SHARED = Kind("shared", "a shared library", (".so",), is_binary=True, runs=True)
ASSEMBLY = Kind("asm", "assembly", (".s",))
LLVM_IR = Kind("llvm-ir", "LLVM IR", (".ll",))
PTX = Kind("ptx", "PTX", (".ptx",), runs=True, has_data_beside=True)
ARCHIVE = Kind("mlca", "an archive of kernels", (".mlca",), is_binary=True, runs=True)
CUDA_C = Kind("cuda-c", "CUDA C", (".cu",))
METAL = Kind("metal", "Metal source", (".metal",))

KINDS = {
    kind.name: kind
    for kind in (
        OBJECT, SHARED, ASSEMBLY, LLVM_IR, PTX, ARCHIVE, CUDA_C, METAL,
        Kind("header", "a C header", (".h", ".hh", ".hpp", ".hxx", ".inc")),
        Kind("arrays", "arrays", SUFFIXES, is_binary=True),
        Kind("npz", "the constants of kernels", (".npz",), is_binary=True),
        Kind("module", "the text of a module", (".mlc",)),
        Kind("tvm", "the text of a module", (".mlc", ".py")),  # in TVM's dialect, which Python runs
        Kind("script", "a schedule script", (".mls",)),
        Kind("records", "a database of records", (".db", ".sqlite"), is_binary=True),
        Kind("report", "a report", (".svg", ".json")),
    )
}  # fmt: skip
# suffixes of files that people write or other tools make, and mlcc never does
_OTHER_WORDS = (
    ".a .bc .bib .bz2 .c .c++ .cc .cfg .cmake .conf .cpp .csv .cuh .cxx .d .db .dll .doc .docx .dylib "
    ".exe .f .f90 .gguf .go .gz .h5 .hdf5 .hs .html .inl .ini .ipynb .jar .java .jl .jpeg .jpg .js .json "
    ".jsonl .py .kt .lark .lock .lua .m .mat .md .mk .ml .mlir .mm .npy .onnx .parquet .pb .pdf .pickle .pkl "
    ".pl .png .proto .pt .pt2 .pth .pyc .pyi .pyx .r .rb .rs .rst .scala .sh .sql .svg "
    ".swift .tar .tex .tflite .toml .ts .tsv .v .wasm .xls .xlsx .xml .xz .yaml .yml .zip .zst"
)
_OTHERS = frozenset(_OTHER_WORDS.split())
_NEVER_BESIDE = frozenset((*SUFFIXES, ".mls", ".o", ".so", ".mlca", ".onnx", ".pt2"))
_REFERENCE = re.compile(rb"\bdata\(|\bmeta(?:data)?\[|^// mlcc plan: .*\"sha256\"", re.MULTILINE)
_DATA_FILE = re.compile(rb"^# mlcc\.data-file (\S+)|^// mlcc plan: .*\"data\": \"([^\"]+)\"", re.MULTILINE)
_VERSIONED = re.compile(r"\.so(\.\d+)+$")
_MARK = "mlcc: constants of a {} file"


def suffix_of(path: str) -> str:
    """The suffix in small letters, with `.so` for `libm.so.1`."""
    return ".so" if _VERSIONED.search(path) else os.path.splitext(path)[1].lower()


def kind_of(path: str, among: Iterable[Kind], default: Kind, option: str = "--emit") -> Kind:
    """Return the kind of output for a path by its suffix, among the kinds `among`.

    `default` is for standard output, devices and pipes. Raises CompileError E0012 for an unknown suffix.
    """
    suffix = suffix_of(path)
    for kind in among:
        if suffix in kind.suffixes:
            return kind
    if is_stream(path):
        return default
    if any(suffix in k.suffixes for k in KINDS.values()) or suffix in _OTHERS:
        return default  # which does not fit, and `suffix_problem` says so
    known = ", ".join(kind.suffix for kind in among)
    what = f"the suffix `{suffix}`" if suffix else "no suffix"
    raise CompileError(
        error("E0012", f"{path} has {what}, which does not say what to write", help=f"use one of {known}, or {option}")
    )


def suffix_problem(path: str, kind: str) -> Diagnostic | None:
    """Return an error if a path, or the target of a link, has the suffix of another kind of output; else None."""
    if is_stream(path):
        return None
    for name in dict.fromkeys((path, _real(path))):
        suffix = suffix_of(name)
        fits = suffix in KINDS[kind].suffixes
        if not fits and (suffix in _OTHERS or any(suffix in k.suffixes for k in KINDS.values())):
            where = path if name == path else f"{path}, a link to {name},"
            text = f"{where} is no place for {KINDS[kind].words}: its suffix is that of something else"
            return error("E0012", text, help=f"name a {KINDS[kind].suffix} file")
    return None


def check_suffix(path: str, kind: str) -> None:
    """Raises CompileError E0012 for a file whose suffix does not fit what is to be written."""
    problem = suffix_problem(path, kind)
    if problem is not None:
        raise CompileError(problem)


def _real(path: str) -> str:
    try:
        return Destination.of(path).path
    except (OSError, ValueError):
        return path


def is_stream(path: str) -> bool:
    """Return True if a path is standard output, a device or a pipe, whose suffix means nothing."""
    try:
        return not Destination.of(path).is_plain and not os.path.isdir(path)
    except (OSError, ValueError):
        return False


@dataclass(frozen=True)
class Output:
    """A file that a command will write. `option` is how messages call it."""

    path: str
    option: str
    kind: str


class Outputs:
    """The inputs and outputs of one command. With `watch` it knows of every file that is read from now on, too."""

    def __init__(self, force: bool = False, watch: bool = False) -> None:
        self.force = force
        self._inputs: dict[Hashable, str] = {}
        self._outputs: dict[Hashable, Output] = {}
        self._wrong: list[Diagnostic] = []
        self._seen = watch_reads() if watch else set[str]()

    # ------------------------------------------------------------ what is planned

    def read(self, *paths: str | None) -> None:
        """Name inputs: no output may be one of them. What lies beside a text or a .ptx, its constants, is one, too."""
        for path in paths:
            if path is None:
                continue
            for name in (path, *_beside(path)):
                self._note_input(name)

    def _note_input(self, path: str) -> None:
        identity = _identity(path, is_input=True)
        if identity is not None:
            self._inputs.setdefault(identity, path)

    def write(self, path: str | None, option: str, kind: str) -> None:
        """Name an output. What is wrong with it is told by `settle`."""
        if path is None:
            return
        output = Output(path, option, kind)
        problem = _place_problem(output) or suffix_problem(path, kind) or self._clash(output)
        if problem is not None:
            self._wrong.append(problem)

    def write_module(self, path: str, option: str, dialect: str, data: str | None) -> None:
        """Name the text of a module as an output, and the file for its constants if there is one."""
        self.write(path, option, "tvm" if dialect == "tvm" else "module")
        self.write(data, "--data", "arrays")

    def settle(self) -> None:
        """Raises CompileError with everything that is wrong with the outputs named so far."""
        if self._wrong:
            raise CompileError(self._wrong)

    def _clash(self, made: Output) -> Diagnostic | None:
        """Return an error if an output is the same file as an input or another output; else register it."""
        identity = _identity(made.path)
        if identity is None:
            return None
        if identity in self._inputs:
            same = self._inputs[identity]
            what = "is an input" if same == made.path else f"is the input {same} by another name"
            return error("E0010", f"{made.option} {made.path} {what}", help="name another file for the output")
        other = self._outputs.setdefault(identity, made)
        if other is made or (other.path, other.option) == (made.path, made.option):
            return None
        text = f"{made.option} {made.path} and {other.option} {other.path} are the same file"
        return error("E0011", text, help="name two files")

    # ------------------------------------------------------------ what is written

    def beside(
        self, path: str, arrays: Mapping[str, np.ndarray], owner: str, holds: Callable[[Mapping[str, Any]], bool]
    ) -> dict[str, Content]:
        """The archive of constants that `owner`, an output, needs beside it, and that nobody named; empty where the
        file that is there `holds` them all. Raises CompileError E0013 where it would replace another's file."""
        content = arrays_content(path, arrays, mark(owner))
        if not os.path.lexists(path) or is_stream(path):
            return {path: content}
        self._forget_unnamed()
        old = _old_arrays(path)
        if old is not None and _holds(holds, old):
            return {}
        self._seen.discard(path)  # this look at it makes it no input
        output = Output(path, f"the constants of {owner} go into", "arrays")
        problem = _place_problem(output) or self._clash(output)
        if problem is None and not self.force and (old is None or old.comment != mark(owner)):
            text = f"{owner} needs its constants in {path}, which is there, and which mlcc did not write for that"
            help = "name another file for them with --data FILE, or pass --force to replace this one"
            problem = error("E0013", text, help=help)
        if problem is not None:
            raise CompileError(problem)
        return {path: content}

    def save(self, contents: Mapping[str, Content]) -> None:
        """Write all files of a command, after a last look at what was read meanwhile. Raises CompileError."""
        self._forget_unnamed()
        wrong = [p for path in contents if (p := self._clash(self._named(path))) is not None]
        if wrong:
            raise CompileError(wrong)
        write_files(contents)

    def save_part(self, path: str, content: str, start: str, what: str = "dump") -> None:
        """Write a file that was not named, of many, such as a dump; it replaces only one that begins with `start`.

        Raises CompileError.
        """
        self._forget_unnamed()
        output = Output(path, f"the {what}", "module")
        problem = _place_problem(output) or self._clash(output)
        if problem is None and not self.force and os.path.lexists(path) and not _begins(path, start):
            text = f"the {what} {path} would replace a file that is no such {what}"
            problem = error("E0013", text, help="name another folder, or pass --force")
        if problem is not None:
            raise CompileError(problem)
        write_files({path: content})

    def _named(self, path: str) -> Output:
        return next((o for o in self._outputs.values() if o.path == path), Output(path, "the output", "module"))

    def _forget_unnamed(self) -> None:
        """Add the files read since the last call to the inputs."""
        for path in self._seen:
            self._note_input(path)
        self._seen.clear()


def mark(owner: str) -> bytes:
    """Return the comment that marks an archive as written by mlcc for `owner`."""
    return _MARK.format(suffix_of(owner) or "text").encode()


def holds(old: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bool:
    """Return True if `old` has all arrays with the same names, dtypes, shapes and contents."""
    return all(name in old and same_array(old[name], array) for name, array in arrays.items())


def same_array(a: np.ndarray, b: np.ndarray) -> bool:
    """Return True if two arrays have the same dtype, shape and bits."""
    import numpy as np

    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    pieces = (pieces_of(np.ascontiguousarray(array)) for array in (a, b))
    return all(x == y for x, y in zip(*pieces, strict=True))


def _old_arrays(path: str) -> Any:
    try:
        return ArrayFile(path)
    except CompileError:
        return None


def _holds(holds: Callable[[Mapping[str, Any]], bool], old: Mapping[str, Any]) -> bool:
    """False, too, for an archive that is damaged."""
    try:
        return holds(old)
    except CompileError:
        return False


def _begins(path: str, start: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(start.encode())) == start.encode()
    except OSError:
        return False


def _beside(path: str) -> Iterable[str]:
    """The files of constants that an input may refer to, from a look at the text of it."""
    stem, suffix = os.path.splitext(path)
    if path == "-" or suffix in _NEVER_BESIDE or not os.path.isfile(path):
        return ()
    try:
        with open(path, "rb") as file:
            text = file.read()
    except OSError:
        return ()
    named = [os.fsdecode(of_text or of_plan) for of_text, of_plan in _DATA_FILE.findall(text)]
    if named:
        return [os.path.join(os.path.dirname(path), name) for name in named]
    return [stem + suffix for suffix in SUFFIXES] if _REFERENCE.search(text) else ()


def _identity(path: str, is_input: bool = False) -> Hashable | None:
    """Return a key that is equal for all names of one file; None for shareable places such as /dev/null."""
    try:
        if is_input:
            known: os.stat_result | None = os.fstat(0) if path == "-" else os.stat(path)
            return None if known is None or not stat.S_ISREG(known.st_mode) else (known.st_dev, known.st_ino)
        place = Destination.of(path)
        known = place.status()
        if known is None:
            folder = os.stat(os.path.dirname(place.path))
            return (folder.st_dev, folder.st_ino, os.path.basename(place.path))
        if place.descriptor is not None and not stat.S_ISREG(known.st_mode):
            return ("descriptor", known.st_dev, known.st_ino)
        return None if stat.S_ISCHR(known.st_mode) else (known.st_dev, known.st_ino)
    except (OSError, ValueError):
        return None


def _place_problem(made: Output) -> Diagnostic | None:
    """Return an error if a path cannot be written, or not with binary output; else None."""
    path, to = made.path, None
    reason = None
    try:
        to = Destination.of(path)
        known = to.status()
        if not path:
            reason = "a name is missing"
        elif os.path.isdir(path):
            reason = "it is a folder"
        elif known is None and to.descriptor is not None:
            reason = "it is closed"
        elif known is None and not os.path.isdir(os.path.dirname(to.path)):
            reason = f"there is no folder {os.path.dirname(path)}"
        elif known is not None and to.is_plain and not os.access(to.path, os.W_OK):
            reason = "it is write-protected"
    except (OSError, ValueError) as exc:
        reason = getattr(exc, "strerror", None) or str(exc)
    if reason is not None:
        shown = "standard output" if path == "-" else path if path.isprintable() else repr(path)
        return error("E0002", f"cannot write {shown}: {reason}")
    if to is not None and KINDS[made.kind].is_binary and _is_terminal(to):
        text = f"{KINDS[made.kind].words} would go to a terminal"
        return error("E0014", text, help="name a file, or redirect standard output")
    return None


def _is_terminal(to: Destination) -> bool:
    try:
        if to.descriptor is not None:
            return os.isatty(to.descriptor)
        known = to.status()
        if known is None or not stat.S_ISCHR(known.st_mode):
            return False
        handle = os.open(to.path, os.O_WRONLY | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_NONBLOCK", 0))
        try:
            return os.isatty(handle)
        finally:
            os.close(handle)
    except OSError:
        return False

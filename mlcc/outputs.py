"""The outputs of a command: all are declared and checked before anything is compiled, and written together at the end.

The checks protect the user's files. An output is never an input, and two outputs are never one file, whatever their
names and links. The suffix of a file fits its content. A file that is written only implicitly, such as the `net.npz` of
`-o net.mlc`, replaces only what mlcc wrote for the same purpose.
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
from mlcc.files import Content, Destination, byte_chunks, probe, watch_reads, write_files
from mlcc.plugins import loaded_paths

if TYPE_CHECKING:
    import numpy as np


class Kind(NamedTuple):
    """A kind of output: its description, and the suffixes of its files, the default first.

    `runs`: the runtime can load it. `has_data_beside`: large constants are in an .npz file beside it.
    """

    name: str
    description: str
    suffixes: tuple[str, ...]
    is_binary: bool = False
    runs: bool = False
    has_data_beside: bool = False

    @property
    def suffix(self) -> str:
        return self.suffixes[0]


# the formats of generated code
OBJECT = Kind("obj", "an object", (".o", ".obj"), is_binary=True, runs=True)
SHARED = Kind("shared", "a shared library", (".so",), is_binary=True, runs=True)
STATIC = Kind("static", "a static library", (".a",), is_binary=True, runs=True)
ASSEMBLY = Kind("asm", "assembly", (".s",))
LLVM_IR = Kind("llvm-ir", "LLVM IR", (".ll",))
PTX = Kind("ptx", "PTX", (".ptx",), runs=True, has_data_beside=True)
ARCHIVE = Kind("mlca", "an archive of kernels", (".mlca",), is_binary=True, runs=True)
CUDA_C = Kind("cuda-c", "CUDA C", (".cu",))
METAL = Kind("metal", "Metal source", (".metal",))
C_SOURCE = Kind("c", "C source", (".c",))

KINDS = {
    kind.name: kind
    for kind in (
        OBJECT, SHARED, STATIC, ASSEMBLY, LLVM_IR, PTX, ARCHIVE, CUDA_C, METAL, C_SOURCE,
        Kind("header", "a C header", (".h", ".hh", ".hpp", ".hxx", ".inc")),
        Kind("arrays", "arrays", SUFFIXES, is_binary=True),
        Kind("results", "arrays", (*SUFFIXES, ".npy"), is_binary=True),
        Kind("npz", "the constants of kernels", (".npz",), is_binary=True),
        Kind("module", "the text of a module", (".mlc",)),
        Kind("tvm", "the text of a module", (".mlc", ".py")),  # in TVM's dialect, which Python runs
        Kind("script", "a schedule script", (".mls",)),
        Kind("records", "a database of records", (".db", ".sqlite"), is_binary=True),
        Kind("report", "a report", (".svg", ".json")),
        Kind("trace", "a trace", (".json",)),
        Kind("page", "a report", (".html", ".htm")),
        Kind("json", "data", (".json",)),
        Kind("svg", "a picture", (".svg",)),
        Kind("dot", "a graph for Graphviz", (".dot", ".gv")),
    )
}  # fmt: skip
# suffixes of files that people or other tools write, but mlcc never does
_FOREIGN_SUFFIX_LIST = (
    ".bc .bib .bz2 .c++ .cc .cfg .cmake .conf .cpp .csv .cuh .cxx .d .db .dll .doc .docx .dylib "
    ".exe .f .f90 .gguf .go .gz .h5 .hdf5 .hs .html .inl .ini .ipynb .jar .java .jl .jpeg .jpg .js .json "
    ".jsonl .py .kt .lark .lock .lua .m .mat .md .mk .ml .mlir .mm .npy .onnx .parquet .pb .pdf .pickle .pkl "
    ".pl .png .proto .pt .pt2 .pth .pyc .pyi .pyx .r .rb .rs .rst .scala .sh .sql .svg "
    ".swift .tar .tex .tflite .toml .ts .tsv .v .wasm .xls .xlsx .xml .xz .yaml .yml .zip .zst"
)
_FOREIGN_SUFFIXES = frozenset(_FOREIGN_SUFFIX_LIST.split())
_WITHOUT_DATA_FILE = frozenset((*SUFFIXES, ".mls", ".o", ".so", ".a", ".mlca", ".onnx", ".pt2"))
# compiled where they are first used, which few commands do
_DATA_REFERENCE = rb"(?m)\bdata\(|\bmeta(?:data)?\[|^// mlcc plan: .*\"sha256\""
_DATA_FILE = rb"(?m)^# mlcc\.data-file (\S+)|^// mlcc plan: .*\"data\": \"([^\"]+)\""
_VERSIONED_LIBRARY = r"\.so(\.\d+)+$"
_MARK = "mlcc: constants of a {} file"


def suffix_of(path: str) -> str:
    """Return the suffix in lower case; `.so` for `libm.so.1`."""
    return ".so" if ".so." in path and re.search(_VERSIONED_LIBRARY, path) else os.path.splitext(path)[1].lower()


def symbol_prefix(path: str) -> str:
    """Return what the C symbols of an output start with unless told: its name without suffix, nor `lib` in `libm.a`."""
    stem, suffix = os.path.splitext(os.path.basename(path))
    return stem[3:] if suffix == ".a" and stem.startswith("lib") and len(stem) > 3 else stem


def kind_of(path: str, among: Iterable[Kind], default: Kind, option: str | None = "--emit") -> Kind:
    """Return the kind of output for a path by its suffix, among the kinds `among`.

    `default` is for standard output, devices and pipes; `option` states the kind where the suffix does not. Raises
    CompileError E0012 for an unknown suffix.
    """
    suffix = suffix_of(path)
    for kind in among:
        if suffix in kind.suffixes:
            return kind
    if is_stream(path):
        return default
    if any(suffix in k.suffixes for k in KINDS.values()) or suffix in _FOREIGN_SUFFIXES:
        return default  # it does not fit, which `suffix_problem` reports
    known = ", ".join(kind.suffix for kind in among)
    what = f"the suffix `{suffix}`" if suffix else "no suffix"
    raise CompileError(
        error(
            "E0012",
            f"{path} has {what}, which does not say what to write",
            help=f"use one of {known}" + (f", or {option}" if option else ""),
        )
    )


def suffix_problem(path: str, kind: str) -> Diagnostic | None:
    """Return an error if a path, or the target of a link, has the suffix of another kind of output; else None."""
    if is_stream(path):
        return None
    for name in dict.fromkeys((path, _real(path))):
        suffix = suffix_of(name)
        fits = suffix in KINDS[kind].suffixes
        if not fits and (suffix in _FOREIGN_SUFFIXES or any(suffix in k.suffixes for k in KINDS.values())):
            where = path if name == path else f"{path}, a link to {name},"
            text = f"{where} has the wrong suffix for {KINDS[kind].description}"
            return error("E0012", text, help=f"name a {KINDS[kind].suffix} file")
    return None


def check_suffix(path: str, kind: str) -> None:
    """Raise CompileError E0012 for a file whose suffix does not fit the kind of output."""
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
    """A file that a command will write. Messages refer to it by `option`."""

    path: str
    option: str
    kind: str


class Outputs:
    """The inputs and outputs of one command. With `watch`, every file read from now on is registered as an input."""

    def __init__(self, force: bool = False, watch: bool = False) -> None:
        self.force = force
        self._inputs: dict[Hashable, str] = {}
        self._outputs: dict[Hashable, Output] = {}
        self._problems: list[Diagnostic] = []
        self._seen = watch_reads() if watch else set[str]()
        self.read(*loaded_paths())

    # ------------------------------------------------------------ declaring inputs and outputs

    def read(self, *paths: str | None) -> None:
        """Declare inputs, which no output may replace. The constants beside a text or a .ptx file are inputs, too."""
        for path in paths:
            if path is None:
                continue
            for name in (path, *_data_files_of(path)):
                self._note_input(name)

    def _note_input(self, path: str) -> None:
        identity = _file_identity(path, is_input=True)
        if identity is not None:
            self._inputs.setdefault(identity, path)

    def write(self, path: str | None, option: str, kind: str) -> None:
        """Declare an output. `check` reports any errors."""
        if path is None:
            return
        output = Output(path, option, kind)
        problem = _write_problem(output) or suffix_problem(path, kind) or self._clash(output)
        if problem is not None:
            self._problems.append(problem)

    def write_module(self, path: str, option: str, dialect: str, data: str | None) -> None:
        """Declare the text of a module as an output, and the file for its constants if there is one."""
        self.write(path, option, "tvm" if dialect == "tvm" else "module")
        self.write(data, "--data", "arrays")

    def check(self) -> None:
        """Raise CompileError with all errors in the outputs declared so far."""
        if self._problems:
            raise CompileError(self._problems)

    def _clash(self, output: Output) -> Diagnostic | None:
        """Return an error if an output is the same file as an input or another output; else register it."""
        identity = _file_identity(output.path)
        if identity is None:
            return None
        if identity in self._inputs:
            same = self._inputs[identity]
            what = "is an input" if same == output.path else f"is the input {same} by another name"
            return error("E0010", f"{output.option} {output.path} {what}", help="name another file for the output")
        other = self._outputs.setdefault(identity, output)
        if other is output or (other.path, other.option) == (output.path, output.option):
            return None
        text = f"{output.option} {output.path} and {other.option} {other.path} are the same file"
        return error("E0011", text, help="name two files")

    # ------------------------------------------------------------ writing

    def constants_file(
        self, path: str, arrays: Mapping[str, np.ndarray], owner: str, holds: Callable[[Mapping[str, Any]], bool]
    ) -> dict[str, Content]:
        """Return the archive of constants that the output `owner` needs beside it, if the user named none.

        Empty if the existing file `holds` all constants. Raises CompileError E0013 if it would replace a file that mlcc
        did not write for this purpose."""
        content = arrays_content(path, arrays, ownership_comment(owner))
        if not os.path.lexists(path) or is_stream(path):
            return {path: content}
        self._register_reads()
        old = _existing_arrays(path)
        if old is not None and _contains_or_damaged(holds, old):
            return {}
        self._seen.discard(path)  # reading it for this comparison does not make it an input
        output = Output(path, f"the archive of constants of {owner},", "arrays")
        problem = _write_problem(output) or self._clash(output)
        if problem is None and not self.force and (old is None or old.comment != ownership_comment(owner)):
            text = f"{owner} needs its constants in {path}, which exists and was not written by mlcc for this purpose"
            help = "name another file for them with --data FILE, or pass --force to replace this one"
            problem = error("E0013", text, help=help)
        if problem is not None:
            raise CompileError(problem)
        return {path: content}

    def save(self, contents: Mapping[str, Content]) -> None:
        """Write all files of a command, after checking them against the files read meanwhile. Raises CompileError."""
        self._register_reads()
        wrong = [p for path in contents if (p := self._clash(self._named(path))) is not None]
        if wrong:
            raise CompileError(wrong)
        write_files(contents)

    def save_unnamed(self, path: str, content: str, start: str, what: str = "dump") -> None:
        """Write a file that the user did not name, such as a dump. It replaces only a file that begins with `start`.

        Raises CompileError.
        """
        self._register_reads()
        output = Output(path, f"the {what}", "module")
        problem = _write_problem(output) or self._clash(output)
        if problem is None and not self.force and os.path.lexists(path) and not _starts_with(path, start):
            text = f"the {what} {path} would replace a file that is not a {what} by mlcc"
            problem = error("E0013", text, help="name another folder, or pass --force")
        if problem is not None:
            raise CompileError(problem)
        write_files({path: content})

    def _named(self, path: str) -> Output:
        return next((o for o in self._outputs.values() if o.path == path), Output(path, "the output", "module"))

    def _register_reads(self) -> None:
        """Add the files read since the last call to the inputs."""
        for path in self._seen:
            self._note_input(path)
        self._seen.clear()


def ownership_comment(owner: str) -> bytes:
    """Return the comment that marks an archive as written by mlcc for `owner`."""
    return _MARK.format(suffix_of(owner) or "text").encode()


def contains_arrays(old: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bool:
    """Return True if `old` has all arrays with the same names, dtypes, shapes and contents."""
    return all(name in old and same_array(old[name], array) for name, array in arrays.items())


def same_array(a: np.ndarray, b: np.ndarray) -> bool:
    """Return True if two arrays have the same dtype, shape and bits."""
    import numpy as np

    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    pieces = (byte_chunks(np.ascontiguousarray(array)) for array in (a, b))
    return all(x == y for x, y in zip(*pieces, strict=True))


def _existing_arrays(path: str) -> Any:
    try:
        return ArrayFile(path)
    except CompileError:
        return None


def _contains_or_damaged(holds: Callable[[Mapping[str, Any]], bool], old: Mapping[str, Any]) -> bool:
    """Return `holds(old)`; False also for a damaged archive."""
    try:
        return holds(old)
    except CompileError:
        return False


def _starts_with(path: str, start: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(start.encode())) == start.encode()
    except OSError:
        return False


def _data_files_of(path: str) -> Iterable[str]:
    """Return the files of constants that an input may refer to, found by scanning its text."""
    stem, suffix = os.path.splitext(path)
    if path == "-" or suffix in _WITHOUT_DATA_FILE or not os.path.isfile(path):
        return ()
    try:
        with open(path, "rb") as file:
            text = file.read()
    except OSError:
        return ()
    named = [os.fsdecode(of_text or of_plan) for of_text, of_plan in re.findall(_DATA_FILE, text)]
    if named:
        return [os.path.join(os.path.dirname(path), name) for name in named]
    return [stem + suffix for suffix in SUFFIXES] if re.search(_DATA_REFERENCE, text) else ()


def _file_identity(path: str, is_input: bool = False) -> Hashable | None:
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


def _write_problem(output: Output) -> Diagnostic | None:
    """Return an error if an output cannot be written, or is binary output to a terminal; else None."""
    path, to = output.path, None
    reason = None
    try:
        to = Destination.of(path)
        known = to.status()
        if not path:
            reason = "its name is empty"
        elif os.path.isdir(path):
            reason = "it is a folder"
        elif known is None and to.descriptor is not None:
            reason = "it is closed"
        elif known is None and not os.path.isdir(os.path.dirname(to.path)):
            reason = f"the folder {os.path.dirname(path)} does not exist"
        elif known is not None and to.is_plain and not os.access(to.path, os.W_OK):
            reason = "it is write-protected"
        elif to.is_plain:
            probe(to)
    except (OSError, ValueError) as exc:
        reason = getattr(exc, "strerror", None) or str(exc)
    if reason is not None:
        shown = "standard output" if path == "-" else path if path.isprintable() else repr(path)
        return error("E0002", f"cannot write {shown}: {reason}")
    if to is not None and KINDS[output.kind].is_binary and _is_terminal(to):
        text = f"{KINDS[output.kind].description} would be written to a terminal"
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

"""Small files for what campaigns of mutated files find: pieces are left out as long as a command ends as it did.

    python -m tests.fuzz.file_reduction FILE CODES

reduces FILE in the current folder, for the command whose words are the lines of `argv`, which may end with the CODES.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import re
import shutil
import struct
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Container, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from mlcc.bisect.search import minimal_subset
from mlcc.reduce.outcomes import OK, TIMEOUT, run_apart
from tests.fuzz.commands import judged
from tests.fuzz.mutate import TOKEN
from tests.fuzz.reduction import quietly, seconds_allowed

Build = Callable[[Sequence[Any]], bytes]  # makes a file of the pieces that are kept
Pieces = tuple[Sequence[Any], Build]


def note(path: Path, argv: Sequence[str], documented: Container[int]) -> str:
    """Reduce a file on which a command ends as it should not. Return a line with the command on what was written."""
    _import_what_is_used(argv[0], path.suffix)
    small = reduce_file(path, lambda found: _ending(found, path, argv, documented))
    if small is None:
        return "not reduced"
    return f"a small file: mlcc {' '.join(word.replace(str(path), str(small)) for word in argv)}"


def _import_what_is_used(command: str, suffix: str) -> None:
    """Import once what each candidate would import in its process."""
    by_suffix = {".onnx": ["mlcc.frontend.onnx.importer"], ".pt2": ["mlcc.frontend.aten.pt2"]}
    for name in (f"mlcc.cli.cmd_{command}", "mlcc.grammar.parser", "mlcc.verify", *by_suffix.get(suffix, ())):
        importlib.import_module(name)


def _ending(found: bytes, path: Path, argv: Sequence[str], documented: Container[int]) -> str:
    """How a command ends on other contents of a file, without numbers and paths.

    With the name of a file of the current folder, the command runs in a copy of that folder.
    """
    with tempfile.TemporaryDirectory(prefix="mlcc-reduce-") as folder, contextlib.ExitStack() as stack:
        other = Path(folder, path.name)
        if path == Path(path.name):
            shutil.copytree(".", folder, dirs_exist_ok=True)
            stack.enter_context(contextlib.chdir(folder))
            other = path
        other.write_bytes(found)
        problem, said = judged([word.replace(str(path), str(other)) for word in argv], documented)
    if problem is None:
        return OK
    internal = re.search(r"internal error: .*", said)
    return re.sub(r"\S*/\S*|\d+(\.\d+)?", "", f"{problem} {internal[0] if internal else ''}")[:120]


def reduce_file(path: Path, outcome: Callable[[bytes], str]) -> Path | None:
    """Write a small file with the same outcome beside a file, and return its path; None if it ends well.

    Nodes of models and members of JSON are left out first, then lines and words of texts, then bytes. Each candidate
    runs in a process of its own.
    """
    data, seconds = path.read_bytes(), seconds_allowed()
    end = time.monotonic() + seconds

    def observe(candidate: bytes) -> str:
        left = end - time.monotonic()
        return str(run_apart(lambda: quietly(outcome, candidate), left)) if left > 0 else TIMEOUT

    wanted = observe(data)
    if wanted in (OK, TIMEOUT):
        return None
    is_structured = False
    for pieces in (_nodes, _members, _header, _lines, _words):
        with contextlib.suppress(Exception):  # it may be damaged so far that it has no such pieces
            data = _fewer(*pieces(data, path.suffix), lambda candidate: observe(candidate) == wanted) or data
            is_structured = True
    if not (is_structured and path.suffix in (".onnx", ".pt2")):  # which have lengths or checksums of their parts
        data = _fewer(*_bytes(data), lambda candidate: observe(candidate) == wanted) or data
    small = path.with_name(f"reduced-{path.name}")
    small.write_bytes(data)
    return small


def _fewer(items: Sequence[Any], build: Build, holds: Callable[[bytes], bool]) -> bytes | None:
    """Leave pieces out as long as the rest holds; None if nothing can be left out."""
    best: list[bytes] = []

    def is_kept(kept: Sequence[Any]) -> bool:
        candidate = build(kept)
        if not holds(candidate):
            return False
        best.append(candidate)
        return True

    minimal_subset(items, is_kept)
    return best[-1] if best else None


# ---------------------------------------------------------------- pieces, by the kind of file


def _nodes(data: bytes, suffix: str) -> Pieces:
    """Nodes, weights, inputs and results of an ONNX graph.

    What a node takes of one that is left out becomes an input, of the type that shape inference finds.
    """
    if suffix != ".onnx":
        raise ValueError
    import onnx

    model = onnx.load_model_from_string(data)
    known = onnx.shape_inference.infer_shapes(model).graph
    infos = {info.name: info for info in (*known.value_info, *known.input, *known.output)}
    lists = ("node", "initializer", "input", "output", "value_info")
    places = [(name, at) for name in lists for at in range(len(getattr(model.graph, name)))]

    def build(kept: Sequence[Any]) -> bytes:
        made, chosen = onnx.ModelProto(), set(kept)
        made.CopyFrom(model)
        for name, at in reversed(places):
            if (name, at) not in chosen:
                del getattr(made.graph, name)[at]
        graph = made.graph
        named = {value.name for value in (*graph.input, *graph.initializer)}
        named.update(name for node in graph.node for name in node.output)
        missing = dict.fromkeys(name for node in graph.node for name in node.input if name and name not in named)
        graph.input.extend(infos[name] for name in missing if name in infos)
        kept_results = [value for value in graph.output if value.name in named]
        if graph.node and not kept_results:
            kept_results = [infos[name] for name in graph.node[-1].output if name in infos]
        del graph.output[:]
        graph.output.extend(kept_results)
        return bytes(made.SerializeToString())

    return places, build


def _members(data: bytes, suffix: str) -> Pieces:
    """Values of the JSON files of an archive, and its files."""
    if suffix != ".pt2":
        raise ValueError
    with zipfile.ZipFile(BytesIO(data)) as archive:
        files = {info.filename: archive.read(info) for info in archive.infolist()}
    values = {name: json.loads(content) for name, content in files.items() if name.endswith(".json")}
    places: list[Any] = [(name, path) for name, value in values.items() for path in _paths(value)]
    places += [(name, None) for name in files]

    def build(kept: Sequence[Any]) -> bytes:
        made, chosen = BytesIO(), set(kept)
        with zipfile.ZipFile(made, "w") as archive:
            for name, content in files.items():
                if (name, None) in chosen:
                    dropped = {p for n, p in places if n == name and p is not None and (n, p) not in chosen}
                    archive.writestr(name, json.dumps(_without(values[name], dropped)) if dropped else content)
        return made.getvalue()

    return places, build


def _header(data: bytes, suffix: str) -> Pieces:
    """Values of the header of a .safetensors file."""
    if suffix != ".safetensors":
        raise ValueError
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    places = list(_paths(header))

    def build(kept: Sequence[Any]) -> bytes:
        made = json.dumps(_without(header, set(places) - set(kept))).encode()
        return struct.pack("<Q", len(made)) + made + data[8 + length :]

    return places, build


def _lines(data: bytes, suffix: str) -> Pieces:
    if suffix not in (".mlc", ".mls"):
        raise ValueError
    return data.splitlines(keepends=True), b"".join


def _words(data: bytes, suffix: str) -> Pieces:
    if suffix not in (".mlc", ".mls"):
        raise ValueError
    return TOKEN.findall(data.decode("utf-8", "surrogateescape")), lambda kept: "".join(kept).encode(
        "utf-8", "surrogateescape"
    )


def _bytes(data: bytes) -> Pieces:
    return [data[at : at + 1] for at in range(len(data))], b"".join


def _paths(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the place of every value inside of a value of JSON, by the keys that lead there."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        yield (*above, key)
        yield from _paths(part, (*above, key))


def _without(value: Any, dropped: set[tuple[Any, ...]], above: tuple[Any, ...] = ()) -> Any:
    """Return a value of JSON without the places in `dropped`."""
    if isinstance(value, dict):
        return {k: _without(v, dropped, (*above, k)) for k, v in value.items() if (*above, k) not in dropped}
    if isinstance(value, list):
        return [_without(v, dropped, (*above, k)) for k, v in enumerate(value) if (*above, k) not in dropped]
    return value


if __name__ == "__main__":
    name, codes = sys.argv[1:]
    print(note(Path(name), Path("argv").read_text().splitlines(), tuple(map(int, codes.split(",")))))

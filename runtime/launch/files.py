"""Read and write artifacts with a launch plan: `.ptx` with constants beside it, and `.mlca`, a zip of everything.

A .ptx starts with comment lines, so that any tool reads it: `// mlcc manifest: {...}`, `// mlcc plan: {...}`,
`// mlcc source: "..."` and `// mlcc sum: 0123abcd`, the CRC-32 of all other bytes. Files are not trusted: members of a
zip must be uncompressed, with unique names and correct sizes, and constants must match the plan's hashes.
"""

from __future__ import annotations

import ast
import hashlib
import io
import json
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mlcc.errors import LoadError, error
from mlcc.runtime.abi import MANIFEST_LINE, ZIP_START
from mlcc.runtime.launch.scalars import damaged

PLAN_LINE, SOURCE_LINE, SUM_LINE = b"// mlcc plan: ", b"// mlcc source: ", b"// mlcc sum: "
_MANIFEST, _PLAN, _CODE, SOURCE = "manifest.json", "plan.json", "kernels.ptx", "kernels.mlc"
_MAX_MEMBERS = 1 << 16
_MAX_HEADER = 1 << 16  # bytes that the header of an array takes at most
_HOW_TO_MAKE = "an artifact is what `mlcc compile -t cuda -o k.mlca` writes; to run a text, name the .mlc"


class ArtifactContents(NamedTuple):
    """The contents of an artifact.

    `source` is the text of the PrimFuncs that the kernels were generated from, empty in old files; `constants` are
    arrays or buffers in the order of the plan.
    """

    manifest: dict[str, Any]
    plan: dict[str, Any]
    code: bytes
    source: bytes
    constants: Sequence[Any]


def read_contents(data: bytes, path: str | None, with_constants: bool = True) -> ArtifactContents:
    """Read an artifact; the constants of a .ptx at `path` are in a file beside it. Raises LoadError."""
    return _read_archive(data, with_constants) if data.startswith(ZIP_START) else _read_ptx(data, path, with_constants)


def _damaged_file(reason: str) -> LoadError:
    """Return the error for a damaged file."""
    help = "copy the whole file again as binary data, or compile it again"
    return LoadError(error("E0869", f"the file is damaged: {reason}", help=help))


# ---------------------------------------------------------------- .ptx


def _read_ptx(data: bytes, path: str | None, with_constants: bool) -> ArtifactContents:
    first, _, rest = data.partition(b"\n")
    second, _, code = rest.partition(b"\n")
    if not second.startswith(PLAN_LINE):
        raise _damaged_file("its second line is not a launch plan")
    third, _, remainder = code.partition(b"\n")
    source = ""
    if third.startswith(SOURCE_LINE):
        source, code = _parse_json(third[len(SOURCE_LINE) :], "source", str), remainder
    third, _, remainder = code.partition(b"\n")
    if third.startswith(SUM_LINE):
        head = data[: len(data) - len(code)]
        if third != SUM_LINE + _checksum(head, remainder):
            text = (
                "its content does not match its checksum; after editing a .ptx by hand, remove the line `// mlcc sum`"
            )
            raise _damaged_file(text)
        code = remainder
    if b".version" not in code:
        raise _damaged_file("its code is missing")
    manifest, plan = (
        _parse_json(first[len(MANIFEST_LINE) :], "manifest"),
        _parse_json(second[len(PLAN_LINE) :], "launch plan"),
    )
    entries = _constant_entries(plan)
    if not with_constants or not entries:
        return ArtifactContents(manifest, plan, code, source.encode(), ())
    if path is None:
        raise _missing_constants("the constants of a .ptx are in a file beside it: load it by its path")
    constants_path = _constants_path(plan, path)
    try:
        with open(constants_path, "rb") as file:
            archive = _Archive(file.read(), constants_path)
    except OSError as exc:
        raise _missing_constants(
            f"cannot read {constants_path}, which holds the constants: {exc.strerror or exc}"
        ) from None

    def name_of(entry: dict[str, Any]) -> str:
        by_hash, by_key = f"{entry['sha256']}.npy", f"{entry.get('key')}.npy"
        return by_key if by_key in archive.members and by_hash not in archive.members else by_hash

    return ArtifactContents(manifest, plan, code, source.encode(), _constants(entries, archive, name_of))


def _constants_path(plan: Mapping[str, Any], path: str) -> str:
    """Return the path of a .ptx's constants: the file in the same folder that its plan names, else NAME.npz."""
    name = plan.get("data")
    if name is None:
        return f"{os.path.splitext(path)[0]}.npz"
    folder = os.path.dirname(path) or "."
    data_path = os.path.join(folder, name) if isinstance(name, str) and "\0" not in name else ""
    root = os.path.realpath(folder)
    if not data_path or os.path.commonpath([root, os.path.realpath(data_path)]) != root:
        raise damaged("the file with its constants must be in its folder")
    return data_path


def write_text(parts: ArtifactContents) -> bytes:
    """Return the .ptx of an artifact, without its constants; the output is deterministic."""
    lines = [MANIFEST_LINE + json.dumps(parts.manifest).encode(), PLAN_LINE + json.dumps(parts.plan).encode()]
    lines.append(SOURCE_LINE + json.dumps(parts.source.decode()).encode())
    head = b"\n".join([*lines, b""])
    return b"".join([head, SUM_LINE, _checksum(head, parts.code), b"\n", parts.code])


def _checksum(head: bytes, code: bytes) -> bytes:
    return b"%08x" % zlib.crc32(code, zlib.crc32(head))


def _parse_json(text: bytes, what: str, kind: type = dict) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise _damaged_file(f"its {what} is not JSON") from None
    if not isinstance(value, kind):
        raise _damaged_file(f"its {what} has the wrong JSON type")
    return value


def _missing_constants(message: str) -> LoadError:
    return LoadError(error("E0868", message, help="keep the .npz beside the .ptx, or compile to one .mlca"))


# ---------------------------------------------------------------- .mlca


def write_archive(parts: ArtifactContents) -> bytes:
    """Return the zip of an artifact; the output is deterministic."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:

        def add(name: str, content: bytes) -> None:
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)

        add(_MANIFEST, json.dumps(parts.manifest, indent=1).encode())
        add(_PLAN, json.dumps(parts.plan).encode())
        add(_CODE, parts.code)
        add(SOURCE, parts.source)
        for index, array in enumerate(parts.constants):
            part = io.BytesIO()
            np.lib.format.write_array(part, np.asanyarray(array), allow_pickle=False)
            add(_constant_name(index), part.getvalue())
    return buffer.getvalue()


def _constant_name(index: int) -> str:
    return f"constants/{index}.npy"


class _Archive:
    """A reader of the uncompressed members of a zip."""

    def __init__(self, data: bytes, name: str) -> None:
        self.data = data
        self.name = name
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                entries = archive.infolist()
        except (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error, EOFError):
            raise _damaged_file(f"the directory at the end of {name} is truncated or changed") from None
        if len(entries) > _MAX_MEMBERS:
            raise _damaged_file(f"{name} has {len(entries)} members")
        self.members: dict[str, zipfile.ZipInfo] = {}
        for entry in entries:
            if entry.filename in self.members:
                raise _damaged_file(f"{name} has two members `{entry.filename}`")
            self.members[entry.filename] = entry

    def read(self, name: str) -> memoryview:
        """Return the bytes of a member. Raises LoadError."""
        entry = self.members.get(name)
        if entry is None:
            raise _missing_constants(f"{self.name} has no `{name}`")
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1 or entry.compress_size != entry.file_size:
            raise _damaged_file(f"`{name}` of {self.name} is compressed, which mlcc never does")
        start = entry.header_offset
        head = self.data[start : start + 30]
        if len(head) < 30 or not head.startswith(ZIP_START):
            raise _damaged_file(f"{self.name} is truncated")
        start += 30 + int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
        if start + entry.file_size > len(self.data):
            raise _damaged_file(f"{self.name} is truncated")
        content = memoryview(self.data)[start : start + entry.file_size]
        if zlib.crc32(content) != entry.CRC:
            raise _damaged_file(f"`{name}` of {self.name} does not match its checksum")
        return content


def _read_archive(data: bytes, with_constants: bool) -> ArtifactContents:
    archive = _Archive(data, "the archive")
    for name in (_MANIFEST, _PLAN, _CODE):
        if name not in archive.members:
            raise LoadError(error("E0869", f"the archive has no `{name}`, so mlcc did not make it", help=_HOW_TO_MAKE))
    manifest, plan = (
        _parse_json(bytes(archive.read(_MANIFEST)), "manifest"),
        _parse_json(bytes(archive.read(_PLAN)), "launch plan"),
    )
    code = bytes(archive.read(_CODE))
    source = bytes(archive.read(SOURCE)) if SOURCE in archive.members else b""
    entries = _constant_entries(plan)
    if not with_constants:
        return ArtifactContents(manifest, plan, code, source, ())
    names = {id(entry): _constant_name(i) for i, entry in enumerate(entries)}
    return ArtifactContents(manifest, plan, code, source, _constants(entries, archive, lambda entry: names[id(entry)]))


# ---------------------------------------------------------------- constants


def _constant_entries(plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    specs = plan.get("constants")
    fields = {"dtype": str, "shape": list, "bytes": int, "sha256": str}
    is_valid = isinstance(specs, list) and all(
        isinstance(c, dict) and all(isinstance(c.get(k), kind) for k, kind in fields.items()) for c in specs
    )
    if not is_valid:
        raise damaged("its list of constants is malformed")
    return specs  # type: ignore[return-value]


def _constants(
    entries: list[dict[str, Any]], archive: _Archive, name_of: Callable[[dict[str, Any]], str]
) -> list[memoryview]:
    """Return the bytes of all constants, verified by their hashes. Raises LoadError."""
    contents = []
    for entry in entries:
        name = name_of(entry)
        data = _elements(archive.read(name), name)
        digest = hashlib.sha256(f"{entry['dtype']}{tuple(entry['shape'])}".encode(errors="replace"))
        digest.update(data)
        if data.nbytes != entry["bytes"] or digest.hexdigest() != entry["sha256"]:
            raise _missing_constants(f"`{name}` of {archive.name} does not match the hash in the launch plan")
        contents.append(data)
    return contents


def _elements(member: memoryview, name: str) -> memoryview:
    """Return the elements of a .npy file; the header is only skipped, as the hash is verified later."""
    if bytes(member[:6]) != b"\x93NUMPY" or len(member) < 12:
        raise _damaged_file(f"`{name}` is not an array")
    wide = member[6] > 1
    length = int.from_bytes(member[8 : 12 if wide else 10], "little")
    start = (12 if wide else 10) + length
    if length > _MAX_HEADER or start > len(member):
        raise _damaged_file(f"`{name}` is not an array")
    try:
        head = ast.literal_eval(bytes(member[start - length : start]).decode("latin1"))
        if head["fortran_order"] and len(head["shape"]) > 1:
            raise _damaged_file(f"`{name}` is not stored in C order")
    except (ValueError, SyntaxError, TypeError, KeyError, MemoryError):
        raise _damaged_file(f"`{name}` is not an array") from None
    return member[start:]

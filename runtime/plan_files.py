"""Artifacts with a launch plan as files: `.ptx` with constants beside it, and `.mlca`, one zip of all.

A .ptx starts with two comment lines, `// mlcc manifest: {...}` and `// mlcc plan: {...}`, so that any tool reads it.
Nothing of a file is trusted: a zip's members are stored, listed by name, and as large as they say; constants are held
against the hashes of the plan.
"""

from __future__ import annotations

import ast
import hashlib
import io
import json
import os
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mlcc.errors import LoadError, error
from mlcc.runtime.abi import MANIFEST_LINE, ZIP_START
from mlcc.runtime.plan_values import damaged

PLAN_LINE = b"// mlcc plan: "
_MANIFEST, _PLAN, _CODE = "manifest.json", "plan.json", "kernels.ptx"
_MOST_MEMBERS = 1 << 16
_HEAD = 1 << 16  # bytes that the header of an array takes at most


class Parts(NamedTuple):
    """What an artifact holds. `constants` are arrays, or buffers of their bytes, in the order of the plan."""

    manifest: dict[str, Any]
    plan: dict[str, Any]
    code: bytes
    constants: Sequence[Any]


def read_parts(data: bytes, path: str | None, with_constants: bool = True) -> Parts:
    """The parts of an artifact; those of a .ptx lie beside it at `path`. Raises LoadError."""
    try:
        return _archive(data, with_constants) if data.startswith(ZIP_START) else _text(data, path, with_constants)
    except (zipfile.BadZipFile, UnicodeDecodeError, KeyError, TypeError, RecursionError, EOFError) as exc:
        raise damaged(f"{type(exc).__name__}: {exc}") from None


# ---------------------------------------------------------------- .ptx


def _text(data: bytes, path: str | None, with_constants: bool) -> Parts:
    first, _, rest = data.partition(b"\n")
    second, _, code = rest.partition(b"\n")
    if not second.startswith(PLAN_LINE):
        raise damaged("its second line is no launch plan")
    manifest, plan = _json(first[len(MANIFEST_LINE) :], "manifest"), _json(second[len(PLAN_LINE) :], "launch plan")
    wanted = _wanted(plan)
    if not with_constants or not wanted:
        return Parts(manifest, plan, code, ())
    if path is None:
        raise _missing("the constants of a .ptx lie beside it: load it by its path")
    beside = f"{os.path.splitext(path)[0]}.npz"
    try:
        with open(beside, "rb") as file:
            archive = _Archive(file.read(), beside)
    except OSError as exc:
        raise _missing(f"cannot read {beside}, which holds the constants: {exc.strerror or exc}") from None
    except zipfile.BadZipFile as exc:
        raise _missing(f"{beside} is no archive: {exc}") from None

    def name_of(entry: dict[str, Any]) -> str:
        by_hash, by_key = f"{entry['sha256']}.npy", f"{entry.get('key')}.npy"
        return by_key if by_key in archive.members and by_hash not in archive.members else by_hash

    return Parts(manifest, plan, code, _constants(wanted, archive, name_of))


def _json(text: bytes, what: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise damaged(f"its {what} is no JSON") from None
    if not isinstance(found, dict):
        raise damaged(f"its {what} is no JSON object")
    return found


def _missing(message: str) -> LoadError:
    return LoadError(error("E0868", message, help="keep the .npz beside the .ptx, or compile to one .mlca"))


# ---------------------------------------------------------------- .mlca


def write_archive(parts: Parts) -> bytes:
    """The zip of an artifact; equal parts give equal bytes."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:

        def add(name: str, content: bytes) -> None:
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)

        add(_MANIFEST, json.dumps(parts.manifest, indent=1).encode())
        add(_PLAN, json.dumps(parts.plan).encode())
        add(_CODE, parts.code)
        for index, array in enumerate(parts.constants):
            part = io.BytesIO()
            np.lib.format.write_array(part, np.asanyarray(array), allow_pickle=False)
            add(_constant_name(index), part.getvalue())
    return made.getvalue()


def _constant_name(index: int) -> str:
    return f"constants/{index}.npy"


class _Archive:
    """Members of a zip that are stored as they are, read without writing or unpacking anything."""

    def __init__(self, data: bytes, name: str) -> None:
        self.data = data
        self.name = name
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
        if len(entries) > _MOST_MEMBERS:
            raise damaged(f"{name} has {len(entries)} members")
        self.members: dict[str, zipfile.ZipInfo] = {}
        for entry in entries:
            if entry.filename in self.members:
                raise damaged(f"{name} has two members `{entry.filename}`")
            self.members[entry.filename] = entry

    def read(self, name: str) -> memoryview:
        """The bytes of a member. Raises LoadError."""
        entry = self.members.get(name)
        if entry is None:
            raise _missing(f"{self.name} has no `{name}`")
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1 or entry.compress_size != entry.file_size:
            raise damaged(f"`{name}` of {self.name} is packed, which mlcc does not do")
        start = entry.header_offset
        head = self.data[start : start + 30]
        if len(head) < 30 or not head.startswith(ZIP_START):
            raise damaged(f"{self.name} is cut off")
        start += 30 + int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
        if start + entry.file_size > len(self.data):
            raise damaged(f"{self.name} is cut off")
        found = memoryview(self.data)[start : start + entry.file_size]
        if zlib.crc32(found) != entry.CRC:
            raise damaged(f"`{name}` of {self.name} does not match its checksum")
        return found


def _archive(data: bytes, with_constants: bool) -> Parts:
    archive = _Archive(data, "the archive")
    for name in (_MANIFEST, _PLAN, _CODE):
        if name not in archive.members:
            raise damaged(f"the archive has no `{name}`, so mlcc did not make it")
    manifest, plan = _json(bytes(archive.read(_MANIFEST)), "manifest"), _json(bytes(archive.read(_PLAN)), "launch plan")
    code = bytes(archive.read(_CODE))
    wanted = _wanted(plan)
    if not with_constants:
        return Parts(manifest, plan, code, ())
    names = {id(entry): _constant_name(i) for i, entry in enumerate(wanted)}
    return Parts(manifest, plan, code, _constants(wanted, archive, lambda entry: names[id(entry)]))


# ---------------------------------------------------------------- constants


def _wanted(plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = plan.get("constants")
    fields = {"dtype": str, "shape": list, "bytes": int, "sha256": str}
    sound = isinstance(found, list) and all(
        isinstance(c, dict) and all(isinstance(c.get(k), kind) for k, kind in fields.items()) for c in found
    )
    if not sound:
        raise damaged("its list of constants is malformed")
    return found  # type: ignore[return-value]


def _constants(
    wanted: list[dict[str, Any]], archive: _Archive, name_of: Callable[[dict[str, Any]], str]
) -> list[memoryview]:
    """The bytes of all constants, each held against its hash. Raises LoadError."""
    made = []
    for entry in wanted:
        name = name_of(entry)
        data = _elements(archive.read(name), name)
        digest = hashlib.sha256(f"{entry['dtype']}{tuple(entry['shape'])}".encode())
        digest.update(data)
        if data.nbytes != entry["bytes"] or digest.hexdigest() != entry["sha256"]:
            raise _missing(f"`{name}` of {archive.name} is not the constant that the launch plan was made with")
        made.append(data)
    return made


def _elements(member: memoryview, name: str) -> memoryview:
    """The elements of a .npy file, whose header is looked at and not believed: the hash decides."""
    if bytes(member[:6]) != b"\x93NUMPY" or len(member) < 12:
        raise damaged(f"`{name}` is no array")
    wide = member[6] > 1
    length = int.from_bytes(member[8 : 12 if wide else 10], "little")
    start = (12 if wide else 10) + length
    if length > _HEAD or start > len(member):
        raise damaged(f"`{name}` is no array")
    try:
        head = ast.literal_eval(bytes(member[start - length : start]).decode("latin1"))
        if head["fortran_order"] and len(head["shape"]) > 1:
            raise damaged(f"`{name}` is not stored in C order")
    except (ValueError, SyntaxError, TypeError, KeyError, MemoryError):
        raise damaged(f"`{name}` is no array") from None
    return member[start:]

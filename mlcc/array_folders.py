"""Weights in several files: a folder, or an index that maps each array to a file."""

from __future__ import annotations

import json
import os

from mlcc.errors import CompileError, error
from mlcc.files import read_bytes

INDEX = ".safetensors.index.json"  # as Hugging Face's libraries write it
SUFFIXES = (".safetensors", ".npz", ".npy")
_MAX_INDEX_BYTES = 64 << 20  # longer index files are truncated, and then fail to parse
_FORMAT_HELP = 'an index is {"weight_map": {"name": "model-00001-of-00002.safetensors", ...}}'


def is_index(path: str) -> bool:
    """Return True if a path has the suffix of an index of .safetensors files."""
    return os.path.basename(path).endswith(INDEX)


def listed_array_files(path: str) -> dict[str, list[str]]:
    """Return the array files at a path, each with the array names that an index lists for it.

    For a folder these are the files of its index, else all its .safetensors files, else all its .npz, else all its
    .npy. The files of an index lie in its folder. Raises CompileError: E0001 for an unreadable index, E0003 for a
    malformed one, and for a folder with several indices or without array files.
    """
    if is_index(path):
        return _files_of_index(path)
    if not os.path.isdir(path):
        return {path: []}
    names = sorted(os.listdir(path))
    indices = [name for name in names if is_index(name)]
    if len(indices) > 1:
        raise _index_error(f"{path} has {len(indices)} index files: {', '.join(indices)}", "name one of them")
    if indices:
        return _files_of_index(os.path.join(path, indices[0]))
    for suffix in SUFFIXES:
        matching = [name for name in names if name.endswith(suffix)]
        if matching:
            return {os.path.join(path, name): [] for name in matching}
    raise _index_error(f"the folder {path} has no {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]} file", None)


def _files_of_index(path: str) -> dict[str, list[str]]:
    """Return the files that an index lists, as paths in the folder of the index."""
    data = read_bytes(path)
    try:
        index = json.loads(data[:_MAX_INDEX_BYTES])
    except (ValueError, RecursionError) as exc:
        raise _index_error(f"{path} is not JSON: {exc}", _FORMAT_HELP) from None
    where = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(where, dict) or not all(isinstance(name, str) for name in where.values()):
        raise _index_error(f"{path} has no map `weight_map` from names to files", _FORMAT_HELP)
    files: dict[str, list[str]] = {}
    for key, name in where.items():
        if name != os.path.basename(name) or name in ("", os.curdir, os.pardir) or not name.endswith(".safetensors"):
            raise _index_error(f"{path}: `{name}` is not a .safetensors file in the folder of the index", _FORMAT_HELP)
        files.setdefault(os.path.join(os.path.dirname(path), name), []).append(key)
    return files


def _index_error(message: str, help: str | None) -> CompileError:
    return CompileError(error("E0003", message, help=help))

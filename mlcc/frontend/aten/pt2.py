"""`.pt2` files: exported programs as `torch.export.save` writes them, read without torch and without pickle.

The archive is a zip of JSON and raw weights, as PyTorch 2.9 and later write it (schema 8); 2.8 and older pickle the
weights, and are rejected. Files are untrusted: `mlcc.runtime.npz` validates the archive,
`mlcc.frontend.aten.schema` the program.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mlcc.errors import CompileError, error
from mlcc.files import map_file
from mlcc.frontend.aten.graph import Program, Weight
from mlcc.frontend.aten.schema import (
    Malformed,
    dtype_name,
    graph_of,
    input_of,
    output_of,
    range_of,
    read_extent,
    typed_field,
)  # fmt: skip
from mlcc.frontend.aten.symbols import infix_extent
from mlcc.ir.dtypes import DType
from mlcc.ir.tensor_data import storage_dtype
from mlcc.runtime.npz import Archive, Damaged

if TYPE_CHECKING:
    from zipfile import ZipInfo

    import numpy as np

SCHEMA_MAJOR = 8  # of the schema that is read
MAX_PROGRAM_BYTES = 512 << 20  # bytes of JSON
MAX_NODES = 400_000
_MAX_CONFIG_BYTES = 256 << 20
_MAX_RANK = 32
_WRITE_HELP = "write one with torch.export.save(torch.export.export(model, inputs), path)"


def read_pt2(path: str, model: str | None = None) -> Program:
    """Read the program in a `.pt2` file; of several, the one named `model`. Weights are read on demand.

    Raises CompileError: E0001 for unreadable files, E1010 for damaged ones, E1011 for files that an older PyTorch wrote
    or pickled, E1012 for files that are too large.
    """
    try:
        data = map_file(path)
        if bytes(data[:2]) != b"PK":
            raise CompileError(error("E1010", f"{path} is not a .pt2 file", help=_WRITE_HELP))
        return _Reader(path, Archive(data), model).program()
    except (Damaged, Malformed) as problem:
        raise _damaged(path, str(problem)) from None
    except RecursionError:
        raise _damaged(path, "it is nested too deeply") from None


def _damaged(path: str, why: str, help: str | None = None) -> CompileError:
    return CompileError(error("E1010", f"cannot read {path}: {why}", help=help))


def _older(path: str, what: str) -> CompileError:
    name = os.path.basename(path)
    help = (
        "if you trust the file, save it again with PyTorch 2.9 or later: "
        f"torch.export.save(torch.export.load({name!r}), {name.removesuffix('.pt2') + '-new.pt2'!r})"
    )
    return CompileError(error("E1011", f"cannot read {path}: {what}", help=help))


class _Reader:
    """Reads one program of an archive. Raises Damaged or Malformed for unsound files."""

    def __init__(self, path: str, archive: Archive, model: str | None) -> None:
        self.path, self.archive = path, archive
        roots = {name.partition("/")[0] for name in archive.members}
        self.root = min(roots) if len(roots) == 1 else ""
        self.model = self._model(model)

    def _model(self, wanted: str | None) -> str:
        """The name of the program in the archive."""
        files = {name.rpartition("/")[2] for name in self.archive.members}
        if "serialized_exported_program.json" in files:
            raise _older(self.path, "it was written by PyTorch 2.7 or earlier")
        if "data.pkl" in files:
            raise _damaged(
                self.path, "it is a file of torch.save or torch.jit.save, not an exported program", _WRITE_HELP
            )
        prefix = f"{self.root}/models/"
        models = sorted(n[len(prefix) : -len(".json")] for n in self.archive.members if n.startswith(prefix))
        if not models:
            raise Damaged("it holds no exported program (`models/*.json`)")
        if wanted is None and len(models) > 1 or wanted is not None and wanted not in models:
            listed = ", ".join(f"`{m[:60]}`" for m in models[:8])
            raise _damaged(self.path, f"it holds the programs {listed}", "name the one to read")
        return wanted or models[0]

    def program(self) -> Program:
        """The program."""
        document = self._json(f"models/{self.model}.json", MAX_PROGRAM_BYTES, MAX_NODES)
        version = typed_field(typed_field(document, "schema_version", dict), "major", int)
        if version < SCHEMA_MAJOR:
            raise _older(self.path, f"its schema is version {version}, but mlcc reads version {SCHEMA_MAJOR}")
        if version > SCHEMA_MAJOR:
            raise Malformed(f"its schema is version {version}, but mlcc reads version {SCHEMA_MAJOR}")
        module = typed_field(document, "graph_module", dict)
        signature = typed_field(module, "signature", dict)
        ranges = typed_field(document, "range_constraints", dict)
        program = Program(
            os.path.basename(self.path),
            graph_of(typed_field(module, "graph", dict)),
            tuple(input_of(spec) for spec in typed_field(signature, "input_specs", list)),
            tuple(output_of(spec) for spec in typed_field(signature, "output_specs", list)),
            {
                **self._weights("data/weights", f"{self.model}_weights_config.json"),
                **self._weights("data/constants", f"{self.model}_constants_config.json"),
            },
            {str(infix_extent(name)): range_of(given) for name, given in ranges.items() if isinstance(given, dict)},
        )
        _check_signature(program)
        return program

    def _json(self, name: str, largest: int, most: int | None = None) -> dict[str, Any]:
        """A JSON file of the archive."""
        entry = self.archive.members.get(f"{self.root}/{name}")
        if entry is None:
            raise Damaged(f"it has no `{name}`")
        if entry.file_size > largest:
            raise CompileError(
                error("E1012", f"{self.path}: `{name}` has {entry.file_size} bytes; at most {largest} are read")
            )
        text = b"".join(self.archive.unpacked(entry))
        if most is not None and text.count(b'"target"') > most:
            raise CompileError(error("E1012", f"{self.path}: the program has more than {most} nodes"))
        try:
            document = json.loads(text)
        except ValueError:
            raise Damaged(f"`{name}` is not JSON") from None
        if not isinstance(document, dict):
            raise Damaged(f"`{name}` is not a JSON object")
        return document

    # ------------------------------------------------------------ weights

    def _weights(self, folder: str, config: str) -> dict[str, Weight]:
        """The weights that a configuration lists."""
        if f"{self.root}/{folder}/{config}" not in self.archive.members:
            if f"{self.root}/{folder}/{self.model}.pt" in self.archive.members:
                raise _older(self.path, "its weights are pickled, as PyTorch 2.8 did")
            raise Damaged(f"it has no `{folder}/{config}`")
        entries = typed_field(self._json(f"{folder}/{config}", _MAX_CONFIG_BYTES), "config", dict)
        return {key: self._weight(key, folder, entry) for key, entry in entries.items()}

    def _weight(self, key: str, folder: str, given: Any) -> Weight:
        if typed_field(given, "use_pickle", bool):
            is_object = given.get("tensor_meta") is None
            what = "an object" if is_object else "a tensor"
            help = "export the model with plain tensors instead"
            raise CompileError(
                error(
                    "E1011",
                    f"cannot read {self.path}: `{key}` is {what} of a custom class, which is pickled",
                    help=help,
                )
            )
        meta = typed_field(given, "tensor_meta", dict)
        shape, strides = _integers(meta, "sizes"), _integers(meta, "strides")
        offset = _integer(meta.get("storage_offset"))
        is_sound = len(strides) == len(shape) <= _MAX_RANK and min((offset, *shape, *strides), default=0) >= 0
        if not is_sound or math.prod(max(n, 1) for n in shape) >= 1 << 50 or max((0, *strides)) >= 1 << 50:
            raise Malformed(
                f"the weight `{key}` has the invalid shape {list(shape)[:8]} or strides {list(strides)[:8]}"
            )
        storage = f"{folder}/{typed_field(given, 'path_name', str)}"
        dtype = dtype_name(meta)
        return Weight(
            dtype, shape, self._loader(key, storage, dtype, shape, strides, offset), storage, (*strides, offset)
        )

    def _loader(
        self, key: str, storage: str, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
    ) -> Callable[[], np.ndarray]:
        """Return the function that reads a weight, after checking its location in the file."""
        entry = self.archive.members.get(f"{self.root}/{storage}")
        if entry is None:
            raise Damaged(f"the weight `{key}` is stored in `{storage}`, which is missing")
        try:
            kind, size = _storage_type(dtype)
        except ValueError:
            return _failing_loader(self.path, f"the weight `{key}` is {dtype}, which mlcc does not support")
        end = 0 if 0 in shape else 1 + offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        if end * size > entry.file_size:
            raise Damaged(f"the weight `{key}` reaches past the end of `{storage}`")

        def load() -> np.ndarray:
            import numpy as np

            try:
                flat = np.frombuffer(self._content(entry, end * size), kind, end) if end else np.empty(0, kind)
            except Damaged as problem:
                raise _damaged(self.path, str(problem)) from None
            steps = [s * size for s in strides]
            return np.lib.stride_tricks.as_strided(flat[offset:], shape, steps, writeable=False)

        return load

    def _content(self, entry: ZipInfo, needed: int) -> Any:
        """Return the bytes of a member: mapped from the file, or unpacked if that is not much more than `needed`."""
        if entry.compress_type == 0:
            return self.archive.stored(entry)
        if entry.file_size > max(4 * needed, 1 << 20):
            raise Damaged(f"`{entry.filename}` unpacks to {entry.file_size} bytes, of which {needed} are used")
        return b"".join(self.archive.unpacked(entry))


def _storage_type(dtype: str) -> tuple[str, int]:
    """Return the NumPy type that stores a weight's elements, and its size in bytes. Raises ValueError for others."""
    if dtype in ("complex64", "complex128"):
        return dtype, int(dtype.removeprefix("complex")) // 8
    element = DType.of(dtype)
    return storage_dtype(element), element.bytes


def _failing_loader(path: str, why: str) -> Callable[[], Any]:
    def load() -> Any:
        raise _damaged(path, why)

    return load


def _check_signature(program: Program) -> None:
    """Raise Malformed if the signature does not match the graph and the weights."""
    inputs = program.inputs
    if len(inputs) != len(program.graph.inputs) or len(program.outputs) != len(program.graph.outputs):
        raise Malformed("the inputs or outputs of the signature differ from those of the graph")
    for given, name in zip(inputs, program.graph.inputs, strict=True):
        if name and given.value != name:
            raise Malformed(f"the signature calls the input `{name}` `{given.value}`")
        if given.kind in ("parameter", "buffer", "constant") and given.target not in program.weights:
            raise Malformed(f"the weight `{given.target}` is missing")
        if given.kind == "custom_obj":
            raise Malformed(f"`{given.target}` is an object of a custom class")


def _integer(value: Any) -> int:
    number = read_extent(value)
    if type(number) is not int:
        raise Malformed("a weight has a symbolic shape")
    return number


def _integers(meta: Any, field: str) -> tuple[int, ...]:
    return tuple(_integer(e) for e in typed_field(meta, field, list))

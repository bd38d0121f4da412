"""`.pt2` files: options of the import, and files that are damaged, of older versions, or made to do harm."""

from __future__ import annotations

import io
import json
import random
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.errors import CompileError, MlccError
from mlcc.frontend import detach_params, from_exported_program, from_pt2
from mlcc.frontend.aten.pt2 import read_pt2
from mlcc.frontend.aten.schema import Malformed, graph_of, range_of

pytestmark = pytest.mark.filterwarnings("ignore")  # what PyTorch says while it exports


@pytest.fixture(scope="module")
def program(torch: Any) -> Any:
    """A small exported program with a symbolic batch."""

    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 3)
            self.register_buffer("count", torch.zeros(3))

        def forward(self, x: Any, flag: bool = True) -> Any:
            y = self.layer(x).relu_()
            self.count.add_(y.sum(0))
            return y, x.shape[0] + 1

    batch = torch.export.Dim("batch", max=32)
    return torch.export.export(Model().eval(), (torch.randn(4, 4), True), dynamic_shapes=({0: batch}, None))


@pytest.fixture(scope="module")
def file(torch: Any, program: Any, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Its .pt2 file."""
    path = tmp_path_factory.mktemp("pt2") / "m.pt2"
    torch.export.save(program, path)
    return path.read_bytes()


def rewritten(file: bytes, change: Callable[[dict[str, bytes]], None], packed: bool = False) -> bytes:
    """The archive with its members changed."""
    with zipfile.ZipFile(io.BytesIO(file)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return made.getvalue()


def with_changed_json(file: bytes, name: str, change: Callable[[Any], Any]) -> bytes:
    """The archive with a JSON member changed."""

    def change_member(members: dict[str, bytes]) -> None:
        key = next(n for n in members if n.endswith(name))
        found = json.loads(members[key])
        members[key] = json.dumps(change(found) or found).encode()

    return rewritten(file, change_member)


def refused(tmp_path: Path, data: bytes) -> str:
    """What reading, translating and loading say of a file that cannot be imported; its first code."""
    path = tmp_path / "m.pt2"
    path.write_bytes(data)
    with pytest.raises(CompileError) as problem:
        from_pt2(path)
    return problem.value.diagnostics[0].code


def test_options_of_the_import_are_followed(torch: Any, program: Any, file: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.pt2"
    path.write_bytes(file)
    module = from_pt2(path, keep_params_as_input=True, dim_names={"x": {0: "n"}})
    main = module["main"]
    assert [p.name for p in main.params] == ["x", "p_layer_weight", "p_layer_bias"]
    assert main.attrs["num_input"] == 1 and list(main.attrs["mutated"]) == ["count"]
    detached, params = detach_params(mlcc.parse(module.script()))
    assert "params" not in detached["main"].attrs and [p.shape for p in params["main"]] == [(3, 4), (3,)]
    run = mlcc.load(mlcc.build(mlcc.parse(detached.script()), target="llvm"))["main"]
    x = torch.randn(5, 4)
    y, number, count = run(x, *params["main"])
    expected = program.module()(x, True)
    np.testing.assert_allclose(y, expected[0].detach(), rtol=1e-5)
    np.testing.assert_allclose(count, expected[0].detach().sum(0), rtol=1e-5)
    assert number == 6
    with pytest.raises(MlccError, match="32"):
        run(torch.randn(40, 4), *params["main"])
    state = from_exported_program(program, keep_state_as_input=True)
    assert [p.name for p in state["main"].params] == ["x", "b_count"]


def test_names_of_extents_that_do_not_fit(program: Any) -> None:
    for names in ({"y.0": "n"}, {"x.5": "n"}, {"x.1": "n"}, {"s999": "n"}, {"x.0": "not a name"}):
        with pytest.raises(CompileError) as problem:
            from_exported_program(program, dim_names=names)
        assert problem.value.diagnostics[0].code == "E1013"
    from_exported_program(program, dim_names={"x": ["batch", None]})


def test_extents_made_of_symbols_are_checked(torch: Any, tmp_path: Path) -> None:
    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any, y: Any) -> Any:
            return x.reshape(2, -1).sum(0) + 1, y[: x.shape[0] // 2] * 2

    k = torch.export.Dim("k", min=1, max=50)
    program = torch.export.export(Model(), (torch.randn(6), torch.randn(9)), dynamic_shapes=({0: 2 * k}, {0: 3 * k}))
    run = mlcc.load(mlcc.build(from_exported_program(program), target="llvm"))["main"]
    for n in (2, 5):
        x, y = torch.randn(2 * n), torch.randn(3 * n)
        for mine, theirs in zip(run(x, y), Model()(x, y), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5)
    with pytest.raises(MlccError):
        run(torch.randn(5), torch.randn(9))


def test_supplied_converters_replace_the_built_in(torch: Any, program: Any) -> None:
    from mlcc.relax import op

    def ours(t: Any, self: Any) -> Any:
        return t.op.nn.relu(t.op.nn.relu(self))

    def theirs(node: Any, importer: Any) -> Any:
        return importer.block_builder.emit(op.nn.relu(op.nn.relu(importer.env[node.args[0]])))

    for supplied in ({"aten.relu": ours}, {"relu.default": theirs}):
        text = from_exported_program(program, custom_convert_map=supplied).script()
        assert text.count("R.nn.relu") == 2


def test_older_and_pickled_files_are_refused(file: bytes, tmp_path: Path) -> None:
    def pickled(found: Any) -> None:
        found["config"]["layer.weight"]["use_pickle"] = True

    def legacy(members: dict[str, bytes]) -> None:
        key = next(n for n in members if n.endswith("weights_config.json"))
        members[key.replace("model_weights_config.json", "model.pt")] = members.pop(key)

    def ancient(members: dict[str, bytes]) -> None:
        members.clear()
        members["serialized_exported_program.json"] = b"{}"

    assert refused(tmp_path, with_changed_json(file, "weights_config.json", pickled)) == "E1011"
    assert refused(tmp_path, rewritten(file, legacy)) == "E1011"
    assert refused(tmp_path, rewritten(file, ancient)) == "E1011"
    assert (
        refused(tmp_path, with_changed_json(file, "model.json", lambda m: m["schema_version"].update(major=7)))
        == "E1011"
    )


def _nodes(model: Any) -> list[Any]:
    return model["graph_module"]["graph"]["nodes"]  # type: ignore[no-any-return]


def _sizes(model: Any) -> list[Any]:
    return model["graph_module"]["graph"]["tensor_values"]["x"]["sizes"]  # type: ignore[no-any-return]


def _weight(config: Any) -> Any:
    return config["config"]["layer.weight"]["tensor_meta"]


DAMAGED: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "cycle": ("model.json", lambda m: _nodes(m).reverse()),
    "twice": ("model.json", lambda m: _nodes(m).append(_nodes(m)[0])),
    "no node": ("model.json", lambda m: _nodes(m).clear()),
    "shape": ("model.json", lambda m: _sizes(m).__setitem__(1, {"as_int": 1 << 70})),
    "expression": ("model.json", lambda m: _sizes(m).__setitem__(0, {"as_expr": {"expr_str": "open('harm', 'w')"}})),
    "signature": ("model.json", lambda m: m["graph_module"]["signature"]["input_specs"].pop()),
    "newer": ("model.json", lambda m: m["schema_version"].update(major=9)),
    "a list": ("model.json", lambda m: [1]),
    "stride": ("weights_config.json", lambda c: _weight(c)["strides"].__setitem__(0, {"as_int": 1 << 40})),
    "negative": ("weights_config.json", lambda c: _weight(c)["storage_offset"].update(as_int=-4)),
    "offset": ("weights_config.json", lambda c: _weight(c)["storage_offset"].update(as_int=9)),
    "absurd": ("weights_config.json", lambda c: _weight(c)["sizes"].__setitem__(0, {"as_int": 1 << 60})),
    "dtype": ("weights_config.json", lambda c: _weight(c).update(dtype=77)),
    "outside": ("weights_config.json", lambda c: c["config"]["layer.weight"].update(path_name="../../../etc/passwd")),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files_are_refused(file: bytes, tmp_path: Path, name: str) -> None:
    where, change = DAMAGED[name]
    assert refused(tmp_path, with_changed_json(file, where, change)) in ("E1010", "E1002")


def test_archives_that_are_none(file: bytes, tmp_path: Path) -> None:
    assert refused(tmp_path, b"") == "E1010"
    assert refused(tmp_path, b"PK\x03\x04") == "E1010"
    assert refused(tmp_path, file[: len(file) // 2]) == "E1010"
    assert refused(tmp_path, rewritten(file, lambda m: m.clear())) == "E1010"


def test_weights_in_strides_and_packed(torch: Any, tmp_path: Path) -> None:
    base = torch.randn(6, 8)

    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("part", base[1:3, ::2])
            self.register_buffer("turned", base.t())
            self.register_buffer("narrow", torch.randn(3).to(torch.bfloat16))

        def forward(self, x: Any) -> Any:
            return x @ self.part, self.turned @ base[:, :1] * 1, self.narrow

    path = tmp_path / "m.pt2"
    torch.export.save(torch.export.export(Model(), (torch.randn(1, 2),)), path)
    for _ in range(2):
        weights = read_pt2(str(path)).weights
        np.testing.assert_array_equal(weights["part"].load(), base[1:3, ::2])
        np.testing.assert_array_equal(weights["turned"].load(), base.t())
        assert weights["narrow"].load().dtype == np.uint16 and weights["narrow"].dtype == "bfloat16"
        path.write_bytes(rewritten(path.read_bytes(), lambda m: None, packed=True))


def test_decompression_bombs_are_refused(file: bytes, tmp_path: Path) -> None:
    def blown_up(members: dict[str, bytes]) -> None:
        key = next(n for n in members if n.endswith("weight_0"))
        members[key] = bytes(64 << 20)

    def many(members: dict[str, bytes]) -> None:
        key = next(n for n in members if n.endswith("model.json"))
        members[key] = members[key].replace(
            b'"nodes": [', b'"nodes": [' + b'{"target": "torch.ops.aten.relu.default"},' * 10**6
        )

    start = time.monotonic()
    assert refused(tmp_path, rewritten(file, blown_up, packed=True)) == "E1010"
    assert refused(tmp_path, rewritten(file, many, packed=True)) == "E1012"
    assert time.monotonic() - start < 20


def test_mutated_files_end_in_a_module_or_a_diagnostic(file: bytes, tmp_path: Path) -> None:
    """Bytes and values changed at random: a module, or a diagnostic."""
    source = random.Random(1)
    path = tmp_path / "m.pt2"
    for _ in range(150):
        data = mutated_bytes(file, source) if source.random() < 0.3 else mutated_values(file, source)
        path.write_bytes(data)
        try:
            from_pt2(path)
        except CompileError as problem:
            assert all(d.code and d.code.startswith(("E0", "E1")) for d in problem.diagnostics)


def mutated_bytes(file: bytes, source: random.Random) -> bytes:
    """A few bytes changed, cut out or doubled."""
    data = bytearray(file)
    for _ in range(source.randint(1, 4)):
        at = source.randrange(len(data))
        match source.randrange(3):
            case 0:
                data[at] ^= 1 << source.randrange(8)
            case 1:
                del data[at : at + source.randint(1, 40)]
            case _:
                data[at:at] = data[at : at + source.randint(1, 40)]
    return bytes(data)


def mutated_values(file: bytes, source: random.Random) -> bytes:
    """Some values in the program or in the list of weights replaced."""

    def change(found: Any) -> None:
        for _ in range(source.randint(1, 3)):
            holder, key = source.choice(json_values(found))
            holder[key] = source.choice(
                [None, -1, 0, 1 << 62, 1 << 80, "x", "", [], {}, True, 0.5, {"as_name": "x"}, {"as_int": 3}, "s77*",
                 {"as_tensor": {"name": "x"}}, [{"as_int": 2}], "torch.ops.aten.add.Tensor",
                 source.choice(json_values(found))[0]]
            )  # fmt: skip
            try:
                json.dumps(found)
            except ValueError:  # it holds itself
                holder[key] = None

    return with_changed_json(file, source.choice(["model.json", "weights_config.json"]), change)


def json_values(value: Any) -> list[tuple[Any, Any]]:
    """All values in nested JSON, as what holds them and where."""
    found: list[tuple[Any, Any]] = []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        found.append((value, key))
        found += json_values(part)
    return found


def test_numbers_that_are_no_extents() -> None:
    for field in ("sym_int_values", "sym_float_values"):
        with pytest.raises(Malformed, match=field):
            graph_of({"tensor_values": {}, field: 3})
    assert range_of({"min_val": 2, "max_val": 1 << 63}) == (2, None)
    with pytest.raises(Malformed, match="no extent"):
        range_of({"min_val": 1 << 80, "max_val": None})

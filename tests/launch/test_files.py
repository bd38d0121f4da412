"""Artifacts with a launch plan as files: what is written, and what is read back of files that are not as they were."""

from __future__ import annotations

import contextlib
import io
import json
import random
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.array_files import npz_bytes
from mlcc.cli.main import run as command
from mlcc.errors import CompileError, LoadError, MlccError
from mlcc.runtime.launch.device import Device
from mlcc.runtime.launch.files import read_contents
from mlcc.runtime.loader import read_manifest
from mlcc.targets.cuda.artifact import CudaArtifact
from mlcc.targets.cuda.ptxas import find_ptxas
from mlcc.targets.emulate.device import EmulatedDevice
from tests.launch.texts import MLP, TARGET, built

WITH_CONSTANT = """
@I.ir_module
class Module:
    @T.prim_func
    def add(x: T.Buffer((20,), "float32"), y: T.Buffer((20,), "float32"), z: T.Buffer((20,), "float32")):
        for b in T.thread_binding(20, thread="threadIdx.x"):
            with T.block("Z"):
                v = T.axis.spatial(20, b)
                z[v] = x[v] + y[v]

    @R.function
    def main(x: R.Tensor((20,), "float32")) -> R.Tensor((20,), "float32"):
        cls = Module
        a = R.call_tir(cls.add, (x, metadata["relax.expr.Constant"][0]), out_sinfo=R.Tensor((20,), "float32"))
        return a
"""
DATA = np.arange(20, dtype=np.float32)
X = np.ones(20, np.float32)


@pytest.fixture(scope="module")
def artifact() -> CudaArtifact:
    module = mlcc.parse(WITH_CONSTANT, data={"relax.expr.Constant[0]": DATA})
    made = mlcc.build(module, target=TARGET, pipeline="")
    assert isinstance(made, CudaArtifact)
    return made


@pytest.fixture(scope="module")
def device(artifact: CudaArtifact) -> Device:
    return EmulatedDevice(artifact.launch.kernels, check=False)


@pytest.mark.parametrize("name", ["k.ptx", "k.mlca"])
def test_files_are_loaded_as_they_were_written(
    artifact: CudaArtifact, device: Device, tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    artifact.save(path)
    exe: Any = mlcc.load(path, device=device)
    np.testing.assert_array_equal(exe["main"](X), X + DATA)
    first = path.read_bytes()
    mlcc.build(mlcc.parse(WITH_CONSTANT, data={"relax.expr.Constant[0]": DATA}), target=TARGET, pipeline="").save(path)
    assert path.read_bytes() == first
    assert str(tmp_path).encode() not in first
    manifest = read_manifest(str(path))
    assert manifest["target"]["arch"] == "sm_80" and manifest["target"]["ptx_isa"] == "7.0"
    assert manifest["target"]["driver"] == "450.36.06" and manifest["constants"] == {"count": 1, "bytes": 80}
    assert list(manifest["kernels"]) == ["add_kernel"] and manifest["prefix"] == "k"


def test_constants_beside_a_ptx(artifact: CudaArtifact, device: Device, tmp_path: Path) -> None:
    path = tmp_path / "k.ptx"
    artifact.save(path)
    with np.load(tmp_path / "k.npz") as arrays:
        stored = {name: arrays[name] for name in arrays.files}
    (key,) = stored
    artifact.save(path)  # what mlcc wrote for this it replaces
    np.savez(tmp_path / "k.npz", **{key: stored[key] + 1})
    with pytest.raises(LoadError, match=r"E0868.*does not match the hash"):
        mlcc.load(path, device=device)
    np.savez(tmp_path / "k.npz")
    with pytest.raises(LoadError, match="E0868"):
        mlcc.load(path, device=device)
    (tmp_path / "k.npz").unlink()
    with pytest.raises(LoadError, match=r"E0868.*k\.npz"):
        mlcc.load(path, device=device)
    with pytest.raises(LoadError, match="beside it"):
        mlcc.load(path.read_bytes(), device=device)
    assert read_manifest(str(path))  # needs no constants


def test_constants_replace_nothing_of_others(artifact: CudaArtifact, device: Device, tmp_path: Path) -> None:
    """An archive of the user's stays as it is, unless it is asked for."""
    mine = tmp_path / "k.npz"
    np.savez(mine, weights=DATA)
    before = mine.read_bytes()
    with pytest.raises(CompileError, match="E0013"):
        artifact.save(tmp_path / "k.ptx")
    assert mine.read_bytes() == before and not (tmp_path / "k.ptx").exists()
    artifact.save(tmp_path / "k.ptx", data=tmp_path / "constants.npz")
    assert mine.read_bytes() == before
    exe: Any = mlcc.load(tmp_path / "k.ptx", device=device)
    np.testing.assert_array_equal(exe["main"](X), X + DATA)
    with pytest.raises(CompileError, match="E0906"):
        artifact.save(tmp_path / "k.ptx", data=tmp_path.parent / "constants.npz")
    artifact.save(tmp_path / "k.ptx", force=True)
    assert mine.read_bytes() != before


def test_constants_of_the_texts_own_archive_are_not_written(tmp_path: Path, device: Device) -> None:
    reference = mlcc.parse(WITH_CONSTANT, data={"relax.expr.Constant[0]": DATA})
    np.savez(tmp_path / "l.npz", more=X, **{"relax.expr.Constant[0]": DATA})
    before = (tmp_path / "l.npz").read_bytes()
    mlcc.build(reference, target=TARGET, pipeline="").save(tmp_path / "l.ptx")
    assert (tmp_path / "l.npz").read_bytes() == before
    exe: Any = mlcc.load(tmp_path / "l.ptx", device=device)
    np.testing.assert_array_equal(exe["main"](X), X + DATA)


def test_a_plan_that_names_data_elsewhere(artifact: CudaArtifact, device: Device, tmp_path: Path) -> None:
    for name in ("../k.npz", "/etc/passwd", "a\0b", ["k.npz"], 7):
        code = artifact.emit("ptx", data="here.npz").replace(b'"here.npz"', json.dumps(name).encode())
        lines = [line for line in code.splitlines(keepends=True) if not line.startswith(b"// mlcc sum")]
        (tmp_path / "k.ptx").write_bytes(b"".join(lines))
        with pytest.raises(LoadError, match="E0869"):
            mlcc.load(tmp_path / "k.ptx", device=device)


def rewritten(data: bytes, change: Any) -> bytes:
    """The archive with its members changed by `change(name, content)`; None drops one."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(made, "w") as new:
        for name in old.namelist():
            content = change(name, old.read(name))
            if content is not None:
                new.writestr(name, content)
    return made.getvalue()


def test_archives_that_mlcc_did_not_write(artifact: CudaArtifact, device: Device) -> None:
    good = artifact.emit("mlca")
    for member in ("manifest.json", "plan.json", "kernels.ptx", "constants/0.npy"):
        with pytest.raises(LoadError):
            mlcc.load(rewritten(good, lambda n, c, m=member: None if n == m else c), device=device)
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(good)) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    with pytest.raises(LoadError, match="compressed"):
        mlcc.load(packed.getvalue(), device=device)
    with pytest.raises(LoadError, match=r"E0868|checksum"):
        mlcc.load(good.replace(DATA.tobytes(), DATA[::-1].tobytes()), device=device)


CHANGES = (
    lambda plan: plan.update(version=99),
    lambda plan: plan.pop("functions"),
    lambda plan: plan["functions"]["main"].update(workspace="nobody"),
    lambda plan: plan["functions"]["main"]["steps"][0].update(program="nobody"),
    lambda plan: plan["functions"]["main"]["steps"][0].update(do="format"),
    lambda plan: plan["functions"]["main"]["steps"][0]["args"].pop(),
    lambda plan: plan["functions"]["main"]["steps"][0]["args"].__setitem__(0, ["arg", 7, 0]),
    lambda plan: plan["functions"]["main"]["steps"][0]["args"].__setitem__(0, ["const", -1, 0]),
    lambda plan: plan["functions"]["main"]["steps"][0]["args"].__setitem__(0, ["arg", 0, ["+", 1]]),
    lambda plan: plan["programs"]["add"]["steps"][0].update(kernel="nobody"),
    lambda plan: plan["programs"]["add"]["steps"][0]["args"].append(1),
    lambda plan: plan["programs"]["add"]["steps"][0].update(grid=[1, 1]),
    lambda plan: plan["kernels"]["add_kernel"].update(params=["ptr", "complex"]),
    lambda plan: plan["constants"][0].update(bytes="many"),
    lambda plan: plan["functions"]["main"].update(steps=None),
)


@pytest.mark.parametrize("change", CHANGES)
def test_plans_that_mlcc_did_not_write(artifact: CudaArtifact, device: Device, change: Any) -> None:
    def with_plan(name: str, content: bytes) -> bytes:
        if name != "plan.json":
            return content
        plan = json.loads(content)
        change(plan)
        return json.dumps(plan).encode()

    with pytest.raises(LoadError, match="E0869"):
        mlcc.load(rewritten(artifact.emit("mlca"), with_plan), device=device)


VALUES = (None, -1, 0, 1 << 70, 1e9, "nobody", [], {}, True, [None], ["+", 1], {"a": 1}, "\0\ud800")


def json_paths(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every key and index of a JSON tree, by the way there."""
    for key, inner in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield (*path, key)
        yield from json_paths(inner, (*path, key))


def test_manifests_and_plans_with_other_values(
    artifact: CudaArtifact, device: Device, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Any key that is missing, or says something else, is a diagnostic, in `inspect` as well."""
    artifact.save(tmp_path / "k.ptx")
    lines = (tmp_path / "k.ptx").read_bytes().split(b"\n")
    trees = [json.loads(line.split(b": ", 1)[1]) for line in lines[:2]]
    rng = random.Random(4)
    for number, tree in enumerate(trees):
        for path in json_paths(tree):
            changed = json.loads(json.dumps(trees))
            inner = changed[number]
            for key in path[:-1]:
                inner = inner[key]
            if rng.random() < 0.3:
                del inner[path[-1]]
            else:
                inner[path[-1]] = rng.choice(VALUES)
            head = [
                b"// mlcc %s: %s" % (w, json.dumps(t).encode())
                for w, t in zip((b"manifest", b"plan"), changed, strict=True)
            ]
            (tmp_path / "k.ptx").write_bytes(b"\n".join([*head, lines[2], *lines[4:]]))
            with contextlib.suppress(MlccError):
                mlcc.load(tmp_path / "k.ptx", device=device)
            for form in ([], ["--json"]):
                assert command(["inspect", str(tmp_path / "k.ptx"), *form]) in (0, 1), path
    assert "bug in mlcc" not in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["ptx", "mlca"])
def test_damaged_files_are_refused_or_run(artifact: CudaArtifact, device: Device, tmp_path: Path, kind: str) -> None:
    """Whatever happens to the bytes, nothing but our errors comes out of reading them."""
    artifact.save(tmp_path / f"k.{kind}")
    good = (tmp_path / f"k.{kind}").read_bytes()
    end = good.index(b"\n", good.index(b"mlcc plan")) if kind == "ptx" else len(good)
    rng = random.Random(7)
    for _ in range(150):
        data = bytearray(good)
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(end)] = rng.randrange(256)
        if rng.random() < 0.2:
            del data[rng.randrange(end) :]
        (tmp_path / f"k.{kind}").write_bytes(data)
        with contextlib.suppress(MlccError):
            mlcc.load(tmp_path / f"k.{kind}", device=device)


@pytest.mark.parametrize("kind", ["ptx", "mlca"])
def test_a_file_that_ends_early(artifact: CudaArtifact, tmp_path: Path, kind: str) -> None:
    """Wherever it was cut off: damage is named as such, in no words of Python's, with a way out."""
    path = tmp_path / f"k.{kind}"
    artifact.save(path)
    good = path.read_bytes()
    ends = {0, 1, 3, len(good) - 1, *range(0, len(good), max(len(good) // 60, 1))}
    ends |= {i for i in range(len(good)) if good[i : i + 1] == b"\n" or good.startswith(b"PK", i)}
    for end in sorted(ends):
        path.write_bytes(good[:end])
        with pytest.raises(LoadError, match="E0869") as caught:
            mlcc.load(path, emulate=True)
        (found,) = caught.value.diagnostics
        assert found.help and "Error" not in found.message and "BadZipFile" not in found.message


@pytest.mark.parametrize("kind", ["ptx", "mlca"])
def test_any_flipped_bit_is_noticed(artifact: CudaArtifact, tmp_path: Path, kind: str) -> None:
    """No change goes unseen, but in what nobody reads of a zip (dates, versions, attributes), and in what says that a
    .ptx has a checksum."""
    path = tmp_path / f"k.{kind}"
    artifact.save(path)
    good = path.read_bytes()
    rng = random.Random(11)
    found = 0
    places = [rng.randrange(len(good)) for _ in range(200)]
    directory = range(good.index(b"PK\x01\x02"), len(good)) if kind == "mlca" else ()
    for place in [*places, *directory]:
        data = bytearray(good)
        data[place] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        try:
            read_contents(bytes(data), str(path))
        except LoadError as exc:
            assert {d.code for d in exc.diagnostics} <= {"E0868", "E0869"}
            found += 1
    assert found > 190


def test_other_files_are_refused(artifact: CudaArtifact, tmp_path: Path) -> None:
    (tmp_path / "x.mlca").write_bytes(npz_bytes({"x": X}))
    (tmp_path / "y.ptx").write_text(artifact.code.text)  # as any tool writes it
    (tmp_path / "z.mlca").write_text(WITH_CONSTANT)
    for name, said in (("x.mlca", "mlcc did not make it"), ("y.ptx", "mlcc did not write"), ("z.mlca", "no manifest")):
        with pytest.raises(LoadError, match=rf"E0869.*{name}.*{said}"):
            mlcc.load(tmp_path / name)


@pytest.mark.parametrize("name", ["k.ptx", "k.mlca"])
def test_files_are_emulated(artifact: CudaArtifact, tmp_path: Path, name: str) -> None:
    artifact.save(tmp_path / name)
    exe: Any = mlcc.load(tmp_path / name, emulate=True)
    np.testing.assert_array_equal(exe["main"](X), X + DATA)
    if name == "k.mlca":
        exe = mlcc.load((tmp_path / name).read_bytes(), emulate=True, check=False)
        np.testing.assert_array_equal(exe["main"](X), X + DATA)


def test_a_ptx_changed_by_hand(artifact: CudaArtifact, device: Device, tmp_path: Path) -> None:
    path = tmp_path / "k.ptx"
    artifact.save(path)
    path.write_bytes(path.read_bytes() + b"// mine\n")
    with pytest.raises(LoadError, match=r"E0869.*// mlcc sum"):
        mlcc.load(path, device=device)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line for line in lines if not line.startswith(b"// mlcc sum")))
    exe: Any = mlcc.load(path, device=device)
    np.testing.assert_array_equal(exe["main"](X), X + DATA)


def changed_member(change: Callable[[dict[str, Any]], None], member: str) -> Callable[[str, bytes], bytes]:
    def changed(name: str, content: bytes) -> bytes:
        if name != member:
            return content
        facts = json.loads(content)
        change(facts)
        return json.dumps(facts).encode()

    return changed


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (changed_member(lambda m: m["mlcc"].update(version="0.0.9"), "manifest.json"), r"made by mlcc 0\.0\.9"),
        (lambda name, content: None if name == "kernels.mlc" else content, "does not contain the text"),
        (lambda name, content: content.replace(b"20", b"21") if name == "kernels.mlc" else content, "not match its"),
        (lambda name, content: content[9:] if name == "kernels.mlc" else content, "cannot be read|not match its"),
        (lambda name, content: b"\xff\0" if name == "kernels.mlc" else content, "cannot be read"),
    ],
)  # fmt: skip
def test_what_cannot_be_emulated_runs(artifact: CudaArtifact, device: Device, change: Any, said: str) -> None:
    data = rewritten(artifact.emit("mlca"), change)
    with pytest.raises(LoadError, match=f"E0748.*({said})"):
        mlcc.load(data, emulate=True)
    exe: Any = mlcc.load(data, device=device)
    np.testing.assert_array_equal(exe["main"](X), X + DATA)


def test_command_line_writes_and_runs_artifacts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "k.mlc"
    text.write_text(MLP)
    base = ["compile", str(text), "-t", TARGET, "-p", ""]
    assert command(base) == 0 and (tmp_path / "k.ptx").read_text().startswith("// mlcc manifest: ")
    for emit, name in (("ptx", "a.txt"), ("llvm-ir", "b.txt"), ("mlca", "c.txt")):
        assert command([*base, "--emit", emit, "-o", str(tmp_path / name)]) == 0
    assert (tmp_path / "b.txt").read_text().count("ptx_kernel") == 2
    assert command(["inspect", str(tmp_path / "c.txt")]) == 0
    shown = capsys.readouterr().out
    assert "main(x: float32(n,), y: float32(n,)) -> float32(n,)" in shown
    assert "kernel add_kernel: 64 x 1 x 1 threads, 0 bytes of shared memory" in shown
    assert ("registers, no spills" in shown) == (find_ptxas() is not None)
    assert command(["inspect", "--json", str(tmp_path / "k.ptx")]) == 0
    assert json.loads(capsys.readouterr().out)["kernels"]["add_kernel"]["block"] == [64, 1, 1]
    assert command([*base, "-o", str(tmp_path / "k.o")]) == 1
    assert "E0755" in capsys.readouterr().err
    assert command([*base, "--header", str(tmp_path / "k.h")]) == 2


def test_standard_output_has_no_place_for_constants(artifact: CudaArtifact) -> None:
    with pytest.raises(CompileError, match="E0755"):
        artifact.save("-", "ptx")


def test_without_a_device_running_is_refused_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlcc.runtime.cuda
    from mlcc.errors import MachineError, error

    def none() -> Device:
        raise MachineError(error("E0860", "no CUDA device can be used: none here"))

    monkeypatch.setattr(mlcc.runtime.cuda, "default_device", none)
    built(MLP).save(tmp_path / "k.ptx")
    assert command(["run", str(tmp_path / "k.ptx")]) == 6
    assert "E0860" in capsys.readouterr().err

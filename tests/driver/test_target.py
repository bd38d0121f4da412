"""Target strings and facts about the machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pytest

from mlcc.errors import CompileError
from mlcc.machine import host, target
from mlcc.machine.gpu_tables import GpuFacts
from mlcc.machine.tags import TAGS
from mlcc.machine.target import CudaTarget, LlvmTarget, Target


@pytest.mark.parametrize(
    ("text", "target", "printed"),
    [
        ("llvm", Target(), "llvm"),
        (" llvm{} ", Target(), "llvm"),
        ("llvm{cpu=native}", Target(cpu="native"), "llvm{cpu=native}"),
        ("llvm{triple=aarch64-linux-gnu}", Target(triple="aarch64-linux-gnu"), "llvm{triple=aarch64-linux-gnu}"),
        ("llvm{num_cores=2}", Target(num_cores=2), "llvm{num-cores=2}"),
        ("llvm{features=+avx2}", Target(features=("+avx2",)), 'llvm{features=["+avx2"]}'),
        (
            'llvm{cpu=x86-64 features=["+avx2", "-fma"]}',
            Target(cpu="x86-64", features=("+avx2", "-fma")),
            'llvm{cpu=x86-64 features=["+avx2","-fma"]}',
        ),
        ("llvm -mcpu=skylake -num-cores 2", Target(cpu="skylake", num_cores=2), "llvm{cpu=skylake num-cores=2}"),
        ("llvm --num-cores=1", Target(num_cores=1), "llvm{num-cores=1}"),
        ("llvm -keys=cpu -mtriple=riscv64-linux-gnu", Target(triple="riscv64-linux-gnu"), None),
        ("llvm -mattr=+avx2,+fma", Target(features=("+avx2", "+fma")), None),
        ('{"kind": "llvm", "mattr": ["+avx2"], "num-cores": 3}', Target(features=("+avx2",), num_cores=3), None),
        ("cuda{arch=sm_90}", Target("cuda", arch="sm_90"), "cuda{arch=sm_90}"),
        ("cuda -arch=sm_80", Target("cuda", arch="sm_80"), "cuda{arch=sm_80}"),
        ("cuda", Target("cuda"), "cuda"),
        ("aws/cpu/c5.large", Target(cpu="skylake-avx512", num_cores=1), None),
        (
            " nvidia/tesla-p100 ",
            CudaTarget(arch="sm_75", sm_count=56, max_threads=1024, shared_bytes=49152, registers=65536, l2=4 << 20),
            "cuda{arch=sm_75 sm-count=56 max-threads=1024 shared-bytes=49152 registers=65536 l2=4194304}",
        ),
    ],
)
def test_reads_and_prints(text: str, target: Target, printed: str | None) -> None:
    assert Target.parse(text) == target
    assert Target.parse(str(target)) == target
    assert printed is None or str(target) == printed


def test_tags_are_targets() -> None:
    made = {name: Target.parse(name) for name in TAGS}
    assert all(GpuFacts.of(t).sm_count == t.sm_count for t in made.values() if isinstance(t, CudaTarget))
    assert made["nvidia/geforce-rtx-3090"].arch == "sm_86"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("", "E0790", "expected a name"),
        ("llvm,llvm", "E0790", "unexpected text"),
        ("lvm", "E0791", "did you mean `llvm`"),
        ("rocm", "E0791", "the targets are"),
        ("nvidia/tesla-p10", "E0791", "did you mean `nvidia/tesla-p100`"),
        ("intel/i7", "E0791", "known are GPUs"),
        ("llvm{cpus=native}", "E0792", "did you mean `cpu`"),
        ("llvm{arch=sm_90}", "E0792", "no option `arch`"),
        ("cuda{arch=90}", "E0793", "sm_90"),
        ("llvm{num-cores=two}", "E0793", "an integer expected"),
        ("llvm -num-cores two", "E0793", "an integer expected"),
        ("llvm{num-cores=-1}", "E0793", "number of cores"),
        ("llvm{vector-width=100}", "E0793", "`vector-width`"),
        ('llvm{cpu="a b"}', "E0793", "a word of"),
        ("llvm{features=avx2}", "E0793", "`+avx2`"),
        ("llvm -mcpu=x y", "E0790", "found `y`"),
        ("llvm -mcpu='x", "E0790", "no closing quotation"),
        ("{", "E0790", "not a target"),
        ('{"kind": 3}', "E0790", "not a target"),
        ("llvm{cpu}", "E0793", "a word or string expected"),
    ],
)
def test_wrong_targets_are_refused(text: str, code: str, said: str) -> None:
    with pytest.raises(CompileError) as caught:
        Target.parse(text)
    assert caught.value.diagnostics[0].code == code
    assert said in str(caught.value)


def test_defaults_are_written_out() -> None:
    assert Target.parse("llvm{triple=x86_64-linux-gnu}").resolved().cpu == "x86-64"
    assert Target.parse("llvm{triple=aarch64-linux-gnu}").resolved().cpu == "generic"
    assert Target.parse("cuda").resolved().arch == "sm_80"
    assert Target.parse("llvm").resolved().triple == host.triple()


def test_native_names_this_cpu_and_keeps_the_features_given() -> None:
    made = Target.parse("llvm{cpu=native features=-avx512f}").resolved()
    assert made.cpu == host.cpu_name() != "native"
    assert made.features[-1] == "-avx512f"
    assert set(host.cpu_features()) < set(made.features)


def test_cores_are_within_affinity() -> None:
    assert 1 <= host.num_cores() <= 4096


def test_quota_is_the_least_of_all_groups(tmp_path: Path) -> None:
    group = tmp_path / "cgroup" / "a" / "b"
    group.mkdir(parents=True)
    (group / "cpu.max").write_text("max 100000\n")
    (group.parent / "cpu.max").write_text("250000 100000\n")
    own = tmp_path / "own"
    own.write_text("0::/a/b\n")
    assert host.cgroup_quota(str(tmp_path / "cgroup"), str(own)) == 2.5
    own.write_text("4:cpu,cpuacct:/a/b\n")
    old = tmp_path / "cgroup" / "cpu" / "a"
    old.mkdir(parents=True)
    (old / "cpu.cfs_quota_us").write_text("150000\n")
    (old / "cpu.cfs_period_us").write_text("100000\n")
    assert host.cgroup_quota(str(tmp_path / "cgroup"), str(own)) == 1.5
    assert host.cgroup_quota(str(tmp_path / "none"), str(tmp_path / "none")) is None


def test_caches_are_read_as_linux_lays_them_out(tmp_path: Path) -> None:
    for index, (kind, level, size) in enumerate([("Data", 1, "48K"), ("Instruction", 1, "32K"), ("Unified", 2, "2M")]):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        (folder / "type").write_text(f"{kind}\n")
        (folder / "level").write_text(f"{level}\n")
        (folder / "size").write_text(f"{size}\n")
        (folder / "coherency_line_size").write_text("64\n")
    assert host.read_caches(str(tmp_path)) == host.Caches(48 << 10, 2 << 20, 2 << 20, 64)
    assert host.read_caches(str(tmp_path / "none")) == host.Caches(*host.DEFAULT_CACHES)
    assert host.caches().l1 > 0


def test_a_class_is_for_one_kind() -> None:
    assert LlvmTarget("llvm", cpu="haswell") == Target(cpu="haswell")
    for wrong in (lambda: CudaTarget("llvm"), lambda: dataclasses.replace(Target(cpu="haswell"), kind="cuda")):
        with pytest.raises(CompileError, match="E0794.*not a target of kind"):
            wrong()


def test_the_names_that_tvm_has_for_options_of_a_target_that_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text that first names a target of an installed package may be in TVM's form."""

    @dataclasses.dataclass(frozen=True)
    class Tiny(Target):
        kind: str = "tiny"
        cpu: str = ""
        tvm_names: ClassVar[Mapping[str, str]] = {"mcpu": "cpu"}

    monkeypatch.setattr(target, "KINDS", dict(target.KINDS))
    monkeypatch.setattr(target, "_register_installed", lambda kind, span: target.KINDS.update(tiny=Tiny))
    assert Target.parse("tiny -mcpu=a7") == Tiny(cpu="a7")

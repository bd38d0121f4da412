"""Objects that are cut off, changed or hostile end in a LoadError; sound ones link to the bits that the ABI asks."""

from __future__ import annotations

import random
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from mlcc.errors import LoadError, MachineError
from mlcc.runtime import elf, image, machine, manifest
from mlcc.runtime.loader import load, read_manifest
from tests.runtime.hand_made import artifact, tensor
from tests.runtime.hand_made import manifest as facts_of

SOURCE = r"""
extern float expf(float);
static int64_t counter = 3;
static const float table[3] = {1, 2, 4};
float (*volatile via)(float) = expf;
int32_t m_f_query(const arg *a, int64_t *out, int32_t all) { out[0] = 0; return 0; }
int32_t m_f_run(const arg *a, const int64_t *symbols, void *workspace) {
    float *y = a[1].t->data, *x = a[0].t->data;
    y[0] = via(x[0]) + table[counter++ % 3];
    return 0;
}
const char *m_f_error(int32_t code) { return "bad"; }
"""
F = {
    "kind": "prim",
    "symbol": "m_f",
    "symbols": [],
    "params": [tensor("x", "float32", [1]), tensor("y", "float32", [1], "out")],
}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return artifact(SOURCE, facts_of({"f": F}), tmp_path_factory.mktemp("elf"))


def parse_and_link(data: bytes) -> None:
    """Everything that loading does, but into a buffer and without a checksum: nothing is executed."""
    manifest.read(manifest.extract(data))
    obj = elf.read_object(data)
    layout = image.plan_layout(obj)
    if layout.end > 1 << 26:
        return  # as large as a real one may be, too large for a test
    memory = bytearray(layout.end)
    image.Linker(obj, layout, 0x7F0000000000, lambda name, weak: 0x7E0000000000).fill(memoryview(memory))


def test_a_sound_object_runs(good: bytes) -> None:
    import numpy as np

    exe = load(good)
    x = np.zeros(1, np.float32)
    assert [float(exe["f"](x)[0]) for _ in range(4)] == [2.0, 3.0, 5.0, 2.0]


def test_every_truncation_is_refused(good: bytes) -> None:
    for length in [*range(200), *range(200, len(good), 97), len(good) - 1]:
        with pytest.raises(LoadError):
            load(good[:length])


def test_every_changed_byte_is_noticed(good: bytes) -> None:
    rng = random.Random(1)
    for _ in range(400):
        data = bytearray(good)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        with pytest.raises(LoadError):
            load(bytes(data))


def mutations(good: bytes, rng: random.Random) -> bytes:
    """Headers, tables and strings changed in ways that a checksum would hide."""
    data = bytearray(good)
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        at = rng.choice((rng.randrange(64), rng.randrange(len(data)), len(data) - 1 - rng.randrange(1200)))
        at = min(max(at, 0), len(data) - 8)
        kind = rng.randrange(4)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            struct.pack_into("<Q", data, at, rng.choice((0, 1, 1 << 31, 1 << 40, 1 << 63, (1 << 64) - 1, len(data))))
        elif kind == 2:
            struct.pack_into("<I", data, at, rng.choice((0, 1, 0xFFFF, 1 << 31, (1 << 32) - 1)))
        else:
            start = rng.randrange(len(data) - 8)
            data[at : at + 8] = data[start : start + 8]
    if rng.random() < 0.1:
        del data[rng.randrange(len(data)) :]
    return bytes(data)


def test_mutated_objects_never_crash_the_linker(good: bytes, fuzz_seconds: float) -> None:
    import time

    rng = random.Random(7)
    refused = linked = 0
    until = time.monotonic() + min(fuzz_seconds, 5.0) if fuzz_seconds <= 20 else time.monotonic() + fuzz_seconds
    while time.monotonic() < until:
        data = mutations(good, rng)
        try:
            parse_and_link(data)
            linked += 1
        except LoadError:
            refused += 1
    assert refused > 50 and linked > 50, (refused, linked)


def changed(good: bytes, change: Callable[[bytearray, tuple[elf.Section, ...]], None]) -> bytes:
    data = bytearray(good)
    change(data, elf.read_sections(good))
    return bytes(data)


def header_at(data: bytes, index: int) -> int:
    return int(elf.read_header(bytes(data))[2][6]) + index * elf.SECTION_HEADER.size


def test_code_that_is_writable_or_runs_at_start_is_refused(good: bytes) -> None:
    def writable(data: bytearray, sections: tuple[elf.Section, ...]) -> None:
        text = next(s for s in sections if s.name == ".text")
        struct.pack_into("<Q", data, header_at(data, text.index) + 8, text.flags | elf.WRITE)

    def initialiser(data: bytearray, sections: tuple[elf.Section, ...]) -> None:
        some = next(s for s in sections if s.name == ".data")
        struct.pack_into("<I", data, header_at(data, some.index) + 4, elf.INIT_ARRAY)

    for change, text in ((writable, "both writable and executable"), (initialiser, "start-up code")):
        with pytest.raises(LoadError, match=text):
            parse_and_link(changed(good, change))


def test_relocations_stay_in_their_section(good: bytes) -> None:
    def outside(data: bytearray, sections: tuple[elf.Section, ...]) -> None:
        rela = next(s for s in sections if s.name == ".rela.text")
        text = next(s for s in sections if s.name == ".text")
        struct.pack_into("<Q", data, rela.offset, text.size - 3)

    with pytest.raises(LoadError, match="outside its section"):
        parse_and_link(changed(good, outside))


def test_an_unknown_symbol_is_named(tmp_path: Path) -> None:
    source = SOURCE.replace("expf", "tmm16_update")
    with pytest.raises(LoadError, match="tmm16_update"):
        load(artifact(source, facts_of({"f": F}), tmp_path))
    with pytest.raises(LoadError, match="`getpid`"):
        load(
            artifact(
                SOURCE.replace("float expf(float)", "float getpid(float)").replace("expf", "getpid"),
                facts_of({"f": F}),
                tmp_path,
            )
        )


def test_allowed_symbols_come_from_the_process(tmp_path: Path) -> None:
    source = SOURCE.replace("expf", "sinhf")
    assert load(artifact(source, facts_of({"f": F}), tmp_path))
    source = SOURCE.replace("extern float expf(float);", "extern float drand48(float);").replace("expf", "drand48")
    data = artifact(source, facts_of({"f": F}), tmp_path)
    with pytest.raises(LoadError, match="drand48"):
        load(data)
    assert load(data, allow_extern=("drand48",))


def test_other_machines_are_refused(good: bytes, tmp_path: Path) -> None:
    other = "aarch64" if machine.arch() == "x86_64" else "x86_64"
    with pytest.raises(MachineError, match=f"is for {other}, this machine is {machine.arch()}"):
        load(artifact(SOURCE, facts_of({"f": F}, target={"arch": other, "features": []}), tmp_path))
    strange = {"arch": machine.arch(), "features": ["avx512vp2intersect", "fma4"] if other == "aarch64" else ["sve2"]}
    if not {"avx512_vp2intersect", "fma4", "sve2"} & set(machine.cpu_words() or ()):
        with pytest.raises(MachineError, match="CPU features? "):
            load(artifact(SOURCE, facts_of({"f": F}, target=strange), tmp_path))


def test_what_is_no_artifact_says_so(tmp_path: Path) -> None:
    for data in (b"", b"\x7fELF", b"hello" * 100, bytes(1000)):
        with pytest.raises(LoadError, match="not a valid artifact"):
            load(data)
    with pytest.raises(LoadError, match="cannot read"):
        load(tmp_path / "none.o")
    with pytest.raises(LoadError, match="cannot load a int"):
        load(3)
    (tmp_path / "x.o").write_bytes(b"\x7fELF" + bytes(500))
    with pytest.raises(LoadError, match="x.o: not a valid artifact"):
        load(str(tmp_path / "x.o"))
    with pytest.raises(LoadError, match="x.o"):
        read_manifest(str(tmp_path / "x.o"))
    with pytest.raises(LoadError, match="no manifest"):
        load(Path(sys.executable).resolve())


def test_a_manifest_of_another_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="for interface 99"):
        load(artifact(SOURCE, facts_of({"f": F}, mlcc={"abi": 99, "version": "9.9"}), tmp_path))
    with pytest.raises(LoadError, match="`m_g_query` of its manifest is missing"):
        load(artifact(SOURCE, facts_of({"g": {**F, "symbol": "m_g"}}), tmp_path))


@pytest.mark.parametrize(
    "broken",
    [
        {"kind": "what"}, {"kind": "tensor", "dtype": "float33", "shape": []},
        {"kind": "tensor", "dtype": "float32", "shape": ["m"]},
        {"kind": "tensor", "dtype": "float32", "shape": [["!", 1, 2]]},
        {"kind": "tensor", "dtype": "float32", "shape": [1.5]}, {"kind": "tuple", "fields": 3}, [], {"kind": "scalar"},
        {"kind": "tensor", "dtype": "float32", "shape": [[["+", 1]]]},
        {"kind": "tensor", "dtype": "int8", "shape": [1 << 70]},
    ],
)  # fmt: skip
def test_malformed_manifests_are_refused(broken: object) -> None:
    raw = facts_of({"f": {**F, "params": [broken]}})
    with pytest.raises(LoadError, match="not valid"):
        manifest.read(raw)


def test_a_deep_manifest_is_refused() -> None:
    deep: object = 1
    for _ in range(500):
        deep = ["+", deep, 1]
    with pytest.raises(LoadError):
        manifest.read(facts_of({"f": {**F, "params": [tensor("x", "int8", [deep])]}}))


def test_objects_share_one_pool(tmp_path: Path) -> None:
    """Weak symbols of the thread pool: the first object's copy serves all that are loaded later."""
    import numpy as np

    shared = r"""
    int32_t mlcc_pool_v1_test_state __attribute__((weak)) = 100;
    __attribute__((weak, noinline)) int32_t mlcc_pool_v1_test_next(void) { return ++mlcc_pool_v1_test_state; }
    """
    source = shared + SOURCE.replace("via(x[0]) + table[counter++ % 3]", "(float)mlcc_pool_v1_test_next()")
    data = artifact(source, facts_of({"f": F}), tmp_path)
    x = np.zeros(1, np.float32)
    one, two = load(data), load(data)
    assert [float(e["f"](x)[0]) for e in (one, two, one, two)] == [101.0, 102.0, 103.0, 104.0]


# ---------------------------------------------------------------- relocations of the other architecture

ARM = r"""
target triple = "aarch64-unknown-linux-gnu"
@table = internal constant [4 x i64] [i64 1, i64 2, i64 3, i64 4]
@state = internal global [4 x i64] zeroinitializer
@other = external global i64
@entry = internal global ptr @f
declare float @expf(float)
define float @f(float %x, i64 %i) {
  %p = getelementptr i64, ptr @table, i64 %i
  %v = load i64, ptr %p
  %q = getelementptr i64, ptr @state, i64 %i
  store i64 %v, ptr %q
  %o = load i64, ptr @other
  store i64 %o, ptr getelementptr (i8, ptr @state, i64 8)
  %e = load ptr, ptr @entry
  store ptr %e, ptr @state
  %r = call float @expf(float %x)
  ret float %r
}
!llvm.module.flags = !{!0}
!0 = !{i32 8, !"PIC Level", i32 2}
"""


def test_aarch64_relocations_point_where_they_should() -> None:
    """Addresses that the patched instructions form, decoded again."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("aarch64-unknown-linux-gnu")
    made = target.create_target_machine(reloc="pic", codemodel="small", opt=1).emit_object(llvm.parse_assembly(ARM))
    obj = elf.read_object(made)
    layout = image.plan_layout(obj)
    base, away = 0x7F1234560000, 0x7E0000001238
    memory = bytearray(layout.end)
    image.Linker(obj, layout, base, lambda name, weak: away).fill(memoryview(memory))
    checked = set()
    pages: dict[int, int] = {}
    for target_index, relocations in obj.relocations.items():
        for r in relocations:
            at = layout.section[target_index] + r.offset
            (word,) = struct.unpack_from("<I", memory, at)
            symbol = obj.symbols[r.symbol]
            if symbol.section == elf.UNDEFINED:
                wanted = base + (layout.slot[r.symbol] if r.type in (311, 312) else layout.stub[r.symbol])
            else:
                wanted = base + layout.section[symbol.section] + symbol.value + r.addend
            checked.add(r.type)
            if r.type in (275, 311):
                assert word & 0x9F000000 == 0x90000000
                page = (word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3
                page -= (page & 1 << 20) << 1
                pages[word & 31] = ((base + at >> 12) + page) << 12
                assert pages[word & 31] == wanted & ~0xFFF
            elif r.type in (277, 286, 312):
                scale = 1 if r.type == 277 else 8
                assert pages[word >> 5 & 31] + (word >> 10 & 0xFFF) * scale == wanted
            elif r.type in (282, 283):
                distance = (word & 0x3FFFFFF) - ((word & 1 << 25) << 1)
                assert base + at + 4 * distance == wanted
            elif r.type == 257:
                assert struct.unpack_from("<Q", memory, at)[0] == wanted
            else:
                raise AssertionError(f"relocation {r.type} is not covered")
    assert {257, 275, 277, 311, 312} <= checked and checked & {282, 283}, checked
    for index, stub in layout.stub.items():
        assert struct.unpack_from("<Q", memory, layout.slot[index])[0] == away
        adrp, load_slot, jump, _ = struct.unpack_from("<IIII", memory, stub)
        page = (adrp >> 5 & 0x7FFFF) << 2 | adrp >> 29 & 3
        place = (((base + stub) >> 12) + page << 12) + (load_slot >> 10 & 0xFFF) * 8
        assert place == base + layout.slot[index] and jump == 0xD61F0200


def test_large_pages_are_no_condition() -> None:
    """A system that refuses them gives small ones."""

    class Pages:
        asked = 0

        def madvise(self, advice: int) -> None:
            self.asked += 1
            raise OSError("not here")

    pages = Pages()
    image._ask_for_huge_pages(pages)  # type: ignore[arg-type]
    assert pages.asked == hasattr(image.mmap, "MADV_HUGEPAGE")

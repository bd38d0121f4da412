"""Virtual devices: `I.module_global_infos`, and the names by which struct info refers to them."""

from __future__ import annotations

import numpy as np
import pytest

import mlcc
from mlcc.interp import run_function
from mlcc.ir.equal import structural_hash

DEVICES = """\
@I.ir_module
class Module:
    I.module_global_infos({{"dummy": [I.dummy_global_info()], "vdevice": [I.vdevice("llvm"), I.vdevice("cuda", 1),
        I.vdevice({{"kind": "cuda", "arch": "sm_90"}}, vdevice_id=2, memory_scope="shared")]}})

    @R.function
    def main(x: R.Tensor((4,), "float32", vdevice="{device}")):
        y = R.to_vdevice(x, "llvm")
        z = R.to_vdevice(y, dst_vdevice="{other}")
        w = R.hint_on_device(z, R.device(1, 0))
        return R.add(w, w)
"""


def module(device: str = "cuda", other: str = "vdevice:2") -> mlcc.IRModule:
    return mlcc.parse(DEVICES.format(device=device, other=other))


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("llvm", "llvm:0:global"), ("cuda", "cuda:0:global"), ("cuda:0", "cuda:0:global"),
        ("cuda:1", "cuda:1:shared"), ("cuda:1:global", "cuda:1:shared"), ("vdevice:0", "llvm:0:global"),
        ("vdevice:2", "cuda:1:shared"),
    ],
)  # fmt: skip
def test_names_refer_to_devices(name: str, full: str) -> None:
    func = module(name, name)["main"]
    assert func.params[0].struct_info.vdevice == full
    assert func.ret_struct_info.vdevice == full  # through `to_vdevice`, `hint_on_device` and `add`


def test_devices_are_printed_and_read_back() -> None:
    made = module()
    for dialect in ("mlcc", "tvm"):
        text = mlcc.script(made, dialect=dialect)
        assert 'I.vdevice({"arch": "sm_90", "kind": "cuda"}, 2, "shared")' in text
        again = mlcc.parse(text)
        assert mlcc.structural_equal(made, again) and mlcc.script(again, dialect=dialect) == text


def test_devices_count_in_structural_equality() -> None:
    text = DEVICES.format(device="cuda", other="cuda")
    made = mlcc.parse(text)
    for change in (('I.vdevice("cuda", 1)', 'I.vdevice("cuda", 3)'), ('I.vdevice("llvm")', 'I.vdevice("c")'),
                   ('"dummy": [I.dummy_global_info()], ', "")):  # fmt: skip
        assert change[0] in text
        other = mlcc.parse(text.replace(*change).replace('(x, "llvm")', '(x, "vdevice:0")'))
        assert not mlcc.structural_equal(made, other)
        assert structural_hash(made) != structural_hash(other)
    assert not mlcc.structural_equal(made, mlcc.IRModule(made.functions, made.attrs))


@pytest.mark.parametrize("pipeline", ["dead-code", "O2", "lower-to-tir,fuse,fuse-tir", "inline-functions,normalize"])
def test_passes_keep_them(pipeline: str) -> None:
    made = module()
    assert mlcc.run_passes(made, pipeline).global_infos == made.global_infos


def test_devices_do_not_change_results() -> None:
    """Where a value should live has no influence on it."""
    x = np.arange(4, dtype="float32")
    np.testing.assert_array_equal(run_function(module(), "main", [x]), 2 * x)
    np.testing.assert_array_equal(mlcc.load(mlcc.build(module(), "llvm"))["main"](x), 2 * x)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('vdevice="cuda"', 'vdevice="metal"'), "the module has no device `metal`"),
        (('vdevice="cuda"', 'vdevice="cuda:2"'), "the module has no device `cuda:2`"),
        (('dst_vdevice="cuda"', 'dst_vdevice="vdevice:3"'), "the module has no device `vdevice:3`"),
        (("I.dummy_global_info()", "3"), "a global info must be"),
        (('I.vdevice("llvm")', "I.vdevice()"), "takes a target"),
        (('I.vdevice("llvm")', "I.vdevice(3)"), "a target must be a string or a dict"),
        (('I.vdevice("llvm")', 'I.vdevice("")'), "must name its kind"),
        (('I.vdevice("llvm")', 'I.vdevice({"arch": "x"})'), "must name its kind"),
        (('I.vdevice("cuda", 1)', 'I.vdevice("cuda", -1)'), "the number of a device"),
        (('I.vdevice("cuda", 1)', 'I.vdevice("cuda", scope="x")'), "no argument `scope`"),
        (('I.vdevice("cuda", 1)', 'I.vdevice("cuda", 1, 2)'), "a memory scope"),
        (('{"dummy": [I.dummy_global_info()]', '{3: [I.dummy_global_info()]'), "with strings as keys"),
    ],
)  # fmt: skip
def test_wrong_devices_are_refused(change: tuple[str, str], message: str) -> None:
    text = DEVICES.format(device="cuda", other="cuda")
    assert change[0] in text
    with pytest.raises(mlcc.CompileError) as found:
        mlcc.parse(text.replace(*change))
    assert message in str(found.value)

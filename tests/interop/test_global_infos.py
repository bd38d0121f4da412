"""Virtual devices between mlcc and TVM."""

from __future__ import annotations

import pytest

import mlcc
from mlcc.ir.equal import assert_structural_equal

tvm = pytest.importorskip("tvm")
from tests.interop.harness import back_and_there, from_tvm, to_tvm  # noqa: E402

TEXT = """\
@I.ir_module
class Module:
    I.module_attrs({"version": 3})
    I.module_global_infos({"dummy": [I.dummy_global_info()], "vdevice": [I.vdevice("llvm"),
        I.vdevice({"kind": "cuda", "arch": "sm_80"}, 0, "global"), I.vdevice("llvm", 1, "shared")]})

    @R.function
    def main(x: R.Tensor((4,), "float32", "cuda"), y: R.Tensor(ndim=2, vdevice="vdevice:2")):
        a = R.to_vdevice(x, "llvm:1")
        b = R.add(a, a)
        return (b, R.to_vdevice(y, "cuda:0"))
"""


def test_devices_are_exchanged_as_text() -> None:
    theirs = to_tvm(TEXT)
    mine = back_and_there(theirs)
    assert mine.global_infos.keys() == {"dummy", "vdevice"}
    # TVM fills in what a target leaves out; all else is the same
    read = mlcc.parse(TEXT)
    assert_structural_equal(mine["main"], read["main"])
    again = from_tvm(to_tvm(mlcc.script(read, dialect="tvm")))
    assert_structural_equal(mine, again)

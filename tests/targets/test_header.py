"""The generated header beside DLPack's own dlpack.h, included before or after it, in C and C++."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest

from tests.targets.c_programs import CC, run_c_program
from tests.targets.texts import ADD_ONE, artifact, module

# what the official header declares, under its guard
DLPACK = """
#ifndef DLPACK_DLPACK_H_
#define DLPACK_DLPACK_H_
#include <stdint.h>
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
typedef enum : int32_t {
#else
typedef enum {
#endif
  kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3
} DLDeviceType;
typedef struct { DLDeviceType device_type; int32_t device_id; } DLDevice;
typedef enum { kDLInt = 0U, kDLUInt = 1U, kDLFloat = 2U } DLDataTypeCode;
typedef struct { uint8_t code; uint8_t bits; uint16_t lanes; } DLDataType;
typedef struct {
  void *data; DLDevice device; int32_t ndim; DLDataType dtype; int64_t *shape; int64_t *strides; uint64_t byte_offset;
} DLTensor;
typedef struct DLManagedTensor { DLTensor dl_tensor; void *manager_ctx; } DLManagedTensor;
#ifdef __cplusplus
}
#endif
#endif
"""
PROGRAM = """
int main(void) {
    float in[2] = {1, 2}, out[2] = {0, 0};
    int64_t shape[1] = {2};
    DLManagedTensor x = {}, y = {};
    x.dl_tensor.data = in;
    x.dl_tensor.device.device_type = kDLCPU;
    x.dl_tensor.ndim = 1;
    x.dl_tensor.dtype.code = kDLFloat;
    x.dl_tensor.dtype.bits = 32;
    x.dl_tensor.dtype.lanes = 1;
    x.dl_tensor.shape = shape;
    y.dl_tensor = x.dl_tensor;
    y.dl_tensor.data = out;
    return model_add_one(&x.dl_tensor, &y.dl_tensor) || out[0] != 2 || out[1] != 3;
}
"""
MODEL = module(ADD_ONE.replace("(private=True)", ""))


def installed() -> list[Path]:
    """The real dlpack.h of packages that bring one."""
    found = []
    for package, path in (("torch", "include/ATen/dlpack.h"), ("tvm_ffi", "include/dlpack/dlpack.h")):
        spec = importlib.util.find_spec(package)
        for folder in spec.submodule_search_locations or () if spec else ():
            found += [p for p in [Path(folder) / path] if p.exists()]
    return found


@pytest.fixture(params=["essentials", "installed"])
def official(request: pytest.FixtureRequest) -> str:
    if request.param == "essentials":
        return DLPACK
    return installed()[0].read_text() if installed() else DLPACK


@pytest.mark.parametrize("ours_first", [True, False])
@pytest.mark.parametrize("compiler", [["cc", "-std=gnu11"], ["c++", "-std=c++17"]], ids=["c", "c++"])
@pytest.mark.parametrize(
    "place, spelling, flags",
    [
        ("dlpack/dlpack.h", "<dlpack/dlpack.h>", []),
        ("dlpack.h", '"dlpack.h"', []),
        ("ATen/dlpack.h", "<ATen/dlpack.h>", []),
        ("third_party/tensors.h", '"third_party/tensors.h"', ["-DMLCC_DLPACK_H=<third_party/tensors.h>"]),
    ],
)
def test_beside_dlpack_in_either_order(
    tmp_path: Path, official: str, ours_first: bool, compiler: list[str], place: str, spelling: str, flags: list[str]
) -> None:
    made = artifact(MODEL)
    made.save(tmp_path / "model.o")
    (tmp_path / "model.h").write_text(made.header("model.o"))
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_text(official)
    includes = ['#include "model.h"', f"#include {spelling}"]
    source = "\n".join(includes if ours_first else includes[::-1]) + PROGRAM
    name = "app.c" if compiler[0] == "cc" else "app.cc"
    (tmp_path / name).write_text(source)
    warnings = ["-Wall", "-Wextra", "-Werror"]
    command = [*compiler, *warnings, "-I.", *flags, name, "model.o", "-o", "app", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True)
    subprocess.run(["./app"], cwd=tmp_path, check=True)


def test_without_dlpack_the_types_are_its_own(tmp_path: Path) -> None:
    """The same layout as DLPack's, without any header of DLPack in reach."""
    made = artifact(MODEL)
    (tmp_path / "official").mkdir()
    (tmp_path / "official" / "model.h").write_text(made.header("model.o"))
    (tmp_path / "official" / "dlpack.h").write_text(DLPACK)
    fields = ["data", "device", "ndim", "dtype", "shape", "strides", "byte_offset"]
    offsets = "".join(f'printf("%d ", (int)offsetof(DLTensor, {field}));' for field in fields)
    source = f'#include "model.h"\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {{ {offsets} return 0; }}\n'
    ours = run_c_program(tmp_path, made, source)
    (tmp_path / "official" / "app.c").write_text(source)
    subprocess.run([*CC, "official/app.c", "-o", "judge"], cwd=tmp_path, check=True)
    judge = subprocess.run(["./judge"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ours == judge.stdout

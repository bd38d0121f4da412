/* today: made by mlcc 0.1.0. Compile it with `cc -std=c99 -O2`, link with -lm. */
/* A product and a sum are two roundings: pass -ffp-contract=off to GCC without -std=c99, which ignores this line. */
#if !defined(__GNUC__) || defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif
#include <float.h>
#include <limits.h>
#if INT_MAX < 2147483647
#error "this code needs an int of at least 32 bits"
#endif
#if defined(FLT_EVAL_METHOD) && (FLT_EVAL_METHOD == 1 || FLT_EVAL_METHOD == 2)
#error "this code needs float arithmetic without excess precision: for 32-bit x86, pass -msse2 -mfpmath=sse"
#endif
#ifdef __cplusplus
#define restrict __restrict
#define MLCC_EXTERN extern "C"
#else
#define MLCC_EXTERN extern
#endif
/* Loops that a schedule unrolls, and those over lanes of vectors, which GCC must not unroll before it vectorizes. */
#if defined(__clang__)
#define MLCC_UNROLL _Pragma("clang loop unroll(full)")
#define MLCC_VECTORIZE
#elif defined(__GNUC__) && __GNUC__ >= 8
#define MLCC_UNROLL _Pragma("GCC unroll 64")
#define MLCC_VECTORIZE _Pragma("GCC unroll 1")
#else
#define MLCC_UNROLL
#define MLCC_VECTORIZE
#endif
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#ifndef MLCC_TODAY_H
#define MLCC_TODAY_H
#include <stdbool.h>
#include <stdint.h>

/* Tensors are those of DLPack (https://dmlc.github.io/dlpack): of its own dlpack.h where the compiler finds one or
   MLCC_DLPACK_H names one (-DMLCC_DLPACK_H='"my/dlpack.h"'); else the same types, declared below. */
#ifdef MLCC_DLPACK_H
#include MLCC_DLPACK_H
#elif !defined(DLPACK_DLPACK_H_) && !defined(MLCC_DLTENSOR) && defined(__has_include)
#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#elif __has_include(<dlpack.h>)
#include <dlpack.h>
#elif __has_include("dlpack.h")
#include "dlpack.h"
#elif __has_include(<ATen/dlpack.h>)
#include <ATen/dlpack.h>
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

#ifndef DLPACK_DLPACK_H_
#ifndef MLCC_DLTENSOR
#define MLCC_DLTENSOR
typedef struct { int32_t device_type; int32_t device_id; } DLDevice;
typedef struct { uint8_t code; uint8_t bits; uint16_t lanes; } DLDataType;
typedef struct {
    void *data;           /* with byte_offset: aligned to the element */
    DLDevice device;      /* {1, 0}: memory of the CPU */
    int32_t ndim;
    DLDataType dtype;     /* code 0 int, 1 uint, 2 float, 4 bfloat, 6 bool; then bits and lanes */
    int64_t *shape;
    int64_t *strides;     /* in elements; NULL: row-major without gaps */
    uint64_t byte_offset;
} DLTensor;
#endif
#endif

/* Functions return 0 or an error code: the low byte is the kind of error, PREFIX_f_error gives the text. */
#ifndef MLCC_ERROR_KINDS
#define MLCC_ERROR_KINDS
enum {
    MLCC_OK = 0, /* no error */
    MLCC_NULL = 1, /* a required pointer is null */
    MLCC_NDIM = 2, /* a tensor has the wrong number of dimensions */
    MLCC_DTYPE = 3, /* a tensor has the wrong element type */
    MLCC_SHAPE = 4, /* a dimension of a tensor is not the one declared */
    MLCC_SYMBOL = 5, /* dimensions that must agree do not */
    MLCC_DEVICE = 6, /* a tensor is not in the memory of the CPU */
    MLCC_STRIDES = 7, /* a tensor is not contiguous */
    MLCC_ALIGN = 8, /* the memory of a tensor is not aligned to its element type */
    MLCC_OVERLAP = 9, /* an output shares memory with another argument */
    MLCC_WORKSPACE = 10, /* the workspace is too small or not aligned to 64 bytes */
    MLCC_MEMORY = 11, /* out of memory, or a size that does not fit the address space */
    MLCC_PACKED_UNSET = 12, /* a packed function is not set */
    MLCC_PACKED_FAILED = 13, /* a packed function reported an error */
    MLCC_ASSERT = 14, /* an assertion in the program failed */
    MLCC_CAST = 15, /* a value does not have the struct info that the program says it has */
    MLCC_VALUE = 16, /* a scalar argument is out of range */
    MLCC_INDEX = 17, /* an index in the data lies outside */
    MLCC_OUTSIDE = 18, /* an access outside of a buffer (code built to be checked) */
    MLCC_UNWRITTEN = 19, /* a read of memory that nothing wrote (code built to be checked) */
    MLCC_RACE = 20, /* iterations of a parallel loop that meet (code built to be checked) */
    MLCC_ERROR_KIND_MASK = 255
};
#endif

/* scale(A: float32(6, 8), B: float32(6, 8))
   `today_scale` has its workspace on the stack; `today_scale_ws` takes 64-byte-aligned memory of
   `today_scale_ws_size` bytes (negative: minus an error code). Outputs must not overlap other arguments.
   */
int32_t today_scale(const DLTensor *A, DLTensor *B);
int32_t today_scale_ws(void *ws, int64_t ws_size, const DLTensor *A, DLTensor *B);
int64_t today_scale_ws_size(const DLTensor *A, DLTensor *B);
const char *today_scale_error(int32_t code);

/* main(x: float32(6, 16), y: float32(n, 8))
   -> out: float32(n, 6)
   `today_main` allocates its workspace; `today_main_ws` takes 64-byte-aligned memory of
   `today_main_ws_size` bytes (negative: minus an error code). Outputs must not overlap other arguments.
   */
int32_t today_main(const DLTensor *x, const DLTensor *y, DLTensor *out);
int32_t today_main_ws(void *ws, int64_t ws_size, const DLTensor *x, const DLTensor *y, DLTensor *out);
int64_t today_main_ws_size(const DLTensor *x, const DLTensor *y);
/* The extents of every result for these parameters. */
int32_t today_main_shape(const DLTensor *x, const DLTensor *y, int64_t *out_shape);
const char *today_main_error(int32_t code);

#ifdef __cplusplus
}
#endif
#endif

/* float32(1, 16, 8) */
static const float constant_0[128] = {
    -0x1.961426p-1f, 0x1.ecb0a4p-3f, -0x1.e575a4p0f, 0x1.65514cp0f, 0x1.46ce92p-1f, -0x1.2b0e7ep-2f, -0x1.3f6fa6p-2f,
    0x1.37209ep-2f, -0x1.12158ap-2f, -0x1.cea94ep-3f, 0x1.70acbap-1f, 0x1.07877p-1f, -0x1.06ab04p-4f, -0x1.5e1cacp-4f,
    0x1.498e8p-3f, -0x1.3a609ep-1f, -0x1.9d70b6p-2f, 0x1.18b58ep-1f, -0x1.0b3a9p-3f, -0x1.5fda64p0f, -0x1.e8bbcp-2f,
    0x1.5030b6p-1f, -0x1.dbb712p-3f, -0x1.309ad4p-3f, 0x1.489edp-1f, 0x1.d319aap0f, -0x1.6d271p-1f, 0x1.592414p0f,
    -0x1.3ae21ep0f, 0x1.665aaap-3f, -0x1.2b664ap0f, 0x1.59f92ap0f, 0x1.aaf7f4p-1f, 0x1.234168p0f, -0x1.c5649ap-1f,
    0x1.5e7ep-1f, -0x1.09bc1ep-1f, -0x1.d45cdp-2f, 0x1.0358d4p-1f, 0x1.c0e134p-1f, 0x1.a2a71p-3f, -0x1.418786p-1f,
    -0x1.a6d16cp-1f, 0x1.71bec2p0f, 0x1.3019aep-1f, 0x1.70802ep-1f, 0x1.177c8ap1f, -0x1.a1b8cap-1f, 0x1.479c5p1f,
    0x1.9350f6p1f, 0x1.9e5052p0f, 0x1.a77a82p-1f, -0x1.53e078p-1f, 0x1.fd2d38p-1f, -0x1.c55118p-2f, -0x1.62b9fep-6f,
    -0x1.29675p-2f, 0x1.22a452p-2f, 0x1.49bf76p0f, -0x1.1c7584p-1f, -0x1.f886dap-1f, -0x1.00c1c2p0f, -0x1.efc20cp-1f,
    -0x1.6e5cc4p0f, -0x1.d36c18p-1f, 0x1.4b1374p0f, -0x1.2fc696p-1f, 0x1.07473ap-2f, -0x1.37865cp0f, 0x1.5b71c4p-3f,
    -0x1.bda3dap0f, -0x1.65c356p-1f, 0x1.2094bcp1f, -0x1.2a7bp-1f, 0x1.1eb6c6p0f, 0x1.d1f9b6p-2f, -0x1.39509cp-3f,
    -0x1.4de0f2p-1f, 0x1.4972e4p0f, -0x1.6b4804p-3f, 0x1.87054ap0f, -0x1.702b2p-1f, 0x1.d5b892p-5f, 0x1.dcabcep-2f,
    0x1.7e1db4p-2f, -0x1.3bda6ap0f, -0x1.540008p-1f, -0x1.915e12p-3f, -0x1.b51814p-1f, 0x1.5aca5cp-1f, 0x1.2d10dap-1f,
    -0x1.f5037cp0f, -0x1.ce2522p0f, -0x1.481488p0f, 0x1.e04b88p-4f, 0x1.043fp1f, -0x1.878874p-2f, 0x1.00aa8ap-2f,
    -0x1.102816p0f, -0x1.0bfd76p0f, -0x1.f50ce2p0f, -0x1.d06464p-6f, 0x1.e4f996p-1f, -0x1.6d4684p-2f, 0x1.657df4p0f,
    0x1.9534ecp-3f, -0x1.2a4a86p-5f, 0x1.08d58p-1f, 0x1.f3131cp-2f, 0x1.25d6a4p0f, -0x1.9a99cp-1f, -0x1.24deccp1f,
    0x1.d600a2p-4f, -0x1.392d7cp-1f, -0x1.bd4578p-6f, 0x1.aa0f9p0f, -0x1.1a53d8p0f, 0x1.879384p-1f, 0x1.e448cp-1f,
    0x1.d7cb3ep-2f, 0x1.1e568cp0f, -0x1.d55cecp-2f, -0x1.5ceed8p-1f, 0x1.09fac6p0f, 0x1.70cb2ap-1f, 0x1.63efd2p0f,
    0x1.b2c4ep-3f, 0x1.9fa1d6p0f
};

/* The addresses of a tensor's first byte and of the one after its last; 0 and 0 if it has none. */
typedef struct {
    uintptr_t begin, end;
} memory_range;

/* The tensor that a cell of an argument vector points to. */
static inline const DLTensor *tensor_of(int64_t cell) {
    return (const DLTensor *)(uintptr_t)cell;
}

/* Check a tensor against a row: dimensions, dtype, bytes of an element, mask of its alignment, whether it is compact;
   error codes; then for each dimension the extent (-1: any, -2: not negative) and an error code. */
static int32_t check_tensor(int64_t cell, const int64_t *row, memory_range *range) {
    const DLTensor *tensor = tensor_of(cell);
    const int64_t *dims = row + 13;
    uint64_t count = 1;
    uintptr_t begin;
    bool empty = false, compact = true;
    if (tensor == NULL) return (int32_t)row[5];
    if (tensor->ndim != row[0]) return (int32_t)row[6];
    if (((int64_t)tensor->dtype.code | (int64_t)tensor->dtype.bits << 8 | (int64_t)tensor->dtype.lanes << 16) != row[1])
        return (int32_t)row[7];
    if ((int)tensor->device.device_type != 1 && (int)tensor->device.device_type != 3)
        return (int32_t)row[8];
    if (tensor->shape == NULL && row[0] != 0) return (int32_t)row[9];
    for (int64_t i = 0; i < row[0]; ++i) {
        const int64_t extent = tensor->shape[i], wanted = dims[2 * i];
        if (wanted != -1 && (wanted == -2 ? extent < 0 : extent != wanted))
            return (int32_t)dims[2 * i + 1];
        empty = empty || extent == 0;
    }
    if (tensor->data == NULL && !empty) return (int32_t)row[10];
    begin = (uintptr_t)tensor->data + (uintptr_t)tensor->byte_offset;
    if (!empty && (begin & (uintptr_t)row[3]) != 0) return (int32_t)row[11];
    for (int64_t i = row[0]; i-- > 0;) {
        if (tensor->strides != NULL && tensor->shape[i] != 1 && (uint64_t)tensor->strides[i] != count) compact = false;
        count *= (uint64_t)tensor->shape[i];
    }
    if (row[4] != 0 && !compact && !empty) return (int32_t)row[12];
    range->begin = empty ? 0 : begin;
    range->end = empty ? 0 : begin + (uintptr_t)(count * (uint64_t)row[2]);
    return 0;
}

static bool overlaps(const memory_range *ranges, int32_t count, int32_t number) {
    for (int32_t i = 0; i < count; ++i)
        if (i != number && ranges[i].begin < ranges[number].end && ranges[number].begin < ranges[i].end) return true;
    return false;
}

/* The address of a tensor's first element. */
static inline unsigned char *data_of(int64_t cell) {
    const DLTensor *tensor = tensor_of(cell);
    return tensor->data == NULL ? NULL : (unsigned char *)tensor->data + tensor->byte_offset;
}

/* A pointer as a cell of an argument vector. */
static inline int64_t cell_of(const void *pointer) {
    return (int64_t)(uintptr_t)pointer;
}

static inline float max_f32(float a, float b) {
    return a >= b || a != a ? a : b;
}

static inline int64_t floormod_i64(int64_t a, int64_t b) {
    if (b == 0 || b == -1) return 0;
    if (a % b != 0 && (a % b < 0) != (b < 0)) return (int64_t)(a % b + b);
    return (int64_t)(a % b);
}

static inline int64_t sub_i64(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a - (uint64_t)b);
}

static inline int64_t mul_i64(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a * (uint64_t)b);
}

/* a * b, which notes overflow. */
static inline int64_t checked_mul(int64_t a, int64_t b, bool *overflow) {
    if (a > 0 ? (b > 0 ? a > INT64_MAX / b : b < INT64_MIN / a)
              : (b > 0 ? a < INT64_MIN / b : a != 0 && b < INT64_MAX / a)) *overflow = true;
    return (int64_t)((uint64_t)a * (uint64_t)b);
}

/* a + b, which notes overflow. */
static inline int64_t checked_add(int64_t a, int64_t b, bool *overflow) {
    if (b < 0 ? a < INT64_MIN - b : a > INT64_MAX - b) *overflow = true;
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

static inline int64_t floordiv_i64(int64_t a, int64_t b) {
    if (b == 0) return 0;
    if (b == -1) return (int64_t)(0 - (uint64_t)a);
    if (a % b != 0 && (a % b < 0) != (b < 0)) return (int64_t)(a / b - 1);
    return (int64_t)(a / b);
}

/* Memory from the heap; NULL where there is none, or with MLCC_NO_MALLOC. */
#ifdef MLCC_NO_MALLOC
static inline void *allocate(int64_t bytes) {
    (void)bytes;
    return NULL;
}
static inline void release(void *memory) {
    (void)memory;
}
#else
static inline void *allocate(int64_t bytes) {
    return (uint64_t)bytes > SIZE_MAX ? NULL : malloc(bytes < 1 ? 1 : (size_t)bytes);
}
static inline void release(void *memory) {
    free(memory);
}
#endif

static inline void *aligned(unsigned char *memory) {
    return memory + (64 - (uintptr_t)memory % 64) % 64;
}

/* scale(A: float32(6, 8), B: float32(6, 8)) */
static void scale(const float *A, float *B) {
    for (int32_t i_j_fused_0 = 0; i_j_fused_0 < 12; ++i_j_fused_0) {
        MLCC_VECTORIZE
        for (int32_t i_j_fused_1 = 0; i_j_fused_1 < 4; ++i_j_fused_1) {
            B[i_j_fused_0 * 4 + i_j_fused_1] = A[i_j_fused_0 * 4 + i_j_fused_1] * 2.0f;
        }
    }
}

/* fused_matmul_relu_scale1(x: float32(6, 16), param_0_global: float32(1, 16, 8), B_intermediate: float32(6, 8)) */
static void fused_matmul_relu_scale1(const float *restrict x, const float *restrict param_0_global,
        float *restrict B_intermediate) {
    float matmul_intermediate_local[48];
    MLCC_UNROLL
    for (int64_t i0_1_init = 0; i0_1_init < 6; ++i0_1_init) {
        MLCC_UNROLL
        for (int64_t i1_1_init = 0; i1_1_init < 2; ++i1_1_init) {
            MLCC_VECTORIZE
            for (int64_t i1_2_init = 0; i1_2_init < 4; ++i1_2_init) {
                matmul_intermediate_local[i0_1_init * 8 + (i1_1_init * 4 + i1_2_init)] = 0.0f;
            }
        }
    }
    for (int64_t k = 0; k < 16; ++k) {
        MLCC_UNROLL
        for (int64_t i0_1 = 0; i0_1 < 6; ++i0_1) {
            MLCC_UNROLL
            for (int64_t i1_1 = 0; i1_1 < 2; ++i1_1) {
                MLCC_VECTORIZE
                for (int64_t i1_2 = 0; i1_2 < 4; ++i1_2) {
                    matmul_intermediate_local[i0_1 * 8 + (i1_1 * 4 + i1_2)] += x[i0_1 * 16 + k] * param_0_global[k * 8 + (i1_1 * 4 + i1_2)];
                }
            }
        }
    }
    MLCC_UNROLL
    for (int64_t ax0 = 0; ax0 < 6; ++ax0) {
        MLCC_UNROLL
        for (int64_t ax1 = 0; ax1 < 8; ++ax1) {
            B_intermediate[ax0 * 8 + ax1] = max_f32(matmul_intermediate_local[ax0 * 8 + ax1], 0.0f) * 2.0f;
        }
    }
}

/* matmul1_T(y: float32(n, 8), lv: float32(6, 8), matmul: float32(n, 6)) */
static void matmul1_T(const float *restrict y, const float *restrict lv, float *restrict matmul, int64_t n) {
    float lv_pad[64];
    for (int64_t i1_0 = 0; i1_0 < 2; ++i1_0) {
        for (int64_t i1_1 = 0; i1_1 < 4; ++i1_1) {
            MLCC_VECTORIZE
            for (int64_t i0_2 = 0; i0_2 < 4; ++i0_2) {
                lv_pad[(i1_0 * 4 + i1_1) * 8 + i0_2] = lv[i0_2 * 8 + (i1_0 * 4 + i1_1)];
            }
        }
    }
    for (int64_t i1_0_1 = 0; i1_0_1 < 2; ++i1_0_1) {
        for (int64_t i1_1_1 = 0; i1_1_1 < 4; ++i1_1_1) {
            MLCC_VECTORIZE
            for (int64_t i0_2_1 = 0; i0_2_1 < 4; ++i0_2_1) {
                lv_pad[(i1_0_1 * 4 + i1_1_1) * 8 + (i0_2_1 + 4)] = INT64_C(0) * INT64_C(8) + 4 + i0_2_1 < 6 ? lv[(i0_2_1 + 4) * 8 + (i1_0_1 * 4 + i1_1_1)] : 0.0f;
            }
        }
    }
    const int64_t count = (n + 3) / 4;
    for (int64_t i1_0_i0_0_fused = 0; i1_0_i0_0_fused < count; ++i1_0_i0_0_fused) {
        const int64_t i1_0_i0_0_fused_0 = floormod_i64(i1_0_i0_0_fused, (n + 3) / 4);
        if (i1_0_i0_0_fused_0 < n / 4) {
            float matmul_pad_local[32];
            MLCC_UNROLL
            for (int64_t i0_1_init = 0; i0_1_init < 4; ++i0_1_init) {
                MLCC_UNROLL
                for (int64_t i1_1_init = 0; i1_1_init < 2; ++i1_1_init) {
                    MLCC_VECTORIZE
                    for (int64_t i1_2_init = 0; i1_2_init < 4; ++i1_2_init) {
                        matmul_pad_local[i0_1_init * 8 + (i1_1_init * 4 + i1_2_init)] = 0.0f;
                    }
                }
            }
            for (int64_t k = 0; k < 8; ++k) {
                MLCC_UNROLL
                for (int64_t i0_1 = 0; i0_1 < 4; ++i0_1) {
                    MLCC_UNROLL
                    for (int64_t i1_1_2 = 0; i1_1_2 < 2; ++i1_1_2) {
                        MLCC_VECTORIZE
                        for (int64_t i1_2 = 0; i1_2 < 4; ++i1_2) {
                            matmul_pad_local[i0_1 * 8 + (i1_1_2 * 4 + i1_2)] += y[i1_0_i0_0_fused * 32 + i0_1 * 8 + k] * lv_pad[k * 8 + (i1_1_2 * 4 + i1_2)];
                        }
                    }
                }
            }
            MLCC_UNROLL
            for (int64_t ax0 = 0; ax0 < 4; ++ax0) {
                MLCC_UNROLL
                for (int64_t ax1_0 = 0; ax1_0 < 2; ++ax1_0) {
                    MLCC_VECTORIZE
                    for (int64_t ax1_1 = 0; ax1_1 < 4; ++ax1_1) {
                        if (ax1_0 * 4 + ax1_1 < 6) {
                            matmul[i1_0_i0_0_fused * 24 + ax0 * 6 + ax1_0 * 4 + ax1_1] = matmul_pad_local[ax0 * 8 + (ax1_0 * 4 + ax1_1)];
                        }
                    }
                }
            }
        } else {
            const int64_t i1_0_i0_0_fused_0_left = sub_i64(sub_i64(n, mul_i64(i1_0_i0_0_fused_0, 4)), 1);
            if (i1_0_i0_0_fused_0_left == 0) {
                float matmul_pad_local_1[32];
                MLCC_UNROLL
                for (int64_t i0_1_init_1 = 0; i0_1_init_1 < 4; ++i0_1_init_1) {
                    MLCC_UNROLL
                    for (int64_t i1_1_init_1 = 0; i1_1_init_1 < 2; ++i1_1_init_1) {
                        MLCC_VECTORIZE
                        for (int64_t i1_2_init_1 = 0; i1_2_init_1 < 4; ++i1_2_init_1) {
                            if (i0_1_init_1 == 0) {
                                matmul_pad_local_1[i0_1_init_1 * 8 + (i1_1_init_1 * 4 + i1_2_init_1)] = 0.0f;
                            }
                        }
                    }
                }
                for (int64_t k_1 = 0; k_1 < 8; ++k_1) {
                    MLCC_UNROLL
                    for (int64_t i0_1_1 = 0; i0_1_1 < 4; ++i0_1_1) {
                        MLCC_UNROLL
                        for (int64_t i1_1_3 = 0; i1_1_3 < 2; ++i1_1_3) {
                            MLCC_VECTORIZE
                            for (int64_t i1_2_1 = 0; i1_2_1 < 4; ++i1_2_1) {
                                if (i0_1_1 == 0) {
                                    matmul_pad_local_1[i0_1_1 * 8 + (i1_1_3 * 4 + i1_2_1)] += y[i1_0_i0_0_fused * 32 + i0_1_1 * 8 + k_1] * lv_pad[k_1 * 8 + (i1_1_3 * 4 + i1_2_1)];
                                }
                            }
                        }
                    }
                }
                MLCC_UNROLL
                for (int64_t ax0_1 = 0; ax0_1 < 4; ++ax0_1) {
                    MLCC_UNROLL
                    for (int64_t ax1_0_1 = 0; ax1_0_1 < 2; ++ax1_0_1) {
                        MLCC_VECTORIZE
                        for (int64_t ax1_1_1 = 0; ax1_1_1 < 4; ++ax1_1_1) {
                            if (ax0_1 == 0 && ax1_0_1 * 4 + ax1_1_1 < 6) {
                                matmul[i1_0_i0_0_fused * 24 + ax0_1 * 6 + ax1_0_1 * 4 + ax1_1_1] = matmul_pad_local_1[ax0_1 * 8 + (ax1_0_1 * 4 + ax1_1_1)];
                            }
                        }
                    }
                }
            } else {
                if (i1_0_i0_0_fused_0_left == 1) {
                    float matmul_pad_local_2[32];
                    MLCC_UNROLL
                    for (int64_t i0_1_init_2 = 0; i0_1_init_2 < 4; ++i0_1_init_2) {
                        MLCC_UNROLL
                        for (int64_t i1_1_init_2 = 0; i1_1_init_2 < 2; ++i1_1_init_2) {
                            MLCC_VECTORIZE
                            for (int64_t i1_2_init_2 = 0; i1_2_init_2 < 4; ++i1_2_init_2) {
                                if (i0_1_init_2 <= 1) {
                                    matmul_pad_local_2[i0_1_init_2 * 8 + (i1_1_init_2 * 4 + i1_2_init_2)] = 0.0f;
                                }
                            }
                        }
                    }
                    for (int64_t k_2 = 0; k_2 < 8; ++k_2) {
                        MLCC_UNROLL
                        for (int64_t i0_1_2 = 0; i0_1_2 < 4; ++i0_1_2) {
                            MLCC_UNROLL
                            for (int64_t i1_1_4 = 0; i1_1_4 < 2; ++i1_1_4) {
                                MLCC_VECTORIZE
                                for (int64_t i1_2_2 = 0; i1_2_2 < 4; ++i1_2_2) {
                                    if (i0_1_2 <= 1) {
                                        matmul_pad_local_2[i0_1_2 * 8 + (i1_1_4 * 4 + i1_2_2)] += y[i1_0_i0_0_fused * 32 + i0_1_2 * 8 + k_2] * lv_pad[k_2 * 8 + (i1_1_4 * 4 + i1_2_2)];
                                    }
                                }
                            }
                        }
                    }
                    MLCC_UNROLL
                    for (int64_t ax0_2 = 0; ax0_2 < 4; ++ax0_2) {
                        MLCC_UNROLL
                        for (int64_t ax1_0_2 = 0; ax1_0_2 < 2; ++ax1_0_2) {
                            MLCC_VECTORIZE
                            for (int64_t ax1_1_2 = 0; ax1_1_2 < 4; ++ax1_1_2) {
                                if (ax0_2 <= 1 && ax1_0_2 * 4 + ax1_1_2 < 6) {
                                    matmul[i1_0_i0_0_fused * 24 + ax0_2 * 6 + ax1_0_2 * 4 + ax1_1_2] = matmul_pad_local_2[ax0_2 * 8 + (ax1_0_2 * 4 + ax1_1_2)];
                                }
                            }
                        }
                    }
                } else {
                    float matmul_pad_local_3[32];
                    MLCC_UNROLL
                    for (int64_t i0_1_init_3 = 0; i0_1_init_3 < 4; ++i0_1_init_3) {
                        MLCC_UNROLL
                        for (int64_t i1_1_init_3 = 0; i1_1_init_3 < 2; ++i1_1_init_3) {
                            MLCC_VECTORIZE
                            for (int64_t i1_2_init_3 = 0; i1_2_init_3 < 4; ++i1_2_init_3) {
                                if (i0_1_init_3 <= 2) {
                                    matmul_pad_local_3[i0_1_init_3 * 8 + (i1_1_init_3 * 4 + i1_2_init_3)] = 0.0f;
                                }
                            }
                        }
                    }
                    for (int64_t k_3 = 0; k_3 < 8; ++k_3) {
                        MLCC_UNROLL
                        for (int64_t i0_1_3 = 0; i0_1_3 < 4; ++i0_1_3) {
                            MLCC_UNROLL
                            for (int64_t i1_1_5 = 0; i1_1_5 < 2; ++i1_1_5) {
                                MLCC_VECTORIZE
                                for (int64_t i1_2_3 = 0; i1_2_3 < 4; ++i1_2_3) {
                                    if (i0_1_3 <= 2) {
                                        matmul_pad_local_3[i0_1_3 * 8 + (i1_1_5 * 4 + i1_2_3)] += y[i1_0_i0_0_fused * 32 + i0_1_3 * 8 + k_3] * lv_pad[k_3 * 8 + (i1_1_5 * 4 + i1_2_3)];
                                    }
                                }
                            }
                        }
                    }
                    MLCC_UNROLL
                    for (int64_t ax0_3 = 0; ax0_3 < 4; ++ax0_3) {
                        MLCC_UNROLL
                        for (int64_t ax1_0_3 = 0; ax1_0_3 < 2; ++ax1_0_3) {
                            MLCC_VECTORIZE
                            for (int64_t ax1_1_3 = 0; ax1_1_3 < 4; ++ax1_1_3) {
                                if (ax0_3 <= 2 && ax1_0_3 * 4 + ax1_1_3 < 6) {
                                    matmul[i1_0_i0_0_fused * 24 + ax0_3 * 6 + ax1_0_3 * 4 + ax1_1_3] = matmul_pad_local_3[ax0_3 * 8 + (ax1_0_3 * 4 + ax1_1_3)];
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/* softmax(c: float32(n, 6), T_softmax_norm: float32(n, 6)) */
static void softmax(const float *restrict c, float *restrict T_softmax_norm, int64_t n) {
    for (int64_t i0 = 0; i0 < n; ++i0) {
        float T_softmax_maxelem[1] = {0};
        for (int64_t ax0 = 0; ax0 < 6; ++ax0) {
            if (ax0 == 0) {
                T_softmax_maxelem[0] = -3.4028235e+38f;
            }
            T_softmax_maxelem[0] = max_f32(T_softmax_maxelem[0], c[i0 * 6 + ax0]);
        }
        float T_softmax_exp[6] = {0};
        MLCC_VECTORIZE
        for (int64_t ax0_1 = 0; ax0_1 < 8; ++ax0_1) {
            if (ax0_1 < 6) {
                T_softmax_exp[ax0_1] = expf(c[i0 * 6 + ax0_1] - T_softmax_maxelem[0]);
            }
        }
        float T_softmax_expsum[1] = {0};
        for (int64_t ax0_2 = 0; ax0_2 < 6; ++ax0_2) {
            if (ax0_2 == 0) {
                T_softmax_expsum[0] = 0.0f;
            }
            T_softmax_expsum[0] += T_softmax_exp[ax0_2];
        }
        MLCC_VECTORIZE
        for (int64_t i1_1 = 0; i1_1 < 8; ++i1_1) {
            if (i1_1 < 6) {
                T_softmax_norm[i0 * 6 + i1_1] = T_softmax_exp[i1_1] / T_softmax_expsum[0];
            }
        }
    }
}


static const struct {
    int32_t code;
    const char *text;
} errors[] = {
    {257, "`A` is null"},
    {258, "`A` must have 2 dimensions"},
    {259, "`A` must be float32"},
    {262, "`A` must be in the memory of the CPU"},
    {513, "the shape of `A` is null"},
    {769, "the data of `A` are null"},
    {264, "`A` must be aligned to 4 bytes"},
    {263, "`A` must be contiguous"},
    {260, "dimension 0 of `A` must be 6"},
    {516, "dimension 1 of `A` must be 8"},
    {1025, "`B` is null"},
    {514, "`B` must have 2 dimensions"},
    {515, "`B` must be float32"},
    {518, "`B` must be in the memory of the CPU"},
    {1281, "the shape of `B` is null"},
    {1537, "the data of `B` are null"},
    {520, "`B` must be aligned to 4 bytes"},
    {519, "`B` must be contiguous"},
    {772, "dimension 0 of `B` must be 6"},
    {1028, "dimension 1 of `B` must be 8"},
    {265, "`B` shares memory with another argument"},
    {266, "the workspace is smaller than `scale` needs, or not aligned to 64 bytes"},
    {1793, "`x` is null"},
    {770, "`x` must have 2 dimensions"},
    {771, "`x` must be float32"},
    {774, "`x` must be in the memory of the CPU"},
    {2049, "the shape of `x` is null"},
    {2305, "the data of `x` are null"},
    {776, "`x` must be aligned to 4 bytes"},
    {775, "`x` must be contiguous"},
    {1284, "dimension 0 of `x` must be 6"},
    {1540, "dimension 1 of `x` must be 16"},
    {2561, "`y` is null"},
    {1026, "`y` must have 2 dimensions"},
    {1027, "`y` must be float32"},
    {1030, "`y` must be in the memory of the CPU"},
    {2817, "the shape of `y` is null"},
    {3073, "the data of `y` are null"},
    {1032, "`y` must be aligned to 4 bytes"},
    {1031, "`y` must be contiguous"},
    {1796, "dimension 0 of `y` is negative"},
    {2052, "dimension 1 of `y` must be 8"},
    {267, "the intermediates or results are too large"},
    {3329, "`out` is null"},
    {1282, "`out` must have 2 dimensions"},
    {1283, "`out` must be float32"},
    {1286, "`out` must be in the memory of the CPU"},
    {3585, "the shape of `out` is null"},
    {3841, "the data of `out` are null"},
    {1288, "`out` must be aligned to 4 bytes"},
    {1287, "`out` must be contiguous"},
    {2308, "dimension 1 of `out` must be 6"},
    {261, "dimension 0 of `out` must be n, which dimension 0 of `y` gives"},
    {521, "`out` shares memory with another argument"},
    {523, "out of memory for the workspace"},
    {522, "the workspace is smaller than `main` needs, or not aligned to 64 bytes"},
    {0, "no error"},
    {1, "a required pointer is null"},
    {2, "a tensor has the wrong number of dimensions"},
    {3, "a tensor has the wrong element type"},
    {4, "a dimension of a tensor is not the one declared"},
    {5, "dimensions that must agree do not"},
    {6, "a tensor is not in the memory of the CPU"},
    {7, "a tensor is not contiguous"},
    {8, "the memory of a tensor is not aligned to its element type"},
    {9, "an output shares memory with another argument"},
    {10, "the workspace is too small or not aligned to 64 bytes"},
    {11, "out of memory, or a size that does not fit the address space"},
    {12, "a packed function is not set"},
    {13, "a packed function reported an error"},
    {14, "an assertion in the program failed"},
    {15, "a value does not have the struct info that the program says it has"},
    {16, "a scalar argument is out of range"},
    {17, "an index in the data lies outside"},
    {18, "an access outside of a buffer (code built to be checked)"},
    {19, "a read of memory that nothing wrote (code built to be checked)"},
    {20, "iterations of a parallel loop that meet (code built to be checked)"},
};

static const char *error_text(int32_t code) {
    const int32_t number = code & 0xffffff;
    const size_t count = sizeof errors / sizeof errors[0];
    for (size_t i = 0; i < count; ++i)
        if (errors[i].code == number) return errors[i].text;
    for (size_t i = 0; i < count; ++i)
        if (errors[i].code == (number & 255)) return errors[i].text;
    return "unknown error";
}

/* What `today_scale` and its kin call: the checks of the arguments, and the steps. */
int32_t today_scale_query(const void *args, int64_t *out, int32_t results_too);
int32_t today_scale_run(const void *args, const int64_t *symbols, void *workspace);

int32_t today_scale_query(const void *args, int64_t *out, int32_t results_too) {
    const int64_t *cells = (const int64_t *)args;
    memory_range ranges[2];
    int32_t code;
    {
        static const int64_t A_row[] = {2, 73730, 4, 3, 1, 257, 258, 259, 262, 513, 769, 264, 263, 6, 260, 8, 516};
        code = check_tensor(cells[0], A_row, &ranges[0]);
        if (code != 0) return code;
    }
    {
        static const int64_t B_row[] = {2, 73730, 4, 3, 1, 1025, 514, 515, 518, 1281, 1537, 520, 519, 6, 772, 8, 1028};
        code = check_tensor(cells[1], B_row, &ranges[1]);
        if (code != 0) return code;
    }
    out[0] = 0;
    if (results_too != 0) {
        if (overlaps(ranges, 2, 1)) return 265;
    }
    return 0;
}

int32_t today_scale_run(const void *args, const int64_t *symbols, void *workspace) {
    (void)symbols;
    (void)workspace;
    const int64_t *cells = (const int64_t *)args;
    unsigned char *A = data_of(cells[0]);
    unsigned char *B = data_of(cells[1]);
    scale((float *)(void *)A, (float *)(void *)B);
    return 0;
}

int32_t today_scale(const DLTensor *A, DLTensor *B) {
    const int64_t args[2] = {cell_of(A), cell_of(B)};
    int64_t facts[1];
    const int32_t code = today_scale_query(args, facts, 1);
    if (code != 0) return code;
    return today_scale_run(args, facts + 1, NULL);
}

int32_t today_scale_ws(void *ws, int64_t ws_size, const DLTensor *A, DLTensor *B) {
    const int64_t args[2] = {cell_of(A), cell_of(B)};
    int64_t facts[1];
    const int32_t code = today_scale_query(args, facts, 1);
    if (code != 0) return code;
    if (facts[0] != 0 && (ws == NULL || ws_size < facts[0] || (uintptr_t)ws % 64 != 0))
        return 266;
    return today_scale_run(args, facts + 1, ws);
}

int64_t today_scale_ws_size(const DLTensor *A, DLTensor *B) {
    const int64_t args[2] = {cell_of(A), cell_of(B)};
    int64_t facts[1];
    const int32_t code = today_scale_query(args, facts, 1);
    return code != 0 ? -(int64_t)code : facts[0];
}

const char *today_scale_error(int32_t code) {
    return error_text(code);
}

/* What `today_main` and its kin call: the checks of the arguments, and the steps. */
int32_t today_main_query(const void *args, int64_t *out, int32_t results_too);
int32_t today_main_run(const void *args, const int64_t *symbols, void *workspace);

int32_t today_main_query(const void *args, int64_t *out, int32_t results_too) {
    const int64_t *cells = (const int64_t *)args;
    memory_range ranges[3];
    int32_t code;
    bool overflow = false;
    {
        static const int64_t x_row[] = {2, 73730, 4, 3, 1, 1793, 770, 771, 774, 2049, 2305, 776, 775, 6, 1284, 16, 1540};
        code = check_tensor(cells[0], x_row, &ranges[0]);
        if (code != 0) return code;
    }
    {
        static const int64_t y_row[] = {2, 73730, 4, 3, 1, 2561, 1026, 1027, 1030, 2817, 3073, 1032, 1031, -2, 1796, 8, 2052};
        code = check_tensor(cells[1], y_row, &ranges[1]);
        if (code != 0) return code;
    }
    const int64_t n = tensor_of(cells[1])->shape[0];
    const int64_t size = checked_mul(n, 24, &overflow);
    const int64_t size_1 = checked_add(size, 63, &overflow);
    const int64_t size_2 = checked_mul(floordiv_i64(size_1, 64), 64, &overflow);
    const int64_t size_3 = checked_add(192, size_2, &overflow);
    const int64_t end0 = size_3;
    if (overflow || end0 < 0 || end0 >= INT64_C(70368744177664)) return 267;
    out[0] = end0;
    out[1] = n;
    if (results_too != 0) {
        {
            static const int64_t out_row[] = {2, 73730, 4, 3, 1, 3329, 1282, 1283, 1286, 3585, 3841, 1288, 1287, -1, 0, 6, 2308};
            code = check_tensor(cells[2], out_row, &ranges[2]);
            if (code != 0) return code;
        }
        if (tensor_of(cells[2])->shape[0] != n) return 261;
        if (overlaps(ranges, 3, 2)) return 521;
    }
    return 0;
}

int32_t today_main_run(const void *args, const int64_t *symbols, void *workspace) {
    const int64_t *cells = (const int64_t *)args;
    unsigned char *room = (unsigned char *)workspace;
    const int64_t n = symbols[0];
    unsigned char *x = data_of(cells[0]);
    unsigned char *y = data_of(cells[1]);
    unsigned char *out = data_of(cells[2]);
    fused_matmul_relu_scale1((float *)(void *)x, (float *)constant_0, (float *)(void *)(room + 0));
    matmul1_T((float *)(void *)y, (float *)(void *)(room + 0), (float *)(void *)(room + 192), n);
    softmax((float *)(void *)(room + 192), (float *)(void *)out, n);
    return 0;
}

int32_t today_main(const DLTensor *x, const DLTensor *y, DLTensor *out) {
    const int64_t args[3] = {cell_of(x), cell_of(y), cell_of(out)};
    int64_t facts[2];
    unsigned char *memory;
    int32_t code = today_main_query(args, facts, 1);
    if (code != 0) return code;
    memory = (unsigned char *)allocate(facts[0] + 64);
    if (memory == NULL) return 523;
    code = today_main_run(args, facts + 1, aligned(memory));
    release(memory);
    return code;
}

int32_t today_main_ws(void *ws, int64_t ws_size, const DLTensor *x, const DLTensor *y, DLTensor *out) {
    const int64_t args[3] = {cell_of(x), cell_of(y), cell_of(out)};
    int64_t facts[2];
    const int32_t code = today_main_query(args, facts, 1);
    if (code != 0) return code;
    if (facts[0] != 0 && (ws == NULL || ws_size < facts[0] || (uintptr_t)ws % 64 != 0))
        return 522;
    return today_main_run(args, facts + 1, ws);
}

int64_t today_main_ws_size(const DLTensor *x, const DLTensor *y) {
    const int64_t args[3] = {cell_of(x), cell_of(y)};
    int64_t facts[2];
    const int32_t code = today_main_query(args, facts, 0);
    return code != 0 ? -(int64_t)code : facts[0];
}

int32_t today_main_shape(const DLTensor *x, const DLTensor *y, int64_t *out_shape) {
    const int64_t args[3] = {cell_of(x), cell_of(y), 0};
    int64_t facts[2];
    const int32_t code = today_main_query(args, facts, 0);
    if (code != 0) return code;
    const int64_t n = facts[1];
    out_shape[0] = n;
    out_shape[1] = 6;
    return 0;
}

const char *today_main_error(int32_t code) {
    return error_text(code);
}

/* Run a function a number of times; for tools that measure. */
int32_t today_time_run(
    int32_t (*run)(const void *args, const int64_t *symbols, void *workspace), const void *args, const int64_t *symbols,
    void *workspace, int64_t number, int32_t (*clock)(int32_t id, int64_t *time), int64_t *nanoseconds);

int32_t today_time_run(
    int32_t (*run)(const void *args, const int64_t *symbols, void *workspace), const void *args, const int64_t *symbols,
    void *workspace, int64_t number, int32_t (*clock)(int32_t id, int64_t *time), int64_t *nanoseconds) {
    int64_t begin[2], end[2];
    (void)clock(1, begin);
    for (int64_t i = 0; i < number; ++i) {
        const int32_t code = run(args, symbols, workspace);
        if (code != 0) return code;
    }
    (void)clock(1, end);
    *nanoseconds = (end[0] - begin[0]) * 1000000000 + (end[1] - begin[1]);
    return 0;
}

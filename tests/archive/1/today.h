/* today: made by mlcc 0.1.0. Link the object with -lm and nothing else. */
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

#ifndef MLCC_PARALLEL_FOR_FN
#define MLCC_PARALLEL_FOR_FN
/* Calls body(context, begin, end) for ranges that make up 0 .. n - 1, each but the last of at least `grain` indices, in
   any order and on any threads, also while it is at another such call; 0, or what a body returned that is not 0. */
typedef int32_t (*mlcc_parallel_for_fn)(int32_t (*body)(void *context, int64_t begin, int64_t end), void *context,
                                        int64_t n, int64_t grain);
#endif
/* Parallel loops run on a pool of threads that all objects of the program share. It uses as many as the process may use
   CPUs, or MLCC_NUM_THREADS in the environment if that is less, or what is set here (0: the former again); or the
   program's own threads, by a function that replaces the pool (NULL: the pool again). Both are for all objects. */
void today_set_num_threads(int32_t count);
void today_set_parallel_for(mlcc_parallel_for_fn fn);

#ifdef __cplusplus
}
#endif
#endif

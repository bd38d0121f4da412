"""The C functions that host code and kernels share in a file: checks of arguments, memory, errors, packed functions.

They are added to a file's helpers by name, like those of `mlcc.targets.c.helpers`.
"""

from __future__ import annotations

from collections.abc import Iterable

from mlcc.runtime.abi import (
    CPU,
    CUDA_HOST,
    DETAIL_SHIFT,
    FIRST,
    FIRST_UNSIGNED,
    KIND_BY_NAME,
    SECOND,
    SLOT_SHIFT,
    SLOTS,
)
from mlcc.targets.c.expressions import string_literal
from mlcc.targets.plan.tensor_rows import ANY, CODE_AT, DIMENSIONS_AT, NOT_NEGATIVE

ALLOCATE = """
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
#endif"""
TENSOR = """
/* The tensor that a cell of an argument vector points to. */
static inline const DLTensor *tensor_of(int64_t cell) {
    return (const DLTensor *)(uintptr_t)cell;
}"""
DATA = """
/* The address of a tensor's first element. */
static inline unsigned char *data_of(int64_t cell) {
    const DLTensor *tensor = tensor_of(cell);
    return tensor->data == NULL ? NULL : (unsigned char *)tensor->data + tensor->byte_offset;
}"""
POINTER = """
static inline void *pointer_of(int64_t cell) {
    return (void *)(uintptr_t)cell;
}"""
CELL = """
/* A pointer as a cell of an argument vector. */
static inline int64_t cell_of(const void *pointer) {
    return (int64_t)(uintptr_t)pointer;
}"""
FLOAT_CELL = """
static inline int64_t cell_of_double(double value) {
    int64_t cell;
    memcpy(&cell, &value, sizeof cell);
    return cell;
}"""
CELL_FLOAT = """
static inline double double_of(int64_t cell) {
    double value;
    memcpy(&value, &cell, sizeof value);
    return value;
}"""
RANGE = """
/* The addresses of a tensor's first byte and of the one after its last; 0 and 0 if it has none. */
typedef struct {
    uintptr_t begin, end;
} memory_range;"""
CHECK_TENSOR = f"""
/* Check a tensor against a row: dimensions, dtype, bytes of an element, mask of its alignment, whether it is compact;
   error codes; then for each dimension the extent ({ANY}: any, {NOT_NEGATIVE}: not negative) and an error code. */
static int32_t check_tensor(int64_t cell, const int64_t *row, memory_range *range) {{
    const DLTensor *tensor = tensor_of(cell);
    const int64_t *dims = row + {DIMENSIONS_AT};
    uint64_t count = 1;
    uintptr_t begin;
    bool empty = false, compact = true;
    if (tensor == NULL) return (int32_t)row[{CODE_AT["null"]}];
    if (tensor->ndim != row[0]) return (int32_t)row[{CODE_AT["ndim"]}];
    if (((int64_t)tensor->dtype.code | (int64_t)tensor->dtype.bits << 8 | (int64_t)tensor->dtype.lanes << 16) != row[1])
        return (int32_t)row[{CODE_AT["dtype"]}];
    if ((int)tensor->device.device_type != {CPU} && (int)tensor->device.device_type != {CUDA_HOST})
        return (int32_t)row[{CODE_AT["device"]}];
    if (tensor->shape == NULL && row[0] != 0) return (int32_t)row[{CODE_AT["shape"]}];
    for (int64_t i = 0; i < row[0]; ++i) {{
        const int64_t extent = tensor->shape[i], wanted = dims[2 * i];
        if (wanted != {ANY} && (wanted == {NOT_NEGATIVE} ? extent < 0 : extent != wanted))
            return (int32_t)dims[2 * i + 1];
        empty = empty || extent == 0;
    }}
    if (tensor->data == NULL && !empty) return (int32_t)row[{CODE_AT["data"]}];
    begin = (uintptr_t)tensor->data + (uintptr_t)tensor->byte_offset;
    if (!empty && (begin & (uintptr_t)row[3]) != 0) return (int32_t)row[{CODE_AT["align"]}];
    for (int64_t i = row[0]; i-- > 0;) {{
        if (tensor->strides != NULL && tensor->shape[i] != 1 && (uint64_t)tensor->strides[i] != count) compact = false;
        count *= (uint64_t)tensor->shape[i];
    }}
    if (row[4] != 0 && !compact && !empty) return (int32_t)row[{CODE_AT["strides"]}];
    range->begin = empty ? 0 : begin;
    range->end = empty ? 0 : begin + (uintptr_t)(count * (uint64_t)row[2]);
    return 0;
}}"""
STRIDES = """
/* The strides of a tensor in elements. */
static void strides_of(int64_t cell, int64_t *strides) {
    const DLTensor *tensor = tensor_of(cell);
    uint64_t step = 1;
    for (int32_t i = tensor->ndim; i-- > 0;) {
        strides[i] = tensor->strides != NULL ? tensor->strides[i] : (int64_t)step;
        step *= (uint64_t)tensor->shape[i];
    }
}

/* The bytes that a tensor with strides spans. */
static void strided_range(int64_t cell, const int64_t *strides, uint64_t width, memory_range *range) {
    const DLTensor *tensor = tensor_of(cell);
    const uintptr_t begin = (uintptr_t)tensor->data + (uintptr_t)tensor->byte_offset;
    uint64_t low = 0, high = 1;
    bool empty = false;
    for (int32_t i = 0; i < tensor->ndim; ++i) {
        const uint64_t reach = (uint64_t)strides[i] * ((uint64_t)tensor->shape[i] - 1);
        if (strides[i] < 0) low += reach;
        else high += reach;
        empty = empty || tensor->shape[i] == 0;
    }
    range->begin = empty ? 0 : begin + (uintptr_t)(low * width);
    range->end = empty ? 0 : begin + (uintptr_t)(high * width);
}"""
OVERLAPS = """
static bool overlaps(const memory_range *ranges, int32_t count, int32_t number) {
    for (int32_t i = 0; i < count; ++i)
        if (i != number && ranges[i].begin < ranges[number].end && ranges[number].begin < ranges[i].end) return true;
    return false;
}"""
CHECKED = {
    "checked_add": """
/* a + b, which notes overflow. */
static inline int64_t checked_add(int64_t a, int64_t b, bool *overflow) {
    if (b < 0 ? a < INT64_MIN - b : a > INT64_MAX - b) *overflow = true;
    return (int64_t)((uint64_t)a + (uint64_t)b);
}""",
    "checked_sub": """
/* a - b, which notes overflow. */
static inline int64_t checked_sub(int64_t a, int64_t b, bool *overflow) {
    if (b < 0 ? a > INT64_MAX + b : a < INT64_MIN + b) *overflow = true;
    return (int64_t)((uint64_t)a - (uint64_t)b);
}""",
    "checked_mul": """
/* a * b, which notes overflow. */
static inline int64_t checked_mul(int64_t a, int64_t b, bool *overflow) {
    if (a > 0 ? (b > 0 ? a > INT64_MAX / b : b < INT64_MIN / a)
              : (b > 0 ? a < INT64_MIN / b : a != 0 && b < INT64_MAX / a)) *overflow = true;
    return (int64_t)((uint64_t)a * (uint64_t)b);
}""",
}  # fmt: skip


def packed_functions(count: int) -> str:
    """Return the slots of packed functions and the call of one."""
    failed, unset = (KIND_BY_NAME[kind].code for kind in ("PACKED_FAILED", "PACKED_UNSET"))
    return f"""
static struct {{
    mlcc_packed_fn fn;
    void *context;
}} packed_slots[{count}];

/* Call the packed function of a slot. */
static int32_t packed_call(int32_t slot, DLTensor **args, int32_t count) {{
    const int32_t detail = (slot + 1) << {DETAIL_SHIFT};
    if (packed_slots[slot].fn == NULL) return detail | {unset};
    return packed_slots[slot].fn(packed_slots[slot].context, args, count) == 0 ? 0 : detail | {failed};
}}"""


FAULT = f"""
/* The numbers of the last failed checks: an error code says in its upper bits which of them its text has. */
#if defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L && !defined(__STDC_NO_ATOMICS__)
#include <stdatomic.h>
static atomic_uint fault_count;
#define NEXT_FAULT() atomic_fetch_add(&fault_count, 1u)
#else
static unsigned fault_count;
#define NEXT_FAULT() (fault_count++)
#endif
static int64_t fault_numbers[{SLOTS}][2];

/* Note two numbers of a failed check; return its code. */
static int32_t fault(int32_t code, int64_t first, int64_t second) {{
    const unsigned slot = NEXT_FAULT() % {SLOTS}u;
    fault_numbers[slot][0] = first;
    fault_numbers[slot][1] = second;
    return code | (int32_t)((slot + 1u) << {SLOT_SHIFT});
}}"""
_FILL = """
/* A text with numbers in the places of its marks. */
static const char *filled_text(const char *text, unsigned slot) {{
    static char texts[{slots}][{length}];
    char *to = texts[slot];
    for (; *text != 0; ++text) {{
        char digits[20];
        int count = 0;
        uint64_t rest;
        if (*text != {first} && *text != {second} && *text != {unsigned}) {{
            *to++ = *text;
            continue;
        }}
        rest = (uint64_t)fault_numbers[slot][*text == {second}];
        if (*text != {unsigned} && fault_numbers[slot][*text == {second}] < 0) {{
            *to++ = '-';
            rest = 0 - rest;
        }}
        do digits[count++] = (char)('0' + rest % 10);
        while ((rest /= 10) != 0);
        while (count > 0) *to++ = digits[--count];
    }}
    *to = 0;
    return texts[slot];
}}
"""


def error_text(messages: Iterable[tuple[int, str]], has_faults: bool) -> str:
    """Return `error_text(code)`: the text of a code; of its kind where the code is of another file."""
    known = dict(messages)
    rows = "\n".join(f"    {{{code}, {string_literal(text)}}}," for code, text in known.items())
    lines = [
        "",
        "static const struct {",
        "    int32_t code;",
        "    const char *text;",
        "} errors[] = {",
        rows,
        "};",
        "",
    ]
    if has_faults:
        length = 1 + max(
            len(t.encode()) + 20 * sum(map(t.count, (FIRST, SECOND, FIRST_UNSIGNED))) for t in known.values()
        )
        marks = {"first": ord(FIRST), "second": ord(SECOND), "unsigned": ord(FIRST_UNSIGNED)}
        lines += [_FILL.format(slots=SLOTS, length=length, **marks).strip(), ""]
    found = f"slot != 0 && slot <= {SLOTS} ? filled_text(errors[i].text, slot - 1) : errors[i].text"
    lines += ["static const char *error_text(int32_t code) {"]
    lines += [f"    const int32_t number = code & {(1 << SLOT_SHIFT) - 1:#x};"]
    if has_faults:
        lines += [f"    const unsigned slot = (unsigned)code >> {SLOT_SHIFT};"]
    lines += ["    const size_t count = sizeof errors / sizeof errors[0];", "    for (size_t i = 0; i < count; ++i)"]
    lines += [f"        if (errors[i].code == number) return {found if has_faults else 'errors[i].text'};"]
    lines += ["    for (size_t i = 0; i < count; ++i)"]
    lines += ["        if (errors[i].code == (number & 255)) return errors[i].text;"]
    lines += ['    return "unknown error";', "}"]
    return "\n".join(lines)

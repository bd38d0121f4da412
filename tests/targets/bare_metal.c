/* What a program without an operating system's libraries brings itself: an entry, memory functions, and, since user-mode
   emulators stand in for the machine, the two system calls that let it answer. */
#include <stdint.h>

int main(void);
void bare_metal_write(const void *data, uint64_t size);
void bare_metal_start(void);
void *memcpy(void *to, const void *from, __SIZE_TYPE__ size);
void *memmove(void *to, const void *from, __SIZE_TYPE__ size);
void *memset(void *to, int value, __SIZE_TYPE__ size);
int memcmp(const void *a, const void *b, __SIZE_TYPE__ size);

#if defined(__x86_64__)
#define WRITE 1
#define EXIT 60
static long call(long number, long a, const void *b, uint64_t c) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}
double fma(double a, double b, double c);
double fma(double a, double b, double c) { return (double)((long double)a * b + c); } /* nearly: code for FMA has it */
__asm__(".globl _start\n_start: xor %ebp, %ebp\n and $-16, %rsp\n call bare_metal_start");
#else
#define WRITE 64
#define EXIT 93
#if defined(__aarch64__)
static long call(long number, long a, const void *b, uint64_t c) {
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a;
    register const void *x1 __asm__("x1") = b;
    register uint64_t x2 __asm__("x2") = c;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
    return x0;
}
__asm__(".globl _start\n_start: bl bare_metal_start");
#else
static long call(long number, long a, const void *b, uint64_t c) {
    register long a7 __asm__("a7") = number, a0 __asm__("a0") = a;
    register const void *a1 __asm__("a1") = b;
    register uint64_t a2 __asm__("a2") = c;
    __asm__ volatile("ecall" : "+r"(a0) : "r"(a7), "r"(a1), "r"(a2) : "memory");
    return a0;
}
__asm__(".globl _start\n_start: .option push\n.option norelax\nla gp, __global_pointer$\n.option pop\ncall bare_metal_start");
#endif
#endif

void bare_metal_write(const void *data, uint64_t size) {
    const char *at = data;
    while (size) {
        long done = call(WRITE, 1, at, size);
        if (done <= 0) break;
        at += done;
        size -= (uint64_t)done;
    }
}

void bare_metal_start(void) {
    call(EXIT, main(), 0, 0);
    __builtin_unreachable();
}

/* volatile: or a compiler may write them as calls of themselves */
void *memcpy(void *to, const void *from, __SIZE_TYPE__ size) {
    volatile char *t = to;
    const volatile char *f = from;
    while (size--) *t++ = *f++;
    return to;
}

void *memmove(void *to, const void *from, __SIZE_TYPE__ size) {
    volatile char *t = to;
    const volatile char *f = from;
    if ((uintptr_t)to <= (uintptr_t)from) return memcpy(to, from, size);
    while (size--) t[size] = f[size];
    return to;
}

void *memset(void *to, int value, __SIZE_TYPE__ size) {
    volatile char *t = to;
    while (size--) *t++ = (char)value;
    return to;
}

int memcmp(const void *a, const void *b, __SIZE_TYPE__ size) {
    const unsigned char *x = a, *y = b;
    for (; size; size--, x++, y++)
        if (*x != *y) return *x < *y ? -1 : 1;
    return 0;
}

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(n)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static
#define __half half16
#define __nv_bfloat16 bfloat16

#define VECTOR2(name, T) struct alignas(2 * sizeof(T)) name { T x, y; }; \
  static name make_##name(T x, T y) { return {x, y}; }
#define VECTOR4(name, T) struct alignas(4 * sizeof(T)) name { T x, y, z, w; }; \
  static name make_##name(T x, T y, T z, T w) { return {x, y, z, w}; }
#define VECTORS(name, T) VECTOR2(name##2, T) VECTOR4(name##4, T)
VECTORS(char, signed char) VECTORS(uchar, unsigned char) VECTORS(short, short) VECTORS(ushort, unsigned short)
VECTORS(int, int) VECTORS(uint, unsigned) VECTORS(float, float)
VECTOR2(longlong2, long long) VECTOR2(ulonglong2, unsigned long long) VECTOR2(double2, double)

static float __half2float(__half x) { return float(x); }
static __half __float2half_rn(float x) { return __half(x); }
static __half __double2half(double x) { return __half(x); }
static float __bfloat162float(__nv_bfloat16 x) { return float(x); }
static __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
static float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
static double rsqrt(double x) { return 1.0 / std::sqrt(x); }
static int __popc(unsigned x) { return __builtin_popcount(x); }
static int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static int __clz(int x) { return x == 0 ? 32 : __builtin_clz(x); }
static int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(x); }
static void __syncthreads() { sync_block(); }
static void __syncwarp() { sync_warp(); }
static unsigned __activemask() { return warp_of->count == 32 ? ~0u : (1u << warp_of->count) - 1; }
template <typename T> T __shfl_sync(unsigned, T v, int lane, int width) {
  return exchange(v, int(lane_of) / width * width + lane % width);
}
template <typename T> T __shfl_up_sync(unsigned, T v, int by, int width) {
  return exchange(v, in_group(int(lane_of) - by, width));
}
template <typename T> T __shfl_down_sync(unsigned, T v, int by, int width) {
  return exchange(v, in_group(int(lane_of) + by, width));
}
template <typename T> T __shfl_xor_sync(unsigned, T v, int mask, int width) {
  return exchange(v, in_group(int(lane_of) ^ mask, width));
}
using std::isfinite; using std::isinf; using std::isnan; using std::fmod; using std::copysign;

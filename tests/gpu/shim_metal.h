#define kernel
#define device
#define constant const
#define threadgroup
typedef half16 half;
typedef bfloat16 bfloat;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef Place uint3;

#define VECTOR2(name, T) struct alignas(2 * sizeof(T)) name { T x, y; \
  name(T a, T b) : x(a), y(b) {} explicit name(T a = T()) : x(a), y(a) {} };
#define VECTOR4(name, T) struct alignas(4 * sizeof(T)) name { T x, y, z, w; \
  name(T a, T b, T c, T d) : x(a), y(b), z(c), w(d) {} explicit name(T a = T()) : x(a), y(a), z(a), w(a) {} };
#define VECTORS(name, T) VECTOR2(name##2, T) VECTOR4(name##4, T)
VECTORS(char, char) VECTORS(uchar, uchar) VECTORS(short, short) VECTORS(ushort, ushort) VECTORS(int, int)
VECTORS(uint, uint) VECTORS(long, long) VECTORS(ulong, ulong) VECTORS(half, half) VECTORS(float, float)
VECTORS(bfloat, bfloat)

namespace mem_flags { enum { mem_device = 1, mem_threadgroup = 2 }; }
static void threadgroup_barrier(int) { sync_block(); }
static void simdgroup_barrier(int) { sync_warp(); }
template <typename T> T simd_shuffle(T v, int lane) { return exchange(v, lane); }
template <typename T> T simd_shuffle_up(T v, int by) { return exchange(v, int(lane_of) - by); }
template <typename T> T simd_shuffle_down(T v, int by) { return exchange(v, int(lane_of) + by); }
template <typename T> T simd_shuffle_xor(T v, int mask) { return exchange(v, int(lane_of) ^ mask); }
template <typename T, typename F> T as_type(F x) {
  static_assert(sizeof(T) == sizeof(F));
  T y;
  std::memcpy(&y, &x, sizeof(T));
  return y;
}
template <typename T> T popcount(T x) { return T(__builtin_popcountll(std::make_unsigned_t<T>(x))); }
template <typename T> T clz(T x) {
  const unsigned long long u = std::make_unsigned_t<T>(x);
  return T(u == 0 ? 8 * sizeof(T) : __builtin_clzll(u) - (64 - 8 * sizeof(T)));
}
namespace precise {
using std::acos; using std::acosh; using std::asin; using std::asinh; using std::atan; using std::atanh; using std::cos;
using std::cosh; using std::sin; using std::sinh; using std::tan; using std::tanh; using std::exp; using std::exp2;
using std::log; using std::log2; using std::log10; using std::sqrt; using std::pow; using std::fmod; using std::atan2;
static float exp10(float x) { return std::pow(10.0f, x); }
static float rsqrt(float x) { return 1.0f / std::sqrt(x); }
}  // namespace precise
using std::fma; using std::fabs; using std::floor; using std::ceil; using std::trunc; using std::rint;
using std::copysign; using std::isfinite; using std::isinf; using std::isnan; using std::ldexp; using std::fmod;

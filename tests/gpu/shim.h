// Runs kernels of CUDA C or Metal on a CPU: a thread of the machine for each thread of a block, one block at a time.
#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

struct Place { unsigned x, y, z; };
static thread_local Place threadIdx, blockIdx;
static thread_local unsigned lane_of;
static thread_local struct Warp* warp_of;
static std::barrier<>* block_barrier;
alignas(16) static unsigned char dynamic_shared[1 << 18];

struct Warp {
  std::barrier<> barrier;
  unsigned count;
  unsigned char slots[32][16];
  explicit Warp(unsigned n) : barrier(n), count(n) {}
};

static void run_grid(Place grid, Place block, const std::function<void()>& body) {
  const unsigned count = block.x * block.y * block.z;
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; ++x) {
        std::barrier<> all(count);
        block_barrier = &all;
        std::vector<std::unique_ptr<Warp>> warps;
        for (unsigned at = 0; at < count; at += 32) warps.push_back(std::make_unique<Warp>(std::min(32u, count - at)));
        std::vector<std::thread> threads;
        for (unsigned t = 0; t < count; ++t)
          threads.emplace_back([&, t] {
            blockIdx = {x, y, z};
            threadIdx = {t % block.x, t / block.x % block.y, t / block.x / block.y};
            warp_of = warps[t / 32].get();
            lane_of = t % 32;
            body();
            all.arrive_and_drop();
          });
        for (auto& t : threads) t.join();
      }
}

static void sync_block() { block_barrier->arrive_and_wait(); }
static void sync_warp() { warp_of->barrier.arrive_and_wait(); }

// the value of another lane; one's own where there is none
template <typename T> static T exchange(T value, int from) {
  std::memcpy(warp_of->slots[lane_of], &value, sizeof(T));
  sync_warp();
  if (from >= 0 && from < int(warp_of->count)) std::memcpy(&value, warp_of->slots[from], sizeof(T));
  sync_warp();
  return value;
}
static int in_group(int from, int width) { return from / width == int(lane_of) / width ? from : int(lane_of); }

typedef _Float16 half16;
struct bfloat16 {
  uint16_t bits;
  bfloat16() = default;
  explicit bfloat16(float x) {
    uint32_t u;
    std::memcpy(&u, &x, 4);
    bits = x != x ? uint16_t(u >> 16 | 64) : uint16_t((u + 0x7fff + (u >> 16 & 1)) >> 16);
  }
  explicit operator float() const {
    uint32_t u = uint32_t(bits) << 16;
    float x;
    std::memcpy(&x, &u, 4);
    return x;
  }
};

// an argument of a launch, by its address
struct Arg {
  void* p;
  template <typename T> operator T*() const { return static_cast<T*>(p); }
  template <typename T, typename = std::enable_if_t<!std::is_pointer_v<T>>> operator T() const {
    return *static_cast<T*>(p);
  }
};

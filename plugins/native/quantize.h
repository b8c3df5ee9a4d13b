// Activations as int8 with a scale per group, the form that integer products take.
//
// Quantized rows lie in memory in blocks of 16, padded to 64 bytes: int8 numbers [16][width, padded to 64], float scales
// [groups][16], int32 sums of the numbers [groups][16]. A number is round(x / scale) with scale = max |x| / 127 over its
// group, or with a fixed scale, cut at 127. A group that holds a NaN or an infinity gets a NaN for its scale, which then
// shows in every result.
#pragma once
#include "plugins/native/vector.h"

namespace FORERUN_ISA {

constexpr int BLOCK_ROWS = 16;
constexpr float LEAST_PEAK = 0x1p-120f;  // below it a group counts as zeros: 127 / peak would be no number

struct QuantizedBlock {
  int64_t width;  // a multiple of the group
  int group;
  FORERUN_INLINE_MEMBER int64_t num_groups() const { return width / group; }
  FORERUN_INLINE_MEMBER int64_t stride() const { return round_up(width, 64); }
  FORERUN_INLINE_MEMBER int64_t scales_at() const { return BLOCK_ROWS * stride(); }
  FORERUN_INLINE_MEMBER int64_t sums_at() const { return scales_at() + 4 * BLOCK_ROWS * num_groups(); }
  FORERUN_INLINE_MEMBER int64_t num_bytes() const { return sums_at() + 4 * BLOCK_ROWS * num_groups(); }
};

FORERUN_INLINE void store_int8(int8_t* to, Ints value) {
#if defined(__AVX512F__)
  _mm_storeu_si128((__m128i*)to, _mm512_cvtepi32_epi8((__m512i)value));
#else
  for (int i = 0; i < LANES; i++) to[i] = (int8_t)value[i];
#endif
}

FORERUN_INLINE int32_t sum_ints(Ints value) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_epi32((__m512i)value);
#else
  int32_t total = 0;
  for (int i = 0; i < LANES; i++) total += value[i];
  return total;
#endif
}

FORERUN_INLINE float largest_lane(Floats value) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_ps((__m512)value);
#else
  return largest(value);
#endif
}

// The largest magnitude of some numbers, and whether a NaN or an infinity is among them: then the first means nothing.
struct Extent {
  float top;
  bool is_poisoned;
};

FORERUN_INLINE Extent extent_of(const float* from, int64_t width) {
  Floats peak{};
  Ints poison{};
  for (int64_t i = 0; i < width; i += LANES) {
    const Floats value = load(from + i);
    peak = larger(peak, magnitude(value));
    poison |= (Ints)(value * 0.0f != Floats{});
  }
  return {largest_lane(peak), has_any(poison)};
}

// Rounds to 127 steps of a scale at most, either way; -128 would overflow where instructions negate a factor (int8_dot.h).
FORERUN_INLINE Ints rounded_to_steps(Floats value, float scale) {
  const Floats steps = value / scale, least = larger(all(-127.0f), steps);
  return rounded(least < all(127.0f) ? least : all(127.0f));
}

// Quantizes the numbers of group `index` of a row with a fixed scale, or, if that is 0, with one of their own; `rows` are
// all rows, from the first block on.
FORERUN_INLINE void quantize_group(
    const float* from, char* rows, QuantizedBlock layout, int64_t row, int64_t index, float fixed) {
  const auto [top, is_poisoned] = extent_of(from, layout.group);
  const bool is_seen = top >= LEAST_PEAK;
  const float scale = is_poisoned ? NAN : fixed > 0 ? fixed : is_seen ? top / 127.0f : 0.0f;
  const Floats inverse = all(is_seen && !is_poisoned ? 127.0f / top : 0.0f);
  char* block = rows + row / BLOCK_ROWS * layout.num_bytes();
  const int64_t place = row % BLOCK_ROWS;
  int8_t* to = (int8_t*)block + place * layout.stride() + index * layout.group;
  Ints total{};
  for (int i = 0; i < layout.group; i += LANES) {
    const Floats value = load(from + i);
    const Ints number = is_poisoned ? Ints{} : fixed > 0 ? rounded_to_steps(value, fixed) : rounded(value * inverse);
    store_int8(to + i, number);
    total += number;
  }
  ((float*)(block + layout.scales_at()))[BLOCK_ROWS * index + place] = scale;
  ((int32_t*)(block + layout.sums_at()))[BLOCK_ROWS * index + place] = sum_ints(total);
}

}  // namespace FORERUN_ISA

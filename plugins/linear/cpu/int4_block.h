// Up to 16 rows times some panels of 4-bit weights, to float32; and the same panels as int8, for many rows.
//
// A panel holds 16 outputs: bytes [size_in / 8][16][4], of each eight inputs the first four in the lower halves of the
// bytes and the last four in the upper halves; half scales [weight groups][16]; where the form has them, zero points
// [weight groups][16] in a byte each. Scales and zero points are padded to 64 bytes. Without zero points all are 8.
// A zero point enters the integer sum, which is exact: so an output has the bits that int8 weights q - zero would give,
// whichever way it is computed.
#pragma once
#include "plugins/linear/cpu/int8_block.h"

namespace FORERUN_ISA {

struct Int4Factors {
  Int8Factors rows;  // and the panels; they are of 4 bits
  bool has_zeros;

  FORERUN_INLINE_MEMBER int64_t num_scales() const { return rows.layout.width / rows.weight_group; }
  FORERUN_INLINE_MEMBER int64_t scales_at() const { return 8 * rows.layout.width; }
  FORERUN_INLINE_MEMBER int64_t zeros_at() const { return scales_at() + round_up(32 * num_scales(), 64); }
  FORERUN_INLINE_MEMBER int64_t panel_bytes() const { return zeros_at() + (has_zeros ? round_up(16 * num_scales(), 64) : 0); }
  FORERUN_INLINE_MEMBER const char* weights(int panel) const { return rows.panels + panel * panel_bytes(); }
  FORERUN_INLINE_MEMBER const uint16_t* weight_scales(int panel) const { return (const uint16_t*)(weights(panel) + scales_at()); }
  FORERUN_INLINE_MEMBER Ints zeros(int panel, int64_t index) const {
    if (!has_zeros) return all_ints(8);
    return load_bytes((const uint8_t*)weights(panel) + zeros_at() + 16 * index);
  }
};

FORERUN_INLINE Bits load_bits(const void* from) {
  Bits value;
  memcpy(&value, from, sizeof value);
  return value;
}
FORERUN_INLINE Bits lower_halves(Bits bytes) { return bytes & 0x0f0f0f0fu; }
FORERUN_INLINE Bits upper_halves(Bits bytes) { return bytes >> 4 & 0x0f0f0f0fu; }

// Rows [first, first + M) by panels [0, P), to `out` of `stride` floats per row.
template <int M, int P>
FORERUN_APART void int4_rows(const Int4Factors& f, int first, float* out, int64_t stride) {
  const int64_t row_bytes = f.rows.layout.stride(), panel_bytes = f.panel_bytes(), num_scales = f.num_scales();
  const int8_t* a = f.rows.numbers() + first * row_bytes;
  const float* scales = f.rows.scales() + first;
  const int32_t* sums = f.rows.sums() + first;
  const char* w = f.weights(0);
  const int group = f.rows.layout.group, together = f.rows.groups_per_scale();
  Floats results[M][P] = {};
  fetch_scales(f.weights(P) + f.scales_at(), panel_bytes - f.scales_at(), P, panel_bytes);
  for (int64_t s = 0; s < num_scales; s++) {
    Ints zeros[P];
    Floats steps[P];
#pragma GCC unroll 4
    for (int p = 0; p < P; p++) zeros[p] = f.zeros(p, s), steps[p] = load_halves(f.weight_scales(p) + 16 * s);
    for (int i = 0; i < together; i++, a += group, w += 8 * group, scales += BLOCK_ROWS, sums += BLOCK_ROWS) {
      Ints totals[M][P];
#pragma GCC unroll 8
      for (int m = 0; m < M; m++)
#pragma GCC unroll 4
        for (int p = 0; p < P; p++) totals[m][p] = start_of_dots(zeros[p], sums[m]);
      for (int k = 0; k < group; k += 8) {
        Bits low[P], high[P];
#pragma GCC unroll 4
        for (int p = 0; p < P; p++) {
          const Bits bytes = load_bits(w + p * panel_bytes + 8 * k);
          __builtin_prefetch(w + p * panel_bytes + 8 * k + 2048);
          low[p] = lower_halves(bytes), high[p] = upper_halves(bytes);
        }
#pragma GCC unroll 8
        for (int m = 0; m < M; m++) {
          int32_t four, next;
          memcpy(&four, a + m * row_bytes + k, sizeof four);
          memcpy(&next, a + m * row_bytes + k + 4, sizeof next);
#pragma GCC unroll 4
          for (int p = 0; p < P; p++)
            totals[m][p] = add_nibble_dots(add_nibble_dots(totals[m][p], low[p], four), high[p], next);
        }
      }
#pragma GCC unroll 4
      for (int p = 0; p < P; p++)
#pragma GCC unroll 8
        for (int m = 0; m < M; m++)
          results[m][p] = fused(to_floats(totals[m][p]), steps[p] * scales[m], results[m][p]);
    }
  }
  for (int m = 0; m < M; m++)
    for (int p = 0; p < P; p++) store(out + m * stride + 16 * p, results[m][p]);
}

template <int M>
FORERUN_INLINE void int4_panels(const Int4Factors& f, int first, int num_panels, float* out, int64_t stride) {
  Int4Factors rest = f;
  int p = 0;
  for (; p + 2 <= num_panels; p += 2, rest.rows.panels += 2 * f.panel_bytes()) int4_rows<M, 2>(rest, first, out + 16 * p, stride);
  if (p < num_panels) int4_rows<M, 1>(rest, first, out + 16 * p, stride);
}

// The first 1 to 16 rows of a block by `num_panels` panels.
static void int4_block(const Int4Factors& f, int num_rows, int num_panels, float* out, int64_t stride) {
  for (int first = 0; first < num_rows; first += 4, out += 4 * stride) {
    const int taken = num_rows - first;
    if (taken >= 4) int4_panels<4>(f, first, num_panels, out, stride);
    if (taken == 3) int4_panels<3>(f, first, num_panels, out, stride);
    if (taken == 2) int4_panels<2>(f, first, num_panels, out, stride);
    if (taken == 1) int4_panels<1>(f, first, num_panels, out, stride);
  }
}

typedef int8_t Bytes __attribute__((vector_size(64), may_alias));

// Writes panels as int8 weights q - zero, with the same scales.
FORERUN_APART void unpack_int4(const Int4Factors& f, int num_panels, char* to) {
  const int64_t width = f.rows.layout.width, group = f.rows.weight_group;
  for (int p = 0; p < num_panels; p++, to += f.rows.panel_bytes()) {
    const char* w = f.weights(p);
    for (int64_t s = 0; s < f.num_scales(); s++) {
      const Bytes zeros = (Bytes)(f.zeros(p, s) * 0x01010101);
      for (int64_t k = s * group; k < (s + 1) * group; k += 8) {
        const Bits bytes = load_bits(w + 8 * k);
        __builtin_prefetch(w + 8 * k + 2048);
        const Bytes low = (Bytes)lower_halves(bytes) - zeros, high = (Bytes)upper_halves(bytes) - zeros;
        memcpy(to + 16 * k, &low, sizeof low), memcpy(to + 16 * k + 64, &high, sizeof high);
      }
    }
    memcpy(to + 16 * width, f.weight_scales(p), 32 * f.num_scales());
  }
}

}  // namespace FORERUN_ISA

// Up to 16 rows times some panels of bfloat16 weights, to float32. A panel holds 16 outputs: [size_in / 2][16][2].
//
// Rows are bfloat16 too. A build has one way to add for every number of rows: matrix tiles, products of pairs, or one
// chain of fused additions over the inputs in ascending order. So an output's bits depend on its row alone.
#pragma once
#include "plugins/native/bfloat16.h"
#include "plugins/native/tiles.h"

namespace FORERUN_ISA {

struct Bfloat16Factors {
  const char* rows;
  int64_t row_bytes;
  const char* panels;
  int64_t size_in;  // a multiple of 32

  FORERUN_INLINE_MEMBER int64_t panel_bytes() const { return 32 * size_in; }
};

#if defined(__AMX_BF16__)
constexpr int64_t BFLOAT16_AHEAD = 4096;  // bytes between what is multiplied and what is fetched

// 16 rows by one panel, or by two that share what is loaded of the rows. All 16 rows must exist, whatever they hold.
FORERUN_APART void bfloat16_tile(const Bfloat16Factors& f, float* out, int64_t stride) {
  const char *a = f.rows, *w = f.panels;
  _tile_zero(0);
  for (int64_t k = 0; k < f.size_in; k += 32, a += 64, w += 1024) {
    for (int line = 0; line < 1024; line += 64) __builtin_prefetch(w + line + BFLOAT16_AHEAD);
    _tile_loadd(4, a, f.row_bytes);
    _tile_loadd(5, w, 64);
    _tile_dpbf16ps(0, 4, 5);
  }
  _tile_stored(0, out, 4 * stride);
}

FORERUN_APART void bfloat16_two_tiles(const Bfloat16Factors& f, float* out, int64_t stride) {
  const char *a = f.rows, *w = f.panels, *next = f.panels + f.panel_bytes();
  _tile_zero(0);
  _tile_zero(1);
  for (int64_t k = 0; k < f.size_in; k += 32, a += 64, w += 1024, next += 1024) {
    for (int line = 0; line < 1024; line += 64) {
      __builtin_prefetch(w + line + BFLOAT16_AHEAD);
      __builtin_prefetch(next + line + BFLOAT16_AHEAD);
    }
    _tile_loadd(4, a, f.row_bytes);
    _tile_loadd(5, w, 64);
    _tile_dpbf16ps(0, 4, 5);
    _tile_loadd(5, next, 64);
    _tile_dpbf16ps(1, 4, 5);
  }
  _tile_stored(0, out, 4 * stride);
  _tile_stored(1, out + 16, 4 * stride);
}

// `out` has room for 16 rows.
static void bfloat16_block(const Bfloat16Factors& f, int, int num_panels, float* out, int64_t stride) {
  Bfloat16Factors rest = f;
  int p = 0;
  before_tiles();
  for (; p + 2 <= num_panels; p += 2, rest.panels += 2 * f.panel_bytes()) bfloat16_two_tiles(rest, out + 16 * p, stride);
  if (p < num_panels) bfloat16_tile(rest, out + 16 * p, stride);
}
#else
FORERUN_INLINE Floats add_pairs(Floats total, Bits weights, uint32_t pair) {
#if defined(__AVX512BF16__)
  return (Floats)_mm512_dpbf16_ps((__m512)total, (__m512bh)weights, (__m512bh)_mm512_set1_epi32((int)pair));
#else
  total = fused(first_of_pairs(weights), all(from_bfloat16((uint16_t)pair)), total);
  return fused(second_of_pairs(weights), all(from_bfloat16((uint16_t)(pair >> 16))), total);
#endif
}

template <int M, int P>
FORERUN_APART void bfloat16_rows(const Bfloat16Factors& f, float* out, int64_t stride) {
  const int64_t panel_bytes = f.panel_bytes();
  const char *a = f.rows, *w = f.panels;
  Floats results[M][P] = {};
  for (int64_t k = 0; k < f.size_in; k += 2, a += 4, w += 64) {
    Bits weights[P];
#pragma GCC unroll 4
    for (int p = 0; p < P; p++) {
      memcpy(&weights[p], w + p * panel_bytes, sizeof weights[p]);
      __builtin_prefetch(w + p * panel_bytes + 2048);
    }
#pragma GCC unroll 8
    for (int m = 0; m < M; m++) {
      uint32_t pair;
      memcpy(&pair, a + m * f.row_bytes, sizeof pair);
#pragma GCC unroll 4
      for (int p = 0; p < P; p++) results[m][p] = add_pairs(results[m][p], weights[p], pair);
    }
  }
  for (int m = 0; m < M; m++)
    for (int p = 0; p < P; p++) store(out + m * stride + 16 * p, results[m][p]);
}

template <int M>
FORERUN_INLINE void bfloat16_panels(const Bfloat16Factors& f, int num_panels, float* out, int64_t stride) {
  Bfloat16Factors rest = f;
  int p = 0;
  for (; p + 2 <= num_panels; p += 2, rest.panels += 2 * f.panel_bytes()) bfloat16_rows<M, 2>(rest, out + 16 * p, stride);
  if (p < num_panels) bfloat16_rows<M, 1>(rest, out + 16 * p, stride);
}

static void bfloat16_block(const Bfloat16Factors& f, int num_rows, int num_panels, float* out, int64_t stride) {
  Bfloat16Factors rest = f;
  while (num_rows > 0) {
    const int taken = num_rows >= 8 ? 8 : num_rows >= 4 ? 4 : 1;
    if (taken == 8) bfloat16_panels<8>(rest, num_panels, out, stride);
    if (taken == 4) bfloat16_panels<4>(rest, num_panels, out, stride);
    if (taken == 1) bfloat16_panels<1>(rest, num_panels, out, stride);
    num_rows -= taken, out += taken * stride, rest.rows += taken * f.row_bytes;
  }
}
#endif

}  // namespace FORERUN_ISA

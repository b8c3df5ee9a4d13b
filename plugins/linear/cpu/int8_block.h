// Up to 16 rows times some panels of int8 weights, to float32: the integer core of quantized linear layers.
//
// A panel holds 16 outputs: int8 numbers [size_in / 4][16][4], then half scales [weight groups][16], padded to 64 bytes.
// A group is one of the activations; a weight group is one of them or several. An output adds `float(sum of a group) * (weight scale * activation scale)` over the groups in ascending order, fused,
// whatever the number of rows and whichever of the two routines ran: so its bits depend on its own row alone.
// The cores stay functions of their own: with an epilogue inlined, compilers spill the accumulators.
#pragma once
#include "plugins/linear/cpu/int8_dot.h"
#include "plugins/native/half.h"
#include "plugins/native/quantize.h"
#include "plugins/native/tiles.h"

namespace FORERUN_ISA {

struct Int8Factors {
  const char* block;  // of 16 quantized rows, of which the first are wanted
  QuantizedBlock layout;
  const char* panels;
  int weight_group;

  FORERUN_INLINE_MEMBER int64_t panel_bytes() const { return 16 * layout.width + round_up(32 * (layout.width / weight_group), 64); }
  FORERUN_INLINE_MEMBER int64_t scale_bytes() const { return 32 * (layout.width / weight_group); }
  FORERUN_INLINE_MEMBER int groups_per_scale() const { return weight_group / layout.group; }
  FORERUN_INLINE_MEMBER const int8_t* numbers() const { return (const int8_t*)block; }
  FORERUN_INLINE_MEMBER const float* scales() const { return (const float*)(block + layout.scales_at()); }
  FORERUN_INLINE_MEMBER const int32_t* sums() const { return (const int32_t*)(block + layout.sums_at()); }
  FORERUN_INLINE_MEMBER const int8_t* weights(int panel) const { return (const int8_t*)panels + panel * panel_bytes(); }
  FORERUN_INLINE_MEMBER const uint16_t* weight_scales(int panel) const {
    return (const uint16_t*)(panels + panel * panel_bytes() + 16 * layout.width);
  }
};

// Asks for the scales of panels to come. They lie behind their panel's numbers, where reading in order would fetch them
// last, and are needed first.
FORERUN_INLINE void fetch_scales(const char* scales, int64_t num_bytes, int num_panels, int64_t panel_bytes) {
  for (int p = 0; p < num_panels; p++, scales += panel_bytes)
    for (int64_t line = 0; line < num_bytes; line += 64) __builtin_prefetch(scales + line);
}

// Rows [first, first + M) by panels [0, P), to `out` of `stride` floats per row.
template <int M, int P>
FORERUN_APART void int8_rows(const Int8Factors& f, int first, float* out, int64_t stride) {
  const int64_t row_bytes = f.layout.stride(), panel_bytes = f.panel_bytes(), groups = f.layout.num_groups();
  const int together = f.groups_per_scale();
  const int8_t* a = f.numbers() + first * row_bytes;
  const float* scales = f.scales() + first;
  const int32_t* sums = f.sums() + first;
  const int8_t* w = f.weights(0);
  const int group = f.layout.group;
  Floats results[M][P] = {};
  int64_t weight_scale = 0;
  fetch_scales((const char*)f.weight_scales(P), f.scale_bytes(), P, panel_bytes);
  for (int64_t g = 0, left = together; g < groups; g++, a += group, w += 16 * group) {
    Ints totals[M][P];
#pragma GCC unroll 8
    for (int m = 0; m < M; m++)
#pragma GCC unroll 4
      for (int p = 0; p < P; p++) totals[m][p] = start_of_dots(sums[BLOCK_ROWS * g + m]);
    for (int k = 0; k < group; k += 4) {
#pragma GCC unroll 8
      for (int m = 0; m < M; m++) {
        int32_t four;
        memcpy(&four, a + m * row_bytes + k, sizeof four);
#pragma GCC unroll 4
        for (int p = 0; p < P; p++) {
          if (m == 0) __builtin_prefetch(w + p * panel_bytes + 16 * k + 2048);
          totals[m][p] = add_dots(totals[m][p], w + p * panel_bytes + 16 * k, four);
        }
      }
    }
#pragma GCC unroll 4
    for (int p = 0; p < P; p++) {
      const Floats scale = load_halves(f.weight_scales(p) + 16 * weight_scale);
#pragma GCC unroll 8
      for (int m = 0; m < M; m++)
        results[m][p] = fused(to_floats(totals[m][p]), scale * scales[BLOCK_ROWS * g + m], results[m][p]);
    }
    if (!--left) weight_scale++, left = together;
  }
  for (int m = 0; m < M; m++)
    for (int p = 0; p < P; p++) store(out + m * stride + 16 * p, results[m][p]);
}

#if defined(__AMX_INT8__)
constexpr int64_t GROUPS_TOGETHER = 16;  // their products, 16 KiB, stay in the first cache
constexpr int PREFETCH_BYTES = 4096;     // ahead of what is multiplied

// Products of one group by one panel in a tile. Tiles are named by constants in the instruction, hence a macro.
#define FORERUN_MULTIPLY(TILE, a, stride, w, group) \
  _tile_zero(TILE);                                 \
  if (group == 32) {                                \
    _tile_loadd(2, a, stride);                      \
    _tile_loadd(3, w, 64);                          \
    _tile_dpbssd(TILE, 2, 3);                       \
  } else {                                          \
    for (int k = 0; k < group; k += 64) {           \
      _tile_loadd(4, (a) + k, stride);              \
      _tile_loadd(5, (w) + 16 * k, 64);             \
      _tile_dpbssd(TILE, 4, 5);                     \
    }                                               \
  }

// Products of `count` groups by one panel, 16 by 16 int32 each. Four tiles take turns, as each takes long to be ready.
FORERUN_INLINE void multiply_groups(
    const int8_t* a, int64_t stride, const int8_t* w, int group, int64_t count, int32_t* to) {
  before_tiles();
  const int64_t step = 16 * group;
  int64_t g = 0;
  for (; g + 4 <= count; g += 4, a += 4 * group, w += 4 * step, to += 4 * 256) {
    for (int64_t ahead = 0; ahead < 4 * step; ahead += 64) __builtin_prefetch(w + ahead + PREFETCH_BYTES);
    FORERUN_MULTIPLY(0, a, stride, w, group)
    FORERUN_MULTIPLY(1, a + group, stride, w + step, group)
    FORERUN_MULTIPLY(6, a + 2 * group, stride, w + 2 * step, group)
    FORERUN_MULTIPLY(7, a + 3 * group, stride, w + 3 * step, group)
    _tile_stored(0, to, 64);
    _tile_stored(1, to + 256, 64);
    _tile_stored(6, to + 512, 64);
    _tile_stored(7, to + 768, 64);
  }
  for (; g < count; g++, a += group, w += step, to += 256) {
    FORERUN_MULTIPLY(0, a, stride, w, group)
    _tile_stored(0, to, 64);
  }
}

// Adds one group's products to the results of M rows.
template <int M>
FORERUN_INLINE void add_group(const int32_t* totals, const uint16_t* weight_scales, const float* scales, Floats* results) {
  const Floats scale = load_halves(weight_scales);
#pragma GCC unroll 16
  for (int m = 0; m < M; m++) {
    Ints total;
    memcpy(&total, totals + 16 * m, sizeof total);
    results[m] = fused(to_floats(total), scale * scales[m], results[m]);
  }
}

// The block's 16 rows (M of them wanted) by one panel. Tiles and vectors work in turns of some groups: mixed more finely
// they hold each other up (measured: 1.4 times the time).
template <int M>
FORERUN_APART void int8_tile(const Int8Factors& f, int panel, float* out, int64_t stride) {
  alignas(64) int32_t totals[GROUPS_TOGETHER * 256];
  const int64_t row_bytes = f.layout.stride(), groups = f.layout.num_groups();
  const int group = f.layout.group;
  const int8_t *a = f.numbers(), *w = f.weights(panel);
  const float* scales = f.scales();
  const uint16_t* weight_scales = f.weight_scales(panel);
  const int together = f.groups_per_scale();
  int left = together;
  Floats results[M] = {};
  fetch_scales((const char*)f.weight_scales(panel + 1), f.scale_bytes(), 1, 0);
  for (int64_t first = 0; first < groups; first += GROUPS_TOGETHER) {
    const int64_t count = groups - first < GROUPS_TOGETHER ? groups - first : GROUPS_TOGETHER;
    multiply_groups(a + first * group, row_bytes, w + first * 16 * group, group, count, totals);
    for (int64_t g = 0; g < count; g++) {
      add_group<M>(totals + 256 * g, weight_scales, scales + BLOCK_ROWS * (first + g), results);
      if (!--left) weight_scales += 16, left = together;
    }
  }
#pragma GCC unroll 16
  for (int m = 0; m < M; m++) store(out + m * stride, results[m]);
}
constexpr int LEAST_TILE_ROWS = 8;  // below, vectors are as fast or faster
#endif

template <int M>
FORERUN_INLINE void int8_panels(const Int8Factors& f, int first, int num_panels, float* out, int64_t stride) {
  Int8Factors rest = f;
  int p = 0;
  for (; p + 2 <= num_panels; p += 2, rest.panels += 2 * f.panel_bytes()) int8_rows<M, 2>(rest, first, out + 16 * p, stride);
  if (p < num_panels) int8_rows<M, 1>(rest, first, out + 16 * p, stride);
}

// The first 1 to 16 rows of a block by `num_panels` panels. All 16 must exist in memory, whatever they hold.
static void int8_block(const Int8Factors& f, int num_rows, int num_panels, float* out, int64_t stride) {
#if defined(__AMX_INT8__)
  if (num_rows >= LEAST_TILE_ROWS) {
    for (int p = 0; p < num_panels; p++) {
      if (num_rows > 8)
        int8_tile<16>(f, p, out + 16 * p, stride);
      else
        int8_tile<8>(f, p, out + 16 * p, stride);
    }
    return;
  }
#endif
  for (int first = 0; first < num_rows; first += 4, out += 4 * stride) {
    const int taken = num_rows - first;
    if (taken >= 4) int8_panels<4>(f, first, num_panels, out, stride);
    if (taken == 3) int8_panels<3>(f, first, num_panels, out, stride);
    if (taken == 2) int8_panels<2>(f, first, num_panels, out, stride);
    if (taken == 1) int8_panels<1>(f, first, num_panels, out, stride);
  }
}

}  // namespace FORERUN_ISA

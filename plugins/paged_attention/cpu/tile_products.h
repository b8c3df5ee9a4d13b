// The two products of attention with matrix tiles: bfloat16 factors, 16 query rows at a time.
#pragma once
#include "plugins/native/tiles.h"
#include "plugins/paged_attention/cpu/span.h"

namespace FORERUN_ISA {

#if defined(__AMX_BF16__)
// The query stays in tiles 4 to 7, its odd half-depth part in tile 2.
template <int WHOLE>
FORERUN_APART void tile_scores(const uint16_t* query, int64_t depth, const Span& span, Runs runs, float* scores) {
  before_tiles();
  const bool has_half = depth % 32 != 0;
  if (WHOLE > 0) _tile_loadd(4, query, 2 * depth);
  if (WHOLE > 1) _tile_loadd(5, query + 32, 2 * depth);
  if (WHOLE > 2) _tile_loadd(6, query + 64, 2 * depth);
  if (WHOLE > 3) _tile_loadd(7, query + 96, 2 * depth);
  if (has_half) _tile_loadd(2, query + 32 * WHOLE, 2 * depth);
  for (int run = runs.begin; run < runs.end; run++) {
    const char* keys = span.keys[run];
    _tile_zero(0);
    if (WHOLE > 0) { _tile_loadd(1, keys, 64); _tile_dpbf16ps(0, 4, 1); }
    if (WHOLE > 1) { _tile_loadd(1, keys + 1024, 64); _tile_dpbf16ps(0, 5, 1); }
    if (WHOLE > 2) { _tile_loadd(1, keys + 2048, 64); _tile_dpbf16ps(0, 6, 1); }
    if (WHOLE > 3) { _tile_loadd(1, keys + 3072, 64); _tile_dpbf16ps(0, 7, 1); }
    if (has_half) { _tile_loadd(3, keys + 1024 * WHOLE, 64); _tile_dpbf16ps(0, 2, 3); }
    _tile_stored(0, scores + run * RUN, SPAN * sizeof(float));
  }
}

// More dimensions than the tiles hold at once.
FORERUN_APART void deep_tile_scores(const uint16_t* query, int64_t depth, const Span& span, Runs runs, float* scores) {
  before_tiles();
  for (int run = runs.begin; run < runs.end; run++) {
    _tile_zero(0);
    int64_t d = 0;
    for (; d + 32 <= depth; d += 32) {
      _tile_loadd(4, query + d, 2 * depth);
      _tile_loadd(5, span.keys[run] + d * 32, 64);
      _tile_dpbf16ps(0, 4, 5);
    }
    if (d < depth) {
      _tile_loadd(2, query + d, 2 * depth);
      _tile_loadd(3, span.keys[run] + d * 32, 64);
      _tile_dpbf16ps(0, 2, 3);
    }
    _tile_stored(0, scores + run * RUN, SPAN * sizeof(float));
  }
}

// Weighed values of dimensions [d, d + 16 COUNT).
template <int COUNT>
FORERUN_APART void tile_values(const uint16_t* weights, int64_t depth, const Span& span, Runs runs, int64_t d, float* to) {
  before_tiles();
  _tile_zero(0);
  if (COUNT > 1) _tile_zero(1);
  if (COUNT > 2) _tile_zero(6);
  if (COUNT > 3) _tile_zero(7);
  for (int run = runs.begin; run < runs.end; run++) {
    const char* from = span.values[run] + 4 * d;
    _tile_loadd(2, weights + run * RUN, SPAN * sizeof(uint16_t));
    _tile_loadd(3, from, 4 * depth);
    _tile_dpbf16ps(0, 2, 3);
    if (COUNT > 1) { _tile_loadd(3, from + 64, 4 * depth); _tile_dpbf16ps(1, 2, 3); }
    if (COUNT > 2) { _tile_loadd(3, from + 128, 4 * depth); _tile_dpbf16ps(6, 2, 3); }
    if (COUNT > 3) { _tile_loadd(3, from + 192, 4 * depth); _tile_dpbf16ps(7, 2, 3); }
  }
  to += d;
  _tile_stored(0, to, 4 * depth);
  if (COUNT > 1) _tile_stored(1, to + 16, 4 * depth);
  if (COUNT > 2) _tile_stored(6, to + 32, 4 * depth);
  if (COUNT > 3) _tile_stored(7, to + 48, 4 * depth);
}

static void scores_by_tiles(const uint16_t* query, int64_t depth, const Span& span, Runs runs, float* scores) {
  switch (depth / 32) {
    case 0: return tile_scores<0>(query, depth, span, runs, scores);
    case 1: return tile_scores<1>(query, depth, span, runs, scores);
    case 2: return tile_scores<2>(query, depth, span, runs, scores);
    case 3: return tile_scores<3>(query, depth, span, runs, scores);
    case 4: return tile_scores<4>(query, depth, span, runs, scores);
    default: return deep_tile_scores(query, depth, span, runs, scores);
  }
}

static void values_by_tiles(const uint16_t* weights, int64_t depth, const Span& span, Runs runs, float* results) {
  for (int64_t d = 0; d < depth; d += 64) {
    if (depth - d >= 64) tile_values<4>(weights, depth, span, runs, d, results);
    if (depth - d == 48) tile_values<3>(weights, depth, span, runs, d, results);
    if (depth - d == 32) tile_values<2>(weights, depth, span, runs, d, results);
    if (depth - d == 16) tile_values<1>(weights, depth, span, runs, d, results);
  }
}
#endif

}  // namespace FORERUN_ISA

// The two products of attention, of 16 query rows with runs [begin, end) of a span: with matrix tiles where the machine
// has them and the cache is narrow, else with vectors. Which one runs never depends on what is in a step, and a row's
// chain of additions never depends on the other rows.
#pragma once
#include "plugins/paged_attention/cpu/span.h"

namespace FORERUN_ISA {

// Scores and weights of 16 rows with one span, and their weighed values `[16][depth]`.
struct Products {
  alignas(64) float scores[TILE_ROWS][SPAN];
  alignas(64) uint16_t narrow_weights[TILE_ROWS][SPAN];
  alignas(64) float results[TILE_ROWS * MAX_DEPTH];
};

#if defined(__AMX_BF16__)
// The query stays in tiles 4 to 7, its odd half-depth part in tile 2.
template <int WHOLE>
FORERUN_APART void tile_scores(const uint16_t* query, int64_t depth, const Span& span, Runs runs, Products& products) {
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
    _tile_stored(0, products.scores[0] + run * RUN, SPAN * sizeof(float));
  }
}

// More dimensions than the tiles hold at once.
FORERUN_APART void deep_tile_scores(const uint16_t* query, int64_t depth, const Span& span, Runs runs, Products& products) {
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
    _tile_stored(0, products.scores[0] + run * RUN, SPAN * sizeof(float));
  }
}

// Weighed values of dimensions [d, d + 16 COUNT).
template <int COUNT>
FORERUN_APART void tile_values(int64_t depth, const Span& span, Runs runs, int64_t d, Products& products) {
  before_tiles();
  _tile_zero(0);
  if (COUNT > 1) _tile_zero(1);
  if (COUNT > 2) _tile_zero(6);
  if (COUNT > 3) _tile_zero(7);
  for (int run = runs.begin; run < runs.end; run++) {
    const char* from = span.values[run] + 4 * d;
    _tile_loadd(2, products.narrow_weights[0] + run * RUN, SPAN * sizeof(uint16_t));
    _tile_loadd(3, from, 4 * depth);
    _tile_dpbf16ps(0, 2, 3);
    if (COUNT > 1) { _tile_loadd(3, from + 64, 4 * depth); _tile_dpbf16ps(1, 2, 3); }
    if (COUNT > 2) { _tile_loadd(3, from + 128, 4 * depth); _tile_dpbf16ps(6, 2, 3); }
    if (COUNT > 3) { _tile_loadd(3, from + 192, 4 * depth); _tile_dpbf16ps(7, 2, 3); }
  }
  float* to = products.results + d;
  _tile_stored(0, to, 4 * depth);
  if (COUNT > 1) _tile_stored(1, to + 16, 4 * depth);
  if (COUNT > 2) _tile_stored(6, to + 32, 4 * depth);
  if (COUNT > 3) _tile_stored(7, to + 48, 4 * depth);
}

static void scores_by_tiles(const uint16_t* query, int64_t depth, const Span& span, Runs runs, Products& products) {
  switch (depth / 32) {
    case 0: return tile_scores<0>(query, depth, span, runs, products);
    case 1: return tile_scores<1>(query, depth, span, runs, products);
    case 2: return tile_scores<2>(query, depth, span, runs, products);
    case 3: return tile_scores<3>(query, depth, span, runs, products);
    case 4: return tile_scores<4>(query, depth, span, runs, products);
    default: return deep_tile_scores(query, depth, span, runs, products);
  }
}

static void values_by_tiles(int64_t depth, const Span& span, Runs runs, Products& products) {
  for (int64_t d = 0; d < depth; d += 64) {
    if (depth - d >= 64) tile_values<4>(depth, span, runs, d, products);
    if (depth - d == 48) tile_values<3>(depth, span, runs, d, products);
    if (depth - d == 32) tile_values<2>(depth, span, runs, d, products);
    if (depth - d == 16) tile_values<1>(depth, span, runs, d, products);
  }
}
#endif

// ROWS query rows with RUNS runs at a time: as many independent chains as hide the latency of an addition.
template <int ROWS, int RUNS>
FORERUN_INLINE void vector_scores(const float* query, int64_t depth, const char* const* keys, float* scores) {
  Floats totals[ROWS][RUNS] = {};
  for (int64_t d = 0; d < depth; d++)
    for (int n = 0; n < RUNS; n++) {
      const Floats key = load((const float*)keys[n] + d * RUN);
      for (int r = 0; r < ROWS; r++) totals[r][n] = fused(all(query[r * depth + d]), key, totals[r][n]);
    }
  for (int r = 0; r < ROWS; r++)
    for (int n = 0; n < RUNS; n++) store(scores + r * SPAN + n * RUN, totals[r][n]);
}

template <int ROWS, int RUNS>
FORERUN_APART void vector_scores_of_rows(const float* query, int64_t depth, const Span& span, Runs runs, float* scores) {
  int run = runs.begin;
  for (; run + RUNS <= runs.end; run += RUNS)
    vector_scores<ROWS, RUNS>(query, depth, span.keys + run, scores + run * RUN);
  for (; run < runs.end; run++) vector_scores<ROWS, 1>(query, depth, span.keys + run, scores + run * RUN);
}

// VECTORS times 16 dimensions of ROWS rows.
template <int ROWS, int VECTORS>
FORERUN_INLINE void vector_values(const float* weights, int64_t depth, const Span& span, Runs runs, int64_t d, float* results) {
  Floats totals[ROWS][VECTORS] = {};
  for (int run = runs.begin; run < runs.end; run++)
    for (int i = 0; i < RUN; i++)
      for (int v = 0; v < VECTORS; v++) {
        const Floats value = load((const float*)span.values[run] + i * depth + d + v * LANES);
        for (int r = 0; r < ROWS; r++) totals[r][v] = fused(all(weights[r * SPAN + run * RUN + i]), value, totals[r][v]);
      }
  for (int r = 0; r < ROWS; r++)
    for (int v = 0; v < VECTORS; v++) store(results + r * depth + d + v * LANES, totals[r][v]);
}

template <int ROWS, int VECTORS>
FORERUN_APART void vector_values_of_rows(const float* weights, int64_t depth, const Span& span, Runs runs, float* results) {
  int64_t d = 0;
  for (; d + VECTORS * LANES <= depth; d += VECTORS * LANES)
    vector_values<ROWS, VECTORS>(weights, depth, span, runs, d, results);
  for (; d < depth; d += LANES) vector_values<ROWS, 1>(weights, depth, span, runs, d, results);
}

#if defined(__AVX512F__)
constexpr int ROWS_AT_ONCE = 8;
#else
constexpr int ROWS_AT_ONCE = 4;  // half the registers, each half as wide
#endif

static void scores_by_vectors(const float* query, int num_rows, int64_t depth, const Span& span, Runs runs, Products& products) {
  int r = 0;
  for (; r + ROWS_AT_ONCE <= num_rows; r += ROWS_AT_ONCE)
    vector_scores_of_rows<ROWS_AT_ONCE, 1>(query + r * depth, depth, span, runs, products.scores[r]);
  for (; r + 3 <= num_rows; r += 3) vector_scores_of_rows<3, 2>(query + r * depth, depth, span, runs, products.scores[r]);
  for (; r < num_rows; r++) vector_scores_of_rows<1, 4>(query + r * depth, depth, span, runs, products.scores[r]);
}

static void values_by_vectors(int num_rows, int64_t depth, const Span& span, Runs runs, Products& products) {
  int r = 0;
  for (; r + ROWS_AT_ONCE <= num_rows; r += ROWS_AT_ONCE)
    vector_values_of_rows<ROWS_AT_ONCE, 1>(products.scores[r], depth, span, runs, products.results + r * depth);
  for (; r + 3 <= num_rows; r += 3)
    vector_values_of_rows<3, 2>(products.scores[r], depth, span, runs, products.results + r * depth);
  for (; r < num_rows; r++) vector_values_of_rows<1, 4>(products.scores[r], depth, span, runs, products.results + r * depth);
}

}  // namespace FORERUN_ISA

// The two products of attention, of up to 16 query rows with one run of 16 tokens: with matrix tiles where the machine
// has them and the cache is bfloat16, else with vectors. Which one runs never depends on what is in a step.
#pragma once
#include "plugins/native/tiles.h"
#include "plugins/paged_attention/cpu/cache.h"

namespace FORERUN_ISA {

constexpr int SPAN = 128;  // positions whose weights are taken together; spans begin at multiples of it
constexpr int MAX_DEPTH = 256;

// What one query tile works on. Weights and scores are of one span.
struct Work {
  alignas(64) float query[TILE_ROWS][MAX_DEPTH];
  alignas(64) uint16_t narrow_query[TILE_ROWS * MAX_DEPTH];
  alignas(64) float scores[TILE_ROWS][SPAN];
  alignas(64) uint16_t narrow_weights[TILE_ROWS][SPAN];
  alignas(64) float sums[TILE_ROWS][MAX_DEPTH];     // of weighed values, so far
  alignas(64) float results[TILE_ROWS][MAX_DEPTH];  // of weighed values, of this span
  float peaks[TILE_ROWS], totals[TILE_ROWS];
  int32_t visible[TILE_ROWS];
};

FORERUN_INLINE bool has_tiles(const Cache& cache) {
#if defined(__AMX_BF16__)
  return cache.form == Form::bfloat16;
#else
  (void)cache;
  return false;
#endif
}

#if defined(__AMX_BF16__)
FORERUN_APART void tile_scores(const Work& work, const char* keys, int64_t depth, float* scores) {
  const uint16_t* query = work.narrow_query;
  before_tiles();
  _tile_zero(0);
  int64_t d = 0;
  for (; d + 32 <= depth; d += 32) {
    _tile_loadd(4, query + d, 2 * depth);
    _tile_loadd(5, keys + d * 32, 64);
    _tile_dpbf16ps(0, 4, 5);
  }
  if (d < depth) {
    _tile_loadd(2, query + d, 2 * depth);
    _tile_loadd(3, keys + d * 32, 64);
    _tile_dpbf16ps(0, 2, 3);
  }
  _tile_stored(0, scores, SPAN * sizeof(float));
}

// Weighed values of `num_runs` runs, of dimensions [d, d + 16 count), count at most 4.
template <int COUNT>
FORERUN_APART void tile_values(Work& work, const char* const* values, int num_runs, int64_t depth, int64_t d) {
  before_tiles();
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(6);
  _tile_zero(7);
  for (int run = 0; run < num_runs; run++) {
    const char* from = values[run] + 4 * d;
    _tile_loadd(2, work.narrow_weights[0] + run * RUN, SPAN * sizeof(uint16_t));
    _tile_loadd(3, from, 4 * depth);
    _tile_dpbf16ps(0, 2, 3);
    if (COUNT > 1) {
      _tile_loadd(3, from + 64, 4 * depth);
      _tile_dpbf16ps(1, 2, 3);
    }
    if (COUNT > 2) {
      _tile_loadd(3, from + 128, 4 * depth);
      _tile_dpbf16ps(6, 2, 3);
    }
    if (COUNT > 3) {
      _tile_loadd(3, from + 192, 4 * depth);
      _tile_dpbf16ps(7, 2, 3);
    }
  }
  float* to = work.results[0] + d;
  constexpr int64_t stride = MAX_DEPTH * sizeof(float);
  _tile_stored(0, to, stride);
  if (COUNT > 1) _tile_stored(1, to + 16, stride);
  if (COUNT > 2) _tile_stored(6, to + 32, stride);
  if (COUNT > 3) _tile_stored(7, to + 48, stride);
}

static void tile_values_of_span(Work& work, const char* const* values, int num_runs, int64_t depth) {
  for (int64_t d = 0; d < depth; d += 64) {
    if (depth - d >= 64) tile_values<4>(work, values, num_runs, depth, d);
    if (depth - d == 48) tile_values<3>(work, values, num_runs, depth, d);
    if (depth - d == 32) tile_values<2>(work, values, num_runs, depth, d);
    if (depth - d == 16) tile_values<1>(work, values, num_runs, depth, d);
  }
}
#endif

static void vector_scores(const Cache& cache, const Work& work, int num_rows, const char* keys, float* scores) {
  for (int r = 0; r < num_rows; r++) {
    const float* query = work.query[r];
    Floats total{};
    if (cache.form == Form::float32) {
      for (int64_t d = 0; d < cache.depth; d++) total = fused(all(query[d]), load((const float*)keys + d * RUN), total);
    } else {
      for (int64_t d = 0; d < cache.depth; d += 2) {
        Bits words;
        memcpy(&words, keys + d * RUN * 2, sizeof words);
        total = fused(all(query[d]), first_of_pairs(words), total);
        total = fused(all(query[d + 1]), second_of_pairs(words), total);
      }
    }
    store(scores + r * SPAN, total);
  }
}

static void vector_values_of_span(
    const Cache& cache, Work& work, int num_rows, const char* const* values, int num_runs) {
  for (int r = 0; r < num_rows; r++)
    for (int64_t d = 0; d < cache.depth; d += LANES) {
      Floats total{};
      for (int run = 0; run < num_runs; run++) {
        const float* weights = work.scores[r] + run * RUN;
        for (int i = 0; i < RUN; i += 2) {
          if (cache.form == Form::float32) {
            const float* from = (const float*)values[run] + i * cache.depth + d;
            total = fused(all(weights[i]), load(from), total);
            total = fused(all(weights[i + 1]), load(from + cache.depth), total);
          } else {
            Bits words;
            memcpy(&words, values[run] + 4 * (i / 2 * cache.depth + d), sizeof words);
            total = fused(all(weights[i]), first_of_pairs(words), total);
            total = fused(all(weights[i + 1]), second_of_pairs(words), total);
          }
        }
      }
      store(work.results[r] + d, total);
    }
}

}  // namespace FORERUN_ISA

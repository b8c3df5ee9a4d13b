// The two products of attention, of 16 query rows with some runs of a span. Which instructions make them is a matter of
// the build and the form of the cache, never of what is in a step, and a row's chain of additions never depends on the
// other rows.
#pragma once
#include "plugins/paged_attention/cpu/tile_products.h"
#include "plugins/paged_attention/cpu/vector_products.h"

namespace FORERUN_ISA {

// Scores and weights of 16 rows with one span, and their weighed values `[16][depth]`.
struct Products {
  alignas(64) float scores[TILE_ROWS][SPAN];
  alignas(64) uint16_t narrow_weights[TILE_ROWS][SPAN];
  alignas(64) float results[TILE_ROWS * MAX_DEPTH];
};

// The same queries in both forms; only the one that is multiplied need be there.
struct Queries {
  const float* wide;
  const uint16_t* narrow;
  int num_rows;
};

FORERUN_INLINE void multiply_keys(const Cache& cache, const Queries& queries, const Span& span, Runs runs, Products& products) {
#if defined(__AMX_BF16__)
  if (is_narrow(cache)) return scores_by_tiles(queries.narrow, cache.depth, span, runs, products.scores[0]);
#elif defined(__AVX512BF16__)
  if (is_narrow(cache))
    return scores_by_vectors<Narrow>(queries.narrow, queries.num_rows, cache.depth, span, runs, products.scores[0]);
#endif
  scores_by_vectors<Wide>(queries.wide, queries.num_rows, cache.depth, span, runs, products.scores[0]);
}

// Weights are in `narrow_weights` where products are narrow, else in the place of the scores.
FORERUN_INLINE void multiply_values(const Cache& cache, int num_rows, const Span& span, Runs runs, Products& products) {
#if defined(__AMX_BF16__)
  if (is_narrow(cache)) return values_by_tiles(products.narrow_weights[0], cache.depth, span, runs, products.results);
#elif defined(__AVX512BF16__)
  if (is_narrow(cache))
    return values_by_vectors<Narrow>(products.narrow_weights[0], num_rows, cache.depth, span, runs, products.results);
#endif
  values_by_vectors<Wide>(products.scores[0], num_rows, cache.depth, span, runs, products.results);
}

}  // namespace FORERUN_ISA

// The two products of attention with vectors. Of float32 factors; and, where there is an instruction for it, of pairs of
// bfloat16 ones, which lie in the pool as that instruction takes them.
#pragma once
#include "plugins/native/registers.h"
#include "plugins/paged_attention/cpu/span.h"

namespace FORERUN_ISA {

// Adds a * b, or the two products of a pair.
struct Wide {
  static constexpr int DEPTH = 1;
  using Number = float;
  static FORERUN_INLINE_MEMBER Register add(const float* a, Register b, Register sum) { return fused_register(*a, b, sum); }
};
#if defined(__AVX512BF16__)
struct Narrow {
  static constexpr int DEPTH = 2;
  using Number = uint16_t;
  static FORERUN_INLINE_MEMBER Register add(const uint16_t* a, Register b, Register sum) {
    int32_t pair;
    memcpy(&pair, a, sizeof pair);
    return (Register)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32(pair), (__m512bh)b);
  }
};
#endif

// ROWS query rows with RUNS runs at a time: as many independent chains as hide the latency of an addition.
template <typename Factor, int ROWS, int RUNS>
FORERUN_INLINE void vector_scores(const typename Factor::Number* query, int64_t depth, const char* const* keys, float* scores) {
  constexpr int COUNT = RUNS * REGISTERS;
  Register totals[ROWS][COUNT] = {};
  for (int64_t d = 0; d < depth; d += Factor::DEPTH)
    for (int n = 0; n < COUNT; n++) {
      const float* from = (const float*)keys[n / REGISTERS] + d / Factor::DEPTH * RUN;
      const Register key = load_register(from + n % REGISTERS * REGISTER_LANES);
      for (int r = 0; r < ROWS; r++) totals[r][n] = Factor::add(query + r * depth + d, key, totals[r][n]);
    }
  for (int r = 0; r < ROWS; r++)
    for (int n = 0; n < COUNT; n++) store_register(scores + r * SPAN + n * REGISTER_LANES, totals[r][n]);
}

template <typename Factor, int ROWS, int RUNS>
FORERUN_APART void scores_of_rows(
    const typename Factor::Number* query, int64_t depth, const Span& span, Runs runs, float* scores) {
  int run = runs.begin;
  for (; run + RUNS <= runs.end; run += RUNS)
    vector_scores<Factor, ROWS, RUNS>(query, depth, span.keys + run, scores + run * RUN);
  for (; run < runs.end; run++) vector_scores<Factor, ROWS, 1>(query, depth, span.keys + run, scores + run * RUN);
}

// VECTORS times 16 dimensions of ROWS rows.
template <typename Factor, int ROWS, int VECTORS>
FORERUN_INLINE void vector_values(
    const typename Factor::Number* weights, int64_t depth, const Span& span, Runs runs, int64_t d, float* results) {
  constexpr int COUNT = VECTORS * REGISTERS;
  Register totals[ROWS][COUNT] = {};
  for (int run = runs.begin; run < runs.end; run++)
    for (int i = 0; i < RUN; i += Factor::DEPTH) {
      const float* from = (const float*)span.values[run] + i / Factor::DEPTH * depth + d;
      for (int v = 0; v < COUNT; v++) {
        const Register value = load_register(from + v * REGISTER_LANES);
        for (int r = 0; r < ROWS; r++)
          totals[r][v] = Factor::add(weights + r * SPAN + run * RUN + i, value, totals[r][v]);
      }
    }
  for (int r = 0; r < ROWS; r++)
    for (int v = 0; v < COUNT; v++) store_register(results + r * depth + d + v * REGISTER_LANES, totals[r][v]);
}

template <typename Factor, int ROWS, int VECTORS>
FORERUN_APART void values_of_rows(
    const typename Factor::Number* weights, int64_t depth, const Span& span, Runs runs, float* results) {
  int64_t d = 0;
  for (; d + VECTORS * LANES <= depth; d += VECTORS * LANES)
    vector_values<Factor, ROWS, VECTORS>(weights, depth, span, runs, d, results);
  for (; d < depth; d += LANES) vector_values<Factor, ROWS, 1>(weights, depth, span, runs, d, results);
}

// Fewer rows take more runs, or more dimensions, at a time.
template <typename Factor>
static void scores_by_vectors(
    const typename Factor::Number* query, int num_rows, int64_t depth, const Span& span, Runs runs, float* scores) {
  int r = 0;
  for (; r + ROWS_AT_ONCE <= num_rows; r += ROWS_AT_ONCE)
    scores_of_rows<Factor, ROWS_AT_ONCE, 1>(query + r * depth, depth, span, runs, scores + r * SPAN);
  for (; r + 3 <= num_rows; r += 3)
    scores_of_rows<Factor, 3, 2>(query + r * depth, depth, span, runs, scores + r * SPAN);
  for (; r < num_rows; r++)
    scores_of_rows<Factor, 1, ROWS_AT_ONCE>(query + r * depth, depth, span, runs, scores + r * SPAN);
}

template <typename Factor>
static void values_by_vectors(
    const typename Factor::Number* weights, int num_rows, int64_t depth, const Span& span, Runs runs, float* results) {
  int r = 0;
  for (; r + ROWS_AT_ONCE <= num_rows; r += ROWS_AT_ONCE)
    values_of_rows<Factor, ROWS_AT_ONCE, 1>(weights + r * SPAN, depth, span, runs, results + r * depth);
  for (; r + 3 <= num_rows; r += 3)
    values_of_rows<Factor, 3, 2>(weights + r * SPAN, depth, span, runs, results + r * depth);
  for (; r < num_rows; r++) values_of_rows<Factor, 1, 4>(weights + r * SPAN, depth, span, runs, results + r * depth);
}

}  // namespace FORERUN_ISA

// One span of a sequence's cache in the form that the products take: bfloat16 where the machine multiplies that, else float32.
// What lies in the pool in that form is read there; all else is expanded into scratch memory, exactly: scales are no
// part of it, they are applied to scores and weights.
#pragma once
#include "plugins/paged_attention/cpu/cache.h"

namespace FORERUN_ISA {

constexpr int SPAN = forerun::ATTENTION_SPAN;
constexpr int SPAN_RUNS = SPAN / RUN;
constexpr int MAX_DEPTH = 256;

struct Span {
  int64_t start;
  const char* keys[SPAN_RUNS];
  const char* values[SPAN_RUNS];
  alignas(64) float key_scales[SPAN];
  alignas(64) float value_scales[SPAN];
  alignas(64) char expanded[2][SPAN * MAX_DEPTH * sizeof(float)];
};

// Whether factors are multiplied as bfloat16.
FORERUN_INLINE bool is_narrow(const Cache& cache) {
#if defined(__AVX512BF16__)
  return cache.form != Form::float32;
#else
  (void)cache;
  return false;
#endif
}

typedef uint16_t Words __attribute__((vector_size(32), may_alias));

// Sixteen pairs of int8, as words: the first of each pair in the lower byte.
FORERUN_INLINE Ints load_words(const char* from) {
  Words words;
  memcpy(&words, from, sizeof words);
  return __builtin_convertvector(words, Ints);
}
FORERUN_INLINE Floats first_int8(Ints words) { return to_floats((words << 24) >> 24); }
FORERUN_INLINE Floats second_int8(Ints words) { return to_floats((words << 16) >> 24); }

// Sixteen pairs of the cache, wherever each half of them goes.
FORERUN_INLINE void load_pairs(Form form, const char* from, int64_t index, Floats& first, Floats& second) {
  if (form == Form::int8) {
    const Ints words = load_words(from + 2 * index);
    first = first_int8(words), second = second_int8(words);
    return;
  }
  if (form == Form::e4m3 || form == Form::int8_static) {
    const Ints words = load_words(from + 2 * index);
    first = widen_fixed(form, words), second = widen_fixed(form, words >> 8);
    return;
  }
  Bits words;
  memcpy(&words, from + 4 * index, sizeof words);
  first = first_of_pairs(words), second = second_of_pairs(words);
}

#if defined(__AVX512BF16__)
constexpr float NARROW_UNIT = 0x1p-24f;  // a number is moved to the top of its word and left there: that saves two shifts

// To bfloat16 in the same order; both halves are exact, so their upper bits are all of them.
FORERUN_INLINE void narrow_run(const Cache& cache, const char* from, char* to) {
  if (cache.is_fixed()) return narrow_fixed(cache.form, from, to, RUN * cache.depth);
  const __m512i second_on_top = _mm512_set1_epi32(0x01808080);
  const __m512i lanes = _mm512_set_epi32(0x0c000000, 0x08000000, 0x04000000, 0, 0x0c000000, 0x08000000, 0x04000000, 0,
                                         0x0c000000, 0x08000000, 0x04000000, 0, 0x0c000000, 0x08000000, 0x04000000, 0);
  const __m512i order = _mm512_add_epi32(second_on_top, lanes);
#pragma GCC unroll 4
  for (int64_t pair = 0; pair < RUN * cache.depth / 2; pair += LANES) {
    const __m512i words = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)(from + 2 * pair)));
    const __m512 first = _mm512_cvtepi32_ps(_mm512_slli_epi32(words, 24));
    const __m512 second = _mm512_cvtepi32_ps(_mm512_shuffle_epi8(words, order));
    const __m512i both = _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(first), 16), _mm512_castps_si512(second));
    _mm512_storeu_si512(to + 4 * pair, both);
  }
}
#else
constexpr float NARROW_UNIT = 1.0f;
FORERUN_INLINE void narrow_run(const Cache&, const char*, char*) {}  // never called
#endif

FORERUN_INLINE void widen_keys(const Cache& cache, Form form, const char* from, float* to) {
  for (int64_t d = 0; d < cache.depth; d += 2) {
    Floats first, second;
    load_pairs(form, from, d / 2 * RUN, first, second);
    store(to + d * RUN, first), store(to + (d + 1) * RUN, second);
  }
}

FORERUN_INLINE void widen_values(const Cache& cache, Form form, const char* from, float* to) {
  for (int64_t token = 0; token < RUN; token += 2)
    for (int64_t d = 0; d < cache.depth; d += LANES) {
      Floats first, second;
      load_pairs(form, from, token / 2 * cache.depth + d, first, second);
      store(to + token * cache.depth + d, first), store(to + (token + 1) * cache.depth + d, second);
    }
}

// Where keys (0) or values (1) of a run go in scratch memory.
FORERUN_INLINE char* place_of(const Cache& cache, Span& span, int which, int run) {
  return span.expanded[which] + run * RUN * cache.depth * (is_narrow(cache) ? 2 : 4);
}

FORERUN_INLINE bool is_expanded(const Cache& cache) {
  return cache.number_bytes() == 1 || (cache.form == Form::bfloat16 && !is_narrow(cache));
}

FORERUN_INLINE const char* expand_keys(const Cache& cache, Span& span, int run, const char* from) {
  if (cache.form == Form::float32 || (cache.form == Form::bfloat16 && is_narrow(cache))) return from;
  char* to = place_of(cache, span, 0, run);
  if (is_narrow(cache))
    narrow_run(cache, from, to);
  else
    widen_keys(cache, cache.form, from, (float*)to);
  return to;
}

FORERUN_INLINE const char* expand_values(const Cache& cache, Span& span, int run, const char* from) {
  if (cache.form == Form::float32 || (cache.form == Form::bfloat16 && is_narrow(cache))) return from;
  char* to = place_of(cache, span, 1, run);
  if (is_narrow(cache))
    narrow_run(cache, from, to);
  else
    widen_values(cache, cache.form, from, (float*)to);
  return to;
}

// Clears the values of a run behind its first `count` tokens: a weight of zero times what a former owner left there
// could be a NaN.
static const char* cut_values(const Cache& cache, Span& span, int run, const char* from, int64_t count) {
  char* to = place_of(cache, span, 1, run);
  const int64_t row_bytes = cache.depth * sizeof(float);  // of a token, or of a pair of narrow ones
  const int64_t whole = is_narrow(cache) ? (count + 1) / 2 : count;
  if (from != to) memcpy(to, from, whole * row_bytes);
  if (is_narrow(cache) && count % 2)
    for (int64_t d = 0; d < cache.depth; d++) ((uint16_t*)(to + (whole - 1) * row_bytes))[2 * d + 1] = 0;
  memset(to + whole * row_bytes, 0, ((is_narrow(cache) ? RUN / 2 : RUN) - whole) * row_bytes);
  return to;
}

// Where a sequence's cache of one layer and KV head is.
struct Place {
  const Step& step;
  const int32_t* table;
  int32_t layer, kv_head;
  FORERUN_INLINE_MEMBER const char* run(const Cache& cache, int which, int64_t position) const {
    const int32_t size = step.geometry.block_size;
    return step.head(table[position / size], layer, which, kv_head) + position % size / RUN * cache.run_bytes();
  }
};

// Runs of a span, [begin, end).
struct Runs {
  int begin, end;
};

FORERUN_INLINE void read_scales(const Cache& cache, Span& span, int run, const char* keys, const char* values, int64_t count) {
  const Ints lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const Floats scales = load((const float*)(values + cache.scales_at())) * NARROW_UNIT;
  store(span.key_scales + run * RUN, load((const float*)(keys + cache.scales_at())) * NARROW_UNIT);
  store(span.value_scales + run * RUN, lanes < all_ints(count < RUN ? (int32_t)count : RUN) ? scales : Floats{});
}

constexpr int RUNS_AHEAD = 2;

FORERUN_INLINE void fetch(const Cache& cache, const Place& place, int64_t position) {
  for (int which = 0; which < 2; which++)
    for (int64_t line = 0; line < cache.run_bytes(); line += 64)
      __builtin_prefetch(place.run(cache, which, position) + line, 0, 2);
}

// Reads runs of the span; `length` is that of the sequence. What the products read in the pool is not fetched ahead:
// asking for its lines by hand took 20 % more time. Expanding looks ahead less far, so there it gains 5 %.
static void read_span(const Cache& cache, const Place& place, Runs runs, int64_t length, Span& span) {
  for (int run = runs.begin; run < runs.end; run++) {
    const int64_t position = span.start + run * RUN, count = length - position;
    const char *keys = place.run(cache, 0, position), *values = place.run(cache, 1, position);
    if (is_expanded(cache) && run + RUNS_AHEAD < runs.end) fetch(cache, place, position + RUNS_AHEAD * RUN);
    span.keys[run] = expand_keys(cache, span, run, keys);
    span.values[run] = expand_values(cache, span, run, values);
    if (cache.has_scales())
      read_scales(cache, span, run, keys, values, count);
    else if (count < RUN)
      span.values[run] = cut_values(cache, span, run, span.values[run], count);
  }
}

}  // namespace FORERUN_ISA

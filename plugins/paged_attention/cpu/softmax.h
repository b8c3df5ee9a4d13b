// The softmax of attention, span by span. A span of a row ends as a peak, a total of weights and weighed values; spans
// are merged in ascending order, whoever computed them. A span that a row can't see changes no bit of it. A score that is
// NaN has no part in a peak, and makes its weight, the total and so the result NaN.
#pragma once
#include "plugins/paged_attention/cpu/products.h"

namespace FORERUN_ISA {

// What a row sees: positions [first, end); `cap` bounds its scores, 0 for none.
struct Sight {
  int64_t first, end;
  float cap;
};

// A row's sum over spans so far, or over one span; `values` has room for the depth.
struct Mean {
  float peak, total;
  float* values;
};

// cap * tanh(score / cap), for scores and a cap to base 2.
FORERUN_INLINE Floats capped(Floats score, float cap) {
  const Floats doubled = score * all(2.0f * LOG2_E / cap), limit = all(60.0f), one = all(1.0f);
  const Floats bounded = larger(-limit, limit < doubled ? limit : doubled);  // NaN stays
  return all(cap) * (one - all(2.0f) * reciprocal(exp2_of(bounded) + one));
}

// Hides what a row doesn't see of a span.
FORERUN_INLINE void hide(float* scores, int at, int64_t first, int64_t end) {
  const Ints lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const Ints seen = (lanes < all_ints((int32_t)(end - at))) & (lanes >= all_ints((int32_t)(first - at)));
  store(scores + at, seen ? load(scores + at) : all(-INFINITY));
}

// Scales and caps a row's scores where that is asked for, and hides what it doesn't see; [begin, stop) in positions.
template <bool SCALED>
FORERUN_INLINE void finish_scores(float* scores, const Span& span, int begin, int stop, const Sight& sight) {
  if (SCALED || sight.cap != 0)
    for (int at = begin; at < stop; at += LANES) {
      const Floats score = SCALED ? load(scores + at) * load(span.key_scales + at) : load(scores + at);
      store(scores + at, sight.cap != 0 ? capped(score, sight.cap) : score);
    }
  const int64_t first = sight.first - span.start, end = sight.end - span.start;
  for (int at = begin; at < first && at < stop; at += LANES) hide(scores, at, first, end);
  for (int at = end > begin ? (int)(end / LANES * LANES) : begin; at < stop; at += LANES) hide(scores, at, first, end);
}

// Turns a row's scores into weights, and gives their peak and total. Two runs are taken at a time, from an even one on,
// so that what a total is made of doesn't depend on which runs a tile looks at: the others weigh nothing.
template <bool NARROW, bool SCALED>
FORERUN_INLINE void weigh(float* scores, uint16_t* narrow, const Span& span, Runs runs, const Sight& sight, Mean& mean) {
  const int begin = runs.begin / 2 * 2 * RUN, stop = (runs.end + 1) / 2 * 2 * RUN;
  finish_scores<SCALED>(scores, span, begin, stop, sight);
  Floats tops[2] = {all(-INFINITY), all(-INFINITY)}, totals[2] = {};
#pragma GCC unroll 4
  for (int at = begin; at < stop; at += 2 * LANES)
    for (int i = 0; i < 2; i++) tops[i] = larger(load(scores + at + i * LANES), tops[i]);
  mean.peak = largest_lane(larger(tops[0], tops[1]));
  const Floats shift = all(mean.peak == -INFINITY ? 0.0f : mean.peak);
#pragma GCC unroll 2
  for (int at = begin; at < stop; at += 2 * LANES) {
    Floats weights[2];
    for (int i = 0; i < 2; i++) {
      weights[i] = exp2_of(load(scores + at + i * LANES) - shift);
      totals[i] += weights[i];
      if (SCALED) weights[i] = weights[i] * load(span.value_scales + at + i * LANES);
      if (!NARROW) store(scores + at + i * LANES, weights[i]);
    }
    if (NARROW) store_bfloat16_pair(narrow + at, weights[0], weights[1]);
  }
  mean.total = sum(totals[0] + totals[1]);
}

FORERUN_INLINE void merge(Mean& mean, const Mean& span, int64_t depth) {
  if (span.peak == -INFINITY && span.total == 0) return;  // nothing that the row sees; a total of NaN is something
  const float peak = span.peak > mean.peak ? span.peak : mean.peak;
  const Floats keep = exp2_of(all(mean.peak - peak)), add = exp2_of(all(span.peak - peak));
  mean.peak = peak;
  mean.total = mean.total * keep[0] + span.total * add[0];
  for (int64_t d = 0; d < depth; d += LANES)
    store(mean.values + d, fused(load(mean.values + d), keep, load(span.values + d) * add));
}

}  // namespace FORERUN_ISA

// What the sampler asks of a row of logits: arg-max, the N largest, and the log-sum-exp at a temperature.
//
// Ties go to the lower id. A row with a NaN, or whose largest logit is infinite, has no arg-max (-1).
#pragma once
#include "plugins/native/step.h"
#include "plugins/native/vector.h"

namespace FORERUN_ISA {

struct Peak {
  int32_t id;
  float logit;
  bool has_nan;
};

static Peak peak_of(const float* row, int32_t size) {
  Floats best = all(-INFINITY);
  Ints has_nan{};
  int32_t i = 0;
  for (; i + LANES <= size; i += LANES) {
    const Floats value = load(row + i);
    best = larger(value, best);
    has_nan |= (Ints)(value != value);
  }
  Peak peak{0, largest(best), false};
  for (int lane = 0; lane < LANES; lane++) peak.has_nan |= has_nan[lane] != 0;
  for (; i < size; i++) {
    peak.logit = row[i] > peak.logit ? row[i] : peak.logit;
    peak.has_nan |= row[i] != row[i];
  }
  if (peak.has_nan) return peak;
  while (row[peak.id] != peak.logit) peak.id++;
  return peak;
}

// Keeps the `count` largest in order; most numbers fail the first comparison.
struct Ranking {
  int32_t* ids;
  float* logits;
  int32_t count, size = 0;

  void offer(int32_t id, float logit) {
    if (size == count && !(logit > logits[count - 1])) return;
    int32_t place = size < count ? size++ : count - 1;
    for (; place > 0 && logits[place - 1] < logit; place--)
      ids[place] = ids[place - 1], logits[place] = logits[place - 1];
    ids[place] = id, logits[place] = logit;
  }
};

static void rank(const float* row, int32_t size, Ranking ranking) {
  int32_t i = 0;
  for (; i < size && ranking.size < ranking.count; i++)
    if (row[i] == row[i]) ranking.offer(i, row[i]);
  for (; i + LANES <= size; i += LANES) {
    if (!has_any((Ints)(load(row + i) > all(ranking.logits[ranking.count - 1])))) continue;
    for (int32_t j = i; j < i + LANES; j++) ranking.offer(j, row[j]);
  }
  for (; i < size; i++) ranking.offer(i, row[i]);
  for (i = ranking.size; i < ranking.count; i++) ranking.ids[i] = 0, ranking.logits[i] = -INFINITY;
}

static float logsumexp(const float* row, int32_t size, Peak peak, float temperature) {
  if (peak.has_nan || !std::isfinite(peak.logit)) return NAN;
  const Floats factor = all(LOG2_E / temperature);
  double total = 0;
  int32_t i = 0;
  while (i + LANES <= size) {
    Floats part{};
    // A sum of 64 terms a lane loses nothing that shows; more of them would.
    for (int n = 0; n < 64 && i + LANES <= size; n++, i += LANES) part += exp2_of((load(row + i) - peak.logit) * factor);
    for (int lane = 0; lane < LANES; lane++) total += part[lane];
  }
  for (; i < size; i++) total += exp2_of(all((row[i] - peak.logit) * factor[0]))[0];
  return (float)((double)peak.logit / temperature + std::log(total));
}

static int32_t row_answers_num_units(const forerun::Step& step, const forerun::Operation&) { return step.in.num_rows; }

static void row_answers_run(const forerun::Step& step, const forerun::Operation& op, int32_t row, char*) {
  const auto& in = step.buffers[op.in];
  const float* logits = (const float*)(in.data + row * in.row_bytes);
  const int32_t count = step.in.num_candidates, size = op.size_in;
  const float temperature = step.in.temperatures[row];
  const Peak peak = peak_of(logits, size);
  step.out.argmax[row] = peak.has_nan || !std::isfinite(peak.logit) ? -1 : peak.id;
  const int64_t at = (int64_t)row * count;
  if (count) rank(logits, size, {step.out.candidate_ids + at, step.out.candidate_logits + at, count});
  step.out.logsumexp[row] = temperature > 0 ? logsumexp(logits, size, peak, temperature) : 0.0f;
}

}  // namespace FORERUN_ISA

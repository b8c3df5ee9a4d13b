// What the sampler asks of a row of logits: arg-max, the N largest, and the log-sum-exp at a temperature.
//
// Ties go to the lower id. A row with a NaN, or whose largest logit is infinite, has no arg-max (-1).
#pragma once
#include <vector>

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

// An entry of a row. (A type of this build's own: what the library makes of it is linked into no other build.)
struct Entry {
  uint32_t falling;  // falls as the logit rises
  int32_t id;
};

static Entry entry_of(float logit, int32_t id) {
  const float value = logit + 0.0f;  // 0 and -0 are alike
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return {bits >> 31 ? bits : ~bits & 0x7fffffff, id};
}

// Sorts by logits, largest first, digit by digit from the least; equal ones stay as they are.
static void sort_entries(std::vector<Entry>& entries, std::vector<Entry>& spare) {
  constexpr int32_t BITS = 8, NUM_DIGITS = 1 << BITS, NUM_PASSES = 32 / BITS;
  int32_t starts[NUM_PASSES][NUM_DIGITS] = {};
  for (const Entry& entry : entries)
    for (int32_t pass = 0; pass < NUM_PASSES; pass++) starts[pass][(entry.falling >> pass * BITS) % NUM_DIGITS]++;
  spare.resize(entries.size());
  for (int32_t pass = 0; pass < NUM_PASSES; pass++) {
    for (int32_t digit = 0, next = 0; digit < NUM_DIGITS; digit++) {
      const int32_t count = starts[pass][digit];
      starts[pass][digit] = next;
      next += count;
    }
    for (const Entry& entry : entries) spare[starts[pass][(entry.falling >> pass * BITS) % NUM_DIGITS]++] = entry;
    entries.swap(spare);
  }
}

// Gives the `count` largest of a row in order, less what is no number; places that stay empty hold id 0 and -inf.
// What is above the least of the best so far is gathered, and thinned out when it is twice as many as wanted.
static void rank(const float* row, int32_t size, int32_t* ids, float* logits, int32_t count) {
  std::vector<Entry> best, spare;
  float bound = NAN;  // nothing compares as not above it
  const auto thin_out = [&] {
    sort_entries(best, spare);
    if ((int64_t)best.size() < count) return;
    best.resize(count);
    bound = row[best.back().id];
  };
  const auto offer = [&](int32_t id) {
    if (!(row[id] <= bound) && row[id] == row[id]) best.push_back(entry_of(row[id], id));
  };
  int32_t i = 0;
  for (; i + LANES <= size; i += LANES) {
    if (bound == bound && !has_any((Ints)(load(row + i) > all(bound)))) continue;
    for (int32_t j = i; j < i + LANES; j++) offer(j);
    if ((int64_t)best.size() >= 2ll * count) thin_out();
  }
  for (; i < size; i++) offer(i);
  thin_out();
  for (int32_t n = 0; n < count; n++) {
    const bool is_there = n < (int64_t)best.size();
    ids[n] = is_there ? best[n].id : 0;
    logits[n] = is_there ? row[best[n].id] : -INFINITY;
  }
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
  if (count) rank(logits, size, step.out.candidate_ids + at, step.out.candidate_logits + at, count);
  step.out.logsumexp[row] = temperature > 0 ? logsumexp(logits, size, peak, temperature) : 0.0f;
}

}  // namespace FORERUN_ISA

// Rotates queries and keys of this step's tokens, and writes keys and values to their slots.
//
// A row of the input holds the queries of all heads, then the keys, then the values. Rotated queries stay there.
#pragma once
#include "plugins/native/hadamard.h"
#include "plugins/paged_attention/cpu/cache.h"
#include "plugins/quantize/cpu/quantize_rows.h"
#include "plugins/rope/cpu/rotate.h"

namespace FORERUN_ISA {

static void append_head(const Step& step, const Operation& op, int32_t token, int32_t kv_head) {
  const Cache cache(step, op);
  const auto& in = step.buffers[op.in];
  const int dim = op.head_dim, group = op.num_heads / op.num_kv_heads, half = op.rope_dim / 2;
  float* row = (float*)(in.data + token * in.row_bytes);
  float *key = row + (op.num_heads + kv_head) * dim, *value = key + op.num_kv_heads * dim;
  if (half) {
    const int64_t angle = (int64_t)step.in.positions[token] * half;
    const float *cosines = (const float*)step.weight(op.extra) + angle, *sines = (const float*)step.weight(op.extra + 1) + angle;
    const auto turn = op.pairs_neighbours ? rotate_neighbours : rotate;
    for (int g = 0; g < group; g++) turn(row + (kv_head * group + g) * dim, cosines, sines, half);
    turn(key, cosines, sines, half);
  }
  alignas(64) float padded[2][512] = {};
  if (cache.depth != dim) {
    memcpy(padded[0], key, sizeof(float) * dim), memcpy(padded[1], value, sizeof(float) * dim);
    key = padded[0], value = padded[1];
  }
  if (cache.is_spread()) hadamard(key, cache.depth);
  const int32_t slot = step.in.slot_mapping[token], size = step.geometry.block_size;
  const int64_t run = slot % size / RUN * cache.run_bytes();
  char* keys = step.head(slot / size, op.layer, 0, kv_head) + run;
  char* values = step.head(slot / size, op.layer, 1, kv_head) + run;
  write_token(cache, keys, values, slot % RUN, key, value);
}

// When no sequence has more than one piece, attention appends for itself and this step has nothing to do.
static int32_t append_num_units(const Step& step, const Operation&) {
  return step.appends_alone ? units_of_rows(step.in.num_tokens) : 0;
}

static void append_run(const Step& step, const Operation& op, int32_t unit, char*) {
  const int32_t begin = unit * ROWS_PER_UNIT;
  for (int32_t token = begin; token < step.in.num_tokens && token < begin + ROWS_PER_UNIT; token++)
    for (int32_t head = 0; head < op.num_kv_heads; head++) append_head(step, op, token, head);
}

}  // namespace FORERUN_ISA

// How keys and values of one block and one KV head lie in the pool, and how a token's are written.
//
// A block is cut in runs of 16 tokens; D is padded to a multiple of 16. bfloat16: keys [D / 2][16 tokens][2], values
// [8 pairs of tokens][D][2], the two factors of matrix tiles. float32: keys [D][16 tokens], values [16 tokens][D].
#pragma once
#include "plugins/native/bfloat16.h"
#include "plugins/native/step.h"

namespace FORERUN_ISA {

using forerun::Form;
using forerun::Operation;
using forerun::Step;

constexpr int RUN = 16;  // tokens

struct Cache {
  Form form;
  int64_t depth;  // D, padded

  explicit Cache(const Step& step)
      : form((Form)step.geometry.kv_form), depth(round_up(step.geometry.head_dim, LANES)) {}
  int64_t number_bytes() const { return form == Form::bfloat16 ? 2 : 4; }
  int64_t run_bytes() const { return RUN * depth * number_bytes(); }
};

// Writes one token's key and value, `depth` numbers each with zeros for padding, at `place` of its run.
static void write_token(const Cache& cache, char* keys, char* values, int place, const float* key, const float* value) {
  if (cache.form == Form::float32) {
    for (int64_t d = 0; d < cache.depth; d++) ((float*)keys)[d * RUN + place] = key[d];
    memcpy((float*)values + place * cache.depth, value, sizeof(float) * cache.depth);
    return;
  }
  uint16_t *to_keys = (uint16_t*)keys + 2 * place, *to_values = (uint16_t*)values + place / 2 * 2 * cache.depth + place % 2;
  uint16_t narrow[2][LANES];
  for (int64_t d = 0; d < cache.depth; d += LANES) {
    store_bfloat16(narrow[0], load(key + d)), store_bfloat16(narrow[1], load(value + d));
    for (int i = 0; i < LANES; i += 2) memcpy(to_keys + (d + i) * RUN, narrow[0] + i, 4);
    for (int i = 0; i < LANES; i++) to_values[2 * (d + i)] = narrow[1][i];
  }
}

// Clears the values behind the last token of a run: a weight of zero times what a former owner left could be a NaN.
static void clear_values_after(const Cache& cache, char* values, int place) {
  for (int other = place + 1; other < RUN; other++) {
    if (cache.form == Form::float32) {
      memset((float*)values + other * cache.depth, 0, sizeof(float) * cache.depth);
      continue;
    }
    uint16_t* to = (uint16_t*)values + other / 2 * 2 * cache.depth + other % 2;
    for (int64_t d = 0; d < cache.depth; d++) to[2 * d] = 0;
  }
}

}  // namespace FORERUN_ISA

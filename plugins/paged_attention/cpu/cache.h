// How keys and values of one block and one KV head lie in the pool, and how a token's are written.
//
// A block is cut in runs of 16 tokens; D is padded to a multiple of 16. float32: keys [D][16 tokens], values
// [16 tokens][D]. bfloat16 and int8: keys [D / 2][16 tokens][2], values [8 pairs of tokens][D][2], the two factors of
// matrix tiles; int8 ones are followed by a float32 scale for each of the 16 tokens. E4M3 and int8 with a fixed scale: as
// int8, with nothing behind.
#pragma once
#include "plugins/native/bfloat16.h"
#include "plugins/native/quantize.h"
#include "plugins/native/step.h"
#include "plugins/paged_attention/cpu/fixed_scale.h"

namespace FORERUN_ISA {

using forerun::Operation;
using forerun::Step;

constexpr int RUN = 16;  // tokens

struct Cache {
  Form form;
  int64_t depth;  // D, padded
  float scales[2];  // fixed ones, of keys and of values

  Cache(const Step& step, const Operation& op)
      : form((Form)step.geometry.kv_form), depth(round_up(step.geometry.head_dim, LANES)), scales{1, 1} {
    if (is_fixed()) scales[0] = op.key_scale, scales[1] = op.value_scale;
  }
  FORERUN_INLINE_MEMBER int64_t number_bytes() const {
    return form == Form::float32 ? 4 : form == Form::bfloat16 ? 2 : 1;
  }
  // Whether keys went through a Hadamard transform, as queries then do: that leaves less to stand out when they are rounded.
  FORERUN_INLINE_MEMBER bool is_spread() const { return form == Form::int8; }
  FORERUN_INLINE_MEMBER bool has_scales() const { return form == Form::int8; }
  FORERUN_INLINE_MEMBER bool is_fixed() const { return form == Form::e4m3 || form == Form::int8_static; }
  FORERUN_INLINE_MEMBER int64_t scales_at() const { return RUN * depth * number_bytes(); }
  FORERUN_INLINE_MEMBER int64_t run_bytes() const { return scales_at() + (has_scales() ? RUN * sizeof(float) : 0); }
};

// One token's key or value, rounded; the scale is 0 where the form has none.
struct Rounded {
  alignas(64) uint16_t numbers[512];
  float scale;
};

// int8: round(x / scale) with scale = max |x| / 127. A head with a NaN or an infinity gets a NaN for its scale.
FORERUN_INLINE void round_head(const Cache& cache, int which, const float* head, Rounded& to) {
  if (cache.form == Form::bfloat16) {
    for (int64_t d = 0; d < cache.depth; d += LANES) store_bfloat16(to.numbers + d, load(head + d));
    return;
  }
  if (cache.is_fixed()) {
    const Floats scale = all(cache.scales[which]);
    for (int64_t d = 0; d < cache.depth; d += LANES) {
      const Ints number = round_fixed(cache.form, load(head + d), scale);
      for (int i = 0; i < LANES; i++) to.numbers[d + i] = (uint16_t)number[i];
    }
    return;
  }
  const auto [top, is_poisoned] = extent_of(head, cache.depth);
  to.scale = is_poisoned ? NAN : top / 127.0f;
  // The largest magnitude itself, not its inverse: 127 / top overflows for the smallest numbers.
  const Floats steps = all(127.0f), largest = all(top > 0 ? top : 1.0f);
  for (int64_t d = 0; d < cache.depth; d += LANES) {
    const Ints number = is_poisoned ? Ints{} : rounded(load(head + d) / largest * steps);
    for (int i = 0; i < LANES; i++) to.numbers[d + i] = (uint16_t)number[i];
  }
}

// Writes numbers of `Number` in the two orders that matrix tiles take.
template <typename Number>
FORERUN_INLINE void write_pairs(int64_t depth, char* keys, char* values, int place, const Rounded& key, const Rounded& value) {
  Number* to_keys = (Number*)keys + 2 * place;
  Number* to_values = (Number*)values + place / 2 * 2 * depth + place % 2;
  for (int64_t d = 0; d < depth; d += 2) {
    to_keys[d * RUN] = (Number)key.numbers[d];
    to_keys[d * RUN + 1] = (Number)key.numbers[d + 1];
  }
  for (int64_t d = 0; d < depth; d++) to_values[2 * d] = (Number)value.numbers[d];
}

// Writes one token's key and value, `depth` numbers each with zeros for padding, at `place` of its run.
static void write_token(const Cache& cache, char* keys, char* values, int place, const float* key, const float* value) {
  if (cache.form == Form::float32) {
    for (int64_t d = 0; d < cache.depth; d++) ((float*)keys)[d * RUN + place] = key[d];
    memcpy((float*)values + place * cache.depth, value, sizeof(float) * cache.depth);
    return;
  }
  Rounded narrow_key, narrow_value;
  round_head(cache, 0, key, narrow_key), round_head(cache, 1, value, narrow_value);
  if (cache.form == Form::bfloat16) {
    write_pairs<uint16_t>(cache.depth, keys, values, place, narrow_key, narrow_value);
    return;
  }
  write_pairs<uint8_t>(cache.depth, keys, values, place, narrow_key, narrow_value);
  if (!cache.has_scales()) return;
  ((float*)(keys + cache.scales_at()))[place] = narrow_key.scale;
  ((float*)(values + cache.scales_at()))[place] = narrow_value.scale;
}

}  // namespace FORERUN_ISA

// Attention of query tiles over the paged cache, one unit per tile and KV head.
//
// A tile is up to 16 rows of one sequence; a row is a (token, head of the KV head's group) pair. Each row goes over
// spans of 128 positions in ascending order, with a running peak and running sums. A span that a row can't see changes
// no bit of it, so a row's result doesn't depend on its tile, nor on how its prompt was cut.
#pragma once
#include "plugins/paged_attention/cpu/append.h"
#include "plugins/paged_attention/cpu/products.h"

namespace FORERUN_ISA {

using forerun::QueryTile;

static void gather_queries(const Step& step, const Operation& op, const QueryTile& tile, int kv_head, Work& work) {
  const Cache cache(step);
  const auto& in = step.buffers[op.in];
  const int group = op.num_heads / op.num_kv_heads, dim = op.head_dim;
  const int32_t begin = step.in.query_start[tile.sequence], end = step.in.query_start[tile.sequence + 1];
  // Scores are taken to base 2, which saves a multiplication for each of them.
  const Floats scale = all(op.scale * LOG2_E);
  for (int r = 0; r < TILE_ROWS; r++) {
    float* query = work.query[r];
    if (r >= tile.num_rows) {
      memset(work.narrow_query + r * cache.depth, 0, 2 * cache.depth);
      memset(work.narrow_weights[r], 0, sizeof work.narrow_weights[r]);
      continue;
    }
    const int32_t index = tile.first_row + r, token = begin + index / group;
    const float* row = (const float*)(in.data + token * in.row_bytes) + (kv_head * group + index % group) * dim;
    memset(query, 0, sizeof(float) * cache.depth);
    memcpy(query, row, sizeof(float) * dim);
    for (int64_t d = 0; d < cache.depth; d += LANES) {
      const Floats scaled = load(query + d) * scale;
      store(query + d, scaled);
      store_bfloat16(work.narrow_query + r * cache.depth + d, scaled);
    }
    memset(work.sums[r], 0, sizeof(float) * cache.depth);
    work.peaks[r] = -INFINITY, work.totals[r] = 0;
    work.visible[r] = step.in.seq_lens[tile.sequence] - (end - token) + 1;
  }
}

// Turns the scores of one row of a span into weights, and scales what it has so far to the new peak.
FORERUN_INLINE void weigh_row(const Cache& cache, Work& work, int r, int64_t start, int num_runs) {
  float* scores = work.scores[r];
  const Ints lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const int64_t seen = work.visible[r] - start;
  Floats top = all(work.peaks[r]);
  for (int run = 0; run < num_runs; run++) {
    if (seen < (run + 1) * RUN) {
      const Ints limit = all_ints((int32_t)(seen - run * RUN));
      store(scores + run * RUN, lanes < limit ? load(scores + run * RUN) : all(-INFINITY));
    }
    top = larger(load(scores + run * RUN), top);
  }
  const float peak = largest_lane(top);
  Floats total{};
  for (int run = 0; run < num_runs; run++) {
    const Floats weight = exp2_of(load(scores + run * RUN) - peak);
    total += weight;
    if (has_tiles(cache))
      store_bfloat16(work.narrow_weights[r] + run * RUN, weight);
    else
      store(scores + run * RUN, weight);
  }
  const Floats keep = exp2_of(all(work.peaks[r]) - peak);
  work.peaks[r] = peak;
  work.totals[r] = work.totals[r] * keep[0] + sum(total);
  for (int64_t d = 0; d < cache.depth; d += LANES) store(work.sums[r] + d, load(work.sums[r] + d) * keep);
}

static void attend_span(
    const Step& step, const Operation& op, const QueryTile& tile, int kv_head, int64_t start, int64_t stop, Work& work) {
  const Cache cache(step);
  const int num_runs = (int)((stop - start + RUN - 1) / RUN);
  const int32_t* table = step.in.block_tables + (int64_t)tile.sequence * step.in.table_width;
  const int32_t size = step.geometry.block_size;
  const char* values[SPAN / RUN];
  for (int run = 0; run < num_runs; run++) {
    const int64_t position = start + run * RUN, offset = position % size / RUN * cache.run_bytes();
    const int32_t block = table[position / size];
    const char* keys = step.head(block, op.layer, 0, kv_head) + offset;
    values[run] = step.head(block, op.layer, 1, kv_head) + offset;
    // Blocks lie anywhere in the pool: no machine guesses where the next one is.
    for (int64_t line = 0; line < cache.run_bytes(); line += 64) __builtin_prefetch(values[run] + line, 0, 2);
#if defined(__AMX_BF16__)
    if (has_tiles(cache)) {
      tile_scores(work, keys, cache.depth, work.scores[0] + run * RUN);
      continue;
    }
#endif
    vector_scores(cache, work, tile.num_rows, keys, work.scores[0] + run * RUN);
  }
  for (int r = 0; r < tile.num_rows; r++) weigh_row(cache, work, r, start, num_runs);
#if defined(__AMX_BF16__)
  if (has_tiles(cache)) tile_values_of_span(work, values, num_runs, cache.depth);
#endif
  if (!has_tiles(cache)) vector_values_of_span(cache, work, tile.num_rows, values, num_runs);
  for (int r = 0; r < tile.num_rows; r++)
    for (int64_t d = 0; d < cache.depth; d += LANES)
      store(work.sums[r] + d, load(work.sums[r] + d) + load(work.results[r] + d));
}

static void write_attention(const Step& step, const Operation& op, const QueryTile& tile, int kv_head, Work& work) {
  const Cache cache(step);
  const auto& out = step.buffers[op.out];
  const int group = op.num_heads / op.num_kv_heads, dim = op.head_dim;
  const bool is_quantized = (Form)out.spec.form == Form::int8;
  const QuantizedBlock layout{out.spec.width, is_quantized ? out.spec.group : 1};
  for (int r = 0; r < tile.num_rows; r++) {
    const int32_t index = tile.first_row + r, head = kv_head * group + index % group;
    const Floats factor = all(1.0f) / all(work.totals[r]);
    for (int64_t d = 0; d < cache.depth; d += LANES) store(work.sums[r] + d, load(work.sums[r] + d) * factor);
    const int64_t row = step.in.query_start[tile.sequence] + index / group;
    if (!is_quantized) {
      memcpy((float*)(out.data + row * out.row_bytes) + head * dim, work.sums[r], sizeof(float) * dim);
      continue;
    }
    for (int i = 0; i < dim; i += layout.group) quantize_group(work.sums[r] + i, out.data, layout, row, (head * dim + i) / layout.group);
  }
}

static int32_t attention_num_units(const Step& step, const Operation& op) { return step.num_tiles * op.num_kv_heads; }

static void attention_run(const Step& step, const Operation& op, int32_t unit, char* scratch) {
  // The longest tiles, the last of a prompt, come first: what is left for the end is short.
  const QueryTile& tile = step.tiles[step.num_tiles - 1 - unit / op.num_kv_heads];
  const int kv_head = unit % op.num_kv_heads;
  const int32_t first = step.in.query_start[tile.sequence];
  if (!step.appends_alone)
    for (int32_t token = first; token < step.in.query_start[tile.sequence + 1]; token++) append_head(step, op, token, kv_head);
  Work& work = *(Work*)scratch;
  gather_queries(step, op, tile, kv_head, work);
  const int64_t stop = work.visible[tile.num_rows - 1];
  for (int64_t start = 0; start < stop; start += SPAN)
    attend_span(step, op, tile, kv_head, start, start + SPAN < stop ? start + SPAN : stop, work);
  write_attention(step, op, tile, kv_head, work);
}

}  // namespace FORERUN_ISA

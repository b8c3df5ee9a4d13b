// Attention of query tiles over the paged cache, one unit per piece of a tile and KV head.
//
// A tile is up to 64 rows of one sequence; a row is a (token, head of the KV head's group) pair. A row is computed span
// by span, spans begin at multiples of 256 positions, and are merged in ascending order: its result depends neither on
// its tile, nor on how its prompt was cut, nor on whether its spans were split among threads.
#pragma once
#include "plugins/paged_attention/cpu/append.h"
#include "plugins/paged_attention/cpu/softmax.h"

namespace FORERUN_ISA {

using forerun::QueryTile;
using forerun::TilePiece;

constexpr int MAX_ROWS = forerun::MAX_TILE_ROWS;
constexpr int PIECES_FOR_A_THREAD = 4;

// Rows that fill a matrix tile up hold whatever was there: nobody looks at their results.
struct AttentionScratch {
  alignas(64) float query[MAX_ROWS * MAX_DEPTH];
  alignas(64) uint16_t narrow_query[MAX_ROWS * MAX_DEPTH];
  alignas(64) float sums[MAX_ROWS * MAX_DEPTH];
  Products products;
  Span span;
  Mean means[MAX_ROWS];
  Sight sights[MAX_ROWS];
};

// One unit at work.
struct Attending {
  const Step& step;
  const Operation& op;
  const QueryTile& tile;
  int kv_head;
  Cache cache;
  AttentionScratch& scratch;

  FORERUN_INLINE_MEMBER int group() const { return op.num_heads / op.num_kv_heads; }
  FORERUN_INLINE_MEMBER int64_t length() const { return step.in.seq_lens[tile.sequence]; }
  FORERUN_INLINE_MEMBER int32_t token_of(int row) const {
    return step.in.query_start[tile.sequence] + (tile.first_row + row) / group();
  }
  // The first span that any row of the tile sees, and the one after the last.
  FORERUN_INLINE_MEMBER int32_t first_span() const { return (int32_t)(scratch.sights[0].first / SPAN); }
  FORERUN_INLINE_MEMBER int32_t last_span() const {
    return (int32_t)((scratch.sights[tile.num_rows - 1].end + SPAN - 1) / SPAN);
  }
  // Where a split tile keeps a row of a span.
  FORERUN_INLINE_MEMBER float* partial(int32_t span, int row) const {
    const int64_t num_spans = (length() + SPAN - 1) / SPAN;
    const int64_t index = (kv_head * num_spans + span) * tile.num_rows + row;
    return step.partials + tile.first_partial + index * (LANES + cache.depth);
  }
};

static void gather_queries(const Attending& unit) {
  const auto& in = unit.step.buffers[unit.op.in];
  const int dim = unit.op.head_dim, group = unit.group();
  const int64_t depth = unit.cache.depth;
  AttentionScratch& scratch = unit.scratch;
  const int32_t end = unit.step.in.query_start[unit.tile.sequence + 1];
  // Scores are taken to base 2, which saves a multiplication for each of them. The transforms of queries and keys multiply
  // their products by a power of two.
  const float spread = unit.cache.is_spread() ? 1.0f / (float)hadamard_block(depth) : 1.0f;
  const Floats scale = all(unit.op.scale * LOG2_E * spread);
  for (int r = 0; r < unit.tile.num_rows; r++) {
    const int32_t token = unit.token_of(r), head = unit.kv_head * group + (unit.tile.first_row + r) % group;
    float* query = scratch.query + r * depth;
    memcpy(query, (const float*)(in.data + token * in.row_bytes) + head * dim, sizeof(float) * dim);
    for (int64_t d = dim; d < depth; d++) query[d] = 0;
    if (unit.cache.is_spread()) hadamard(query, depth);
    for (int64_t d = 0; d < depth; d += LANES) {
      const Floats scaled = load(query + d) * scale;
      store(query + d, scaled);
      if (is_narrow(unit.cache)) store_bfloat16(scratch.narrow_query + r * depth + d, scaled);
    }
    const int64_t seen = unit.length() - (end - token) + 1, window = unit.op.window;
    scratch.sights[r] = {window && seen > window ? seen - window : 0, seen, unit.op.soft_cap * LOG2_E};
    scratch.means[r] = {-INFINITY, 0, scratch.sums + r * depth};
    memset(scratch.sums + r * depth, 0, sizeof(float) * depth);
  }
}

// Runs of the span that rows [first, end) see any part of.
FORERUN_INLINE Runs visible_runs(const Attending& unit, int first, int end) {
  const int64_t start = unit.scratch.span.start;
  const int64_t from = unit.scratch.sights[first].first - start, to = unit.scratch.sights[end - 1].end - start;
  return {from > 0 ? (int)(from / RUN) : 0, to >= SPAN ? SPAN_RUNS : (int)((to + RUN - 1) / RUN)};
}

template <bool SCALED>
static void attend_rows(const Attending& unit, int first, int num_rows, Runs runs) {
  AttentionScratch& scratch = unit.scratch;
  Products& products = scratch.products;
  const int64_t depth = unit.cache.depth;
  const bool is_split = unit.tile.num_pieces > 1;
  Mean spans[TILE_ROWS];
  const Queries queries{scratch.query + first * depth, scratch.narrow_query + first * depth, num_rows};
  multiply_keys(unit.cache, queries, scratch.span, runs, products);
  for (int r = 0; r < num_rows; r++) {
    const Sight& sight = scratch.sights[first + r];
    if (is_narrow(unit.cache))
      weigh<true, SCALED>(products.scores[r], products.narrow_weights[r], scratch.span, runs, sight, spans[r]);
    else
      weigh<false, SCALED>(products.scores[r], nullptr, scratch.span, runs, sight, spans[r]);
  }
  multiply_values(unit.cache, num_rows, scratch.span, runs, products);
  for (int r = 0; r < num_rows; r++) {
    spans[r].values = products.results + r * depth;
    if (!is_split) {
      merge(scratch.means[first + r], spans[r], depth);
      continue;
    }
    float* to = unit.partial((int32_t)(scratch.span.start / SPAN), first + r);
    to[0] = spans[r].peak, to[1] = spans[r].total;
    memcpy(to + LANES, spans[r].values, sizeof(float) * depth);
  }
}

static void attend_span(const Attending& unit, int32_t index) {
  AttentionScratch& scratch = unit.scratch;
  scratch.span.start = (int64_t)index * SPAN;
  const Runs all_runs = visible_runs(unit, 0, unit.tile.num_rows);
  const int32_t* table = unit.step.in.block_tables + (int64_t)unit.tile.sequence * unit.step.in.table_width;
  const Place place{unit.step, table, unit.op.layer, unit.kv_head};
  read_span(unit.cache, place, all_runs, unit.length(), scratch.span);
  for (int first = 0; first < unit.tile.num_rows; first += TILE_ROWS) {
    const int rows = unit.tile.num_rows - first < TILE_ROWS ? unit.tile.num_rows - first : TILE_ROWS;
    const Runs runs = visible_runs(unit, first, first + rows);
    if (unit.cache.has_scales())
      attend_rows<true>(unit, first, rows, runs);
    else
      attend_rows<false>(unit, first, rows, runs);
  }
}

static void merge_partials(const Attending& unit) {
  for (int32_t span = unit.first_span(); span < unit.last_span(); span++)
    for (int r = 0; r < unit.tile.num_rows; r++) {
      float* from = unit.partial(span, r);
      merge(unit.scratch.means[r], {from[0], from[1], from + LANES}, unit.cache.depth);
    }
}

static void write_attention(const Attending& unit) {
  const auto& out = unit.step.buffers[unit.op.out];
  const int group = unit.group(), dim = unit.op.head_dim;
  for (int r = 0; r < unit.tile.num_rows; r++) {
    const Mean& mean = unit.scratch.means[r];
    const Floats factor = all(1.0f) / all(mean.total);
    for (int64_t d = 0; d < unit.cache.depth; d += LANES) store(mean.values + d, load(mean.values + d) * factor);
    const int64_t row = unit.token_of(r), head = unit.kv_head * group + (unit.tile.first_row + r) % group;
    write_part(out, row, mean.values, head * dim, dim);
  }
}

// Tells whether this piece of a split tile is the last to be done; the count is then ready for the next layer.
FORERUN_INLINE bool is_last_piece(const Step& step, const TilePiece& piece, int num_kv_heads, int kv_head) {
  int32_t* left = step.pieces_left + (int64_t)piece.tile * num_kv_heads + kv_head;
  if (__atomic_sub_fetch(left, 1, __ATOMIC_ACQ_REL)) return false;
  __atomic_store_n(left, step.tiles[piece.tile].num_pieces, __ATOMIC_RELAXED);
  return true;
}

// KV heads of a unit: all, where there are enough pieces for the threads, as they lie side by side in memory.
FORERUN_INLINE int32_t heads_of_unit(const Step& step, const Operation& op) {
  return step.num_pieces >= PIECES_FOR_A_THREAD * step.num_threads ? op.num_kv_heads : 1;
}

static int32_t attention_num_units(const Step& step, const Operation& op) {
  return step.num_pieces * (op.num_kv_heads / heads_of_unit(step, op));
}

static void attend_head(const Step& step, const Operation& op, const TilePiece& piece, int kv_head, char* scratch) {
  const QueryTile& tile = step.tiles[piece.tile];
  const Attending unit{step, op, tile, kv_head, Cache(step), *(AttentionScratch*)scratch};
  if (!step.appends_alone)
    for (int32_t token = step.in.query_start[tile.sequence]; token < step.in.query_start[tile.sequence + 1]; token++)
      append_head(step, op, token, unit.kv_head);
  gather_queries(unit);
  const int32_t begin = piece.begin > unit.first_span() ? piece.begin : unit.first_span();
  const int32_t end = piece.end < unit.last_span() ? piece.end : unit.last_span();
  for (int32_t span = begin; span < end; span++) attend_span(unit, span);
  if (tile.num_pieces > 1) {
    if (!is_last_piece(step, piece, op.num_kv_heads, unit.kv_head)) return;
    merge_partials(unit);
  }
  write_attention(unit);
}

static void attention_run(const Step& step, const Operation& op, int32_t unit, char* scratch) {
  const int32_t together = heads_of_unit(step, op), units = op.num_kv_heads / together;
  // The longest pieces, the last of a prompt, come first: what is left for the end is short.
  const TilePiece& piece = step.pieces[step.num_pieces - 1 - unit / units];
  for (int32_t head = unit % units * together, end = head + together; head < end; head++)
    attend_head(step, op, piece, head, scratch);
}

}  // namespace FORERUN_ISA

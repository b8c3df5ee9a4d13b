#include "builder/targets/cpu/native/tiling.h"

#include <algorithm>

namespace forerun {
namespace {

constexpr int32_t LEAST_ROWS = 16;       // of a tile, where there are as many
constexpr int32_t TILES_PER_THREAD = 8;  // wanted, before tiles get more rows
constexpr int64_t LEAST_SPANS = 3;       // of a piece: below, handing out pieces costs more than it saves
constexpr int32_t PIECES_PER_THREAD = 6;

int32_t num_spans(const Step& step, int32_t sequence) {
  return (step.in.seq_lens[sequence] + ATTENTION_SPAN - 1) / ATTENTION_SPAN;
}

}  // namespace

void Tiling::lay(Step& step, int32_t group) {
  const StepInputs& in = step.in;
  sequence_of_.resize(in.num_tokens);
  for (int32_t s = 0; s < in.num_seqs; s++)
    std::fill(sequence_of_.begin() + in.query_start[s], sequence_of_.begin() + in.query_start[s + 1], s);
  const int64_t work = (int64_t)in.num_tokens * group * step.geometry.num_kv_heads;
  const int64_t rows = work / ((int64_t)TILES_PER_THREAD * step.num_threads) / LEAST_ROWS * LEAST_ROWS;
  lay_tiles(step, group, (int32_t)std::clamp<int64_t>(rows, LEAST_ROWS, MAX_TILE_ROWS));
  lay_pieces(step);
  step.sequence_of = sequence_of_.data();
  step.tiles = tiles_.data();
  step.pieces = pieces_.data();
  step.num_pieces = (int32_t)pieces_.size();
  step.partials = partials_.data();
  step.pieces_left = pieces_left_.data();
}

void Tiling::lay_tiles(const Step& step, int32_t group, int32_t num_rows) {
  tiles_.clear();
  for (int32_t s = 0; s < step.in.num_seqs; s++) {
    const int32_t rows = (step.in.query_start[s + 1] - step.in.query_start[s]) * group;
    for (int32_t row = 0; row < rows; row += num_rows) tiles_.push_back({s, row, std::min(num_rows, rows - row), 1, 0});
  }
}

void Tiling::lay_pieces(Step& step) {
  const int32_t num_kv_heads = step.geometry.num_kv_heads;
  int64_t all_spans = 0;
  for (const QueryTile& tile : tiles_) all_spans += (int64_t)num_spans(step, tile.sequence) * num_kv_heads;
  const int64_t fair = all_spans / (PIECES_PER_THREAD * step.num_threads);
  const int64_t most = step.num_threads == 1 ? all_spans : std::max(LEAST_SPANS, fair);
  const int64_t row_size = 16 + (step.geometry.head_dim + 15) / 16 * 16;
  int64_t num_partials = 0;
  pieces_.clear();
  pieces_left_.clear();
  step.appends_alone = false;
  for (int32_t t = 0; t < (int32_t)tiles_.size(); t++) {
    QueryTile& tile = tiles_[t];
    const int32_t spans = num_spans(step, tile.sequence);
    tile.num_pieces = (int32_t)((spans + most - 1) / most);
    for (int32_t i = 0; i < tile.num_pieces; i++)
      pieces_.push_back({t, (int32_t)((int64_t)spans * i / tile.num_pieces), (int32_t)((int64_t)spans * (i + 1) / tile.num_pieces)});
    pieces_left_.insert(pieces_left_.end(), num_kv_heads, tile.num_pieces);
    const bool is_cut = tile.num_pieces > 1 || tile.first_row > 0;
    step.appends_alone |= is_cut;
    tile.first_partial = num_partials;
    if (tile.num_pieces > 1) num_partials += (int64_t)num_kv_heads * spans * tile.num_rows * row_size;
  }
  if (num_partials > (int64_t)partials_.size()) partials_.resize(num_partials);
}

}  // namespace forerun

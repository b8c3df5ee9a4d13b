// How the queries of a step are cut into the units of attention: tiles of rows, and pieces of long contexts.
#pragma once
#include <vector>

#include "plugins/native/step.h"

namespace forerun {

// Cuts so that every thread has work; what it decides changes no bit of a result.
class Tiling {
 public:
  // Fills in what attention needs to know of a step; `group` query heads share a KV head.
  void lay(Step& step, int32_t group);

 private:
  void lay_tiles(const Step& step, int32_t group, int32_t num_rows);
  void lay_pieces(Step& step);

  std::vector<int32_t> sequence_of_, pieces_left_;
  std::vector<QueryTile> tiles_;
  std::vector<TilePiece> pieces_;
  std::vector<float> partials_;
};

}  // namespace forerun

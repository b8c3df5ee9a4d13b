// The matrix tiles of AMX: one configuration serves all operations, loaded once per thread and step.
//
// Tiles 0, 1, 6, 7: results, 16 rows of 16 numbers of 32 bits. Tiles 2 and 3: half-depth factors, 16 rows of 32 bytes
// and 8 rows of 64. Tiles 4 and 5: full-depth factors, 16 rows of 64 bytes each.
#pragma once
#include "plugins/native/vector.h"

namespace FORERUN_ISA {

constexpr int TILE_ROWS = 16;

#if defined(__AMX_TILE__)
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 32, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 8, 16, 16, 16, 16};
};

static const TileConfig TILE_CONFIG;

static void enter_tiles() { _tile_loadconfig(&TILE_CONFIG); }
static void leave_tiles() { _tile_release(); }

// Compilers don't know that loading a tile reads memory: what was written before must have been written.
FORERUN_INLINE void before_tiles() { asm volatile("" ::: "memory"); }
#else
static void enter_tiles() {}
static void leave_tiles() {}
#endif

}  // namespace FORERUN_ISA

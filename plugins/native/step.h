// What operations see of a plan and of the engine step that runs: plain data, the same in every build.
//
// Letters: T tokens, S sequences, B blocks per sequence, J logit rows, N candidates. The layout of Operation is the
// file format of a plan (builder/targets/cpu/plan.py writes it): fixed-width little-endian, no pointers.
#pragma once
#include <cstddef>
#include <cstdint>

#define FORERUN_MEMBER inline __attribute__((always_inline))  // never linked from another build

namespace forerun {

enum class OpCode : int32_t { embedding = 1, rms_norm = 2, linear = 3, append = 4, attention = 5, row_answers = 6, quantize = 7, layer_norm = 8 };
constexpr int32_t NUM_OP_CODES = 9;  // and none
enum class Epilogue : int32_t { none = 0, add = 1, gate = 2, activate = 3 };
enum class Activation : int32_t { silu = 0, gelu = 1, gelu_tanh = 2, relu = 3 };
// Rows of e4m3 and e2m1 are stored as the float32 numbers that they are with their scales multiplied in. Weights of e4m3,
// e2m1 and widened_int8 are stored in their bits, with their scales, and multiplied with rows of float32 numbers. Keys and
// values of e4m3, and of int8_static, which nothing else is, are stored in their bits with one fixed scale of the layer.
enum class Form : int32_t {
  float32 = 0, bfloat16 = 1, int8 = 2, int4 = 3, uint4 = 4, e4m3 = 5, e2m1 = 6, widened_int8 = 7, int8_static = 8
};
enum class Rows : int32_t { tokens = 0, logit_rows = 1 };

constexpr int32_t NOTHING = -1;  // for an optional buffer or weight

struct Operation {
  int32_t code;
  int32_t rows;       // Rows: which rows it works on
  int32_t in;         // buffer
  int32_t out;        // buffer
  int32_t other;      // buffer: the residual that is added
  int32_t weight;     // weight
  int32_t bias;       // weight, float32
  int32_t extra;      // weight: cosines of a rope, sines follow as the next weight; or an order of rows, int32
  int32_t epilogue;   // Epilogue
  int32_t layer;      // index in the KV group
  int32_t size_in;    // numbers per row of the input
  int32_t size_out;   // numbers per row of the output
  int32_t num_heads, num_kv_heads, head_dim, rope_dim;
  float eps;
  float scale;
  int32_t window;     // positions that attention sees, its own included; 0 for all
  float soft_cap;     // of attention scores; 0 for none
  int32_t activation;        // Activation, of an epilogue that has one
  int32_t pairs_neighbours;  // a rope turns dimension 2 i with 2 i + 1, not i with i + rope_dim / 2
  float key_scale, value_scale;  // fixed ones of keys and values that are stored as e4m3 or int8_static; 0 otherwise
  int32_t reserved[8];
};
static_assert(sizeof(Operation) == 128, "the file format of a plan");

struct BufferSpec {
  int32_t rows;  // Rows
  int32_t form;  // Form
  int32_t width;
  int32_t group;  // numbers of a row that share a scale: of int8, e2m1 and e4m3, where 0 stands for all; 0 otherwise
  float scale;    // the fixed one of all rows; 0 where scales come from the rows, or there are none
  int32_t reserved;
};
static_assert(sizeof(BufferSpec) == 24, "the file format of a plan");

struct WeightSpec {
  int64_t offset, num_bytes;  // in the file of weights
  int32_t form;               // Form
  int32_t group;              // inputs that share a scale; of integers as many as share one in a row of the input, or a multiple
  int32_t size_out, size_in;  // as padded
};
static_assert(sizeof(WeightSpec) == 32, "the file format of a plan");

struct Geometry {
  int32_t num_layers, num_kv_heads, head_dim, kv_form, block_size, vocab_size;
};

struct StepInputs {
  int32_t num_tokens, num_seqs, table_width, num_rows, num_candidates;
  const int32_t *token_ids, *positions, *query_start, *seq_lens, *block_tables, *slot_mapping, *logit_rows;
  const float* temperatures;
};

struct StepOutputs {
  int32_t* argmax;
  int32_t* candidate_ids;
  float* candidate_logits;
  float* logsumexp;
};

struct Buffer {
  char* data;
  int64_t row_bytes;
  BufferSpec spec;
};

constexpr int32_t ATTENTION_SPAN = 256;  // positions that are weighed together; spans begin at multiples of it
constexpr int32_t MAX_TILE_ROWS = 64;

// A run of query rows of one sequence; a row is a (token, head of the KV head's group) pair.
struct QueryTile {
  int32_t sequence, first_row, num_rows;
  int32_t num_pieces;    // into which its spans are split
  int64_t first_partial;  // of its rows and spans in `Step::partials`; only if it is split
};

// The spans [begin, end) of a tile: what one unit of attention computes.
struct TilePiece {
  int32_t tile, begin, end;
};

struct Step {
  Geometry geometry;
  const Buffer* buffers;
  const WeightSpec* weights;
  const char* weight_bytes;
  char* pool;
  int64_t head_bytes;  // keys, or values, of one block and one KV head
  StepInputs in;
  StepOutputs out;
  const int32_t* sequence_of;  // [T]
  const QueryTile* tiles;
  const TilePiece* pieces;
  int32_t num_pieces;
  float* partials;       // of split tiles: [K][spans][rows][16 + D, padded]: peak, total, padding, weighed values
  int32_t* pieces_left;  // of split tiles, [tiles][K]
  bool appends_alone;    // some sequence has more than one piece: keys and values must all be there first
  int32_t num_threads;

  FORERUN_MEMBER const char* weight(int32_t id) const { return weight_bytes + weights[id].offset; }
  FORERUN_MEMBER int32_t num_rows(int32_t rows) const {
    return rows == (int32_t)Rows::tokens ? in.num_tokens : in.num_rows; }
  FORERUN_MEMBER char* head(int32_t block, int32_t layer, int32_t is_value, int32_t kv_head) const {
    const int64_t index = ((int64_t)block * geometry.num_layers + layer) * 2 + is_value;
    return pool + (index * geometry.num_kv_heads + kv_head) * head_bytes;
  }
};

// One operation of one build: into how many independent units a step of it divides, and how to run one.
struct Kernel {
  int32_t (*units)(const Step&, const Operation&);
  void (*run)(const Step&, const Operation&, int32_t unit, char* scratch);
};

constexpr size_t SCRATCH_BYTES = 1 << 20;

struct Build {
  const char* name;
  void (*enter)();  // on every thread, before its first unit of a step
  void (*leave)();
  // Ranks a row of logits: the `count` largest, largest first, ties by lower id.
  void (*rank)(const float* row, int32_t size, int32_t* ids, float* logits, int32_t count);
  Kernel kernels[NUM_OP_CODES];  // by OpCode
};

}  // namespace forerun

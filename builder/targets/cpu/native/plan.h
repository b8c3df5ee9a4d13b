// A plan as it lies in memory, checked before anything of it is used.
#pragma once
#include <string>

#include "plugins/native/step.h"

namespace forerun {

constexpr char MAGIC[9] = "FORERUNP";
constexpr uint32_t PLAN_VERSION = 4;

struct PlanHeader {
  char magic[8];
  uint32_t version;
  int32_t num_buffers, num_weights, num_operations;
  Geometry geometry;
  int64_t weights_bytes;  // of the file of weights
  int64_t plan_bytes;     // of this file
};
static_assert(sizeof(PlanHeader) == 64, "the file format of a plan");

// Header, buffers, weights, operations, one after another without gaps.
struct Plan {
  const PlanHeader* header = nullptr;
  const BufferSpec* buffers = nullptr;
  const WeightSpec* weights = nullptr;
  const Operation* operations = nullptr;
};

// Gives what is wrong with a plan, or an empty text and the plan. Of its weights only the orders of rows are read.
std::string read_plan(const char* bytes, int64_t num_bytes, const char* weights, int64_t weights_bytes, Plan* plan);

// Positions that the rotary tables of all layers hold; 1 << 30 where no layer has one.
int64_t num_positions_of(const Plan& plan);

// Bytes of the keys, or the values, of one block and one KV head; and of a whole block.
int64_t head_bytes_of(const Geometry& geometry);
int64_t block_bytes_of(const Geometry& geometry);

// Bytes of one row of a buffer, and of a whole weight of a form.
int64_t row_bytes_of(const BufferSpec& buffer);
int64_t panel_weight_bytes(const WeightSpec& weight);

}  // namespace forerun

#include "builder/targets/cpu/native/limits.h"

#include "builder/targets/cpu/native/failure.h"

namespace forerun {
namespace {

constexpr int32_t BLOCK_OF_ROWS = 16;
// Rows times heads, and slots, are counted in 32 bits.
constexpr int32_t MAX_TOKENS = 1 << 17, MAX_LENGTH = 1 << 30, MAX_THREADS = 1 << 12;

std::string mebibytes(int64_t bytes) { return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB"; }

}  // namespace

void check_limits(const EngineLimits& limits, const Plan& plan) {
  const struct {
    const char* name;
    int32_t value, least, most;
  } rules[] = {
      {"max_num_tokens", limits.max_num_tokens, 1, MAX_TOKENS},
      {"max_num_seqs", limits.max_num_seqs, 1, MAX_TOKENS},
      {"max_logit_rows", limits.max_logit_rows, 1, MAX_TOKENS},
      {"max_seq_len", limits.max_seq_len, 1, MAX_LENGTH},
      {"num_blocks", limits.num_blocks, 2, INT32_MAX / plan.header->geometry.block_size},
      {"num_threads", limits.num_threads, 1, MAX_THREADS},
  };
  for (const auto& rule : rules)
    if (rule.value < rule.least || rule.value > rule.most)
      throw Failure{Cause::limits, std::string(rule.name) + " is " + std::to_string(rule.value) + ", from " +
                                       std::to_string(rule.least) + " to " + std::to_string(rule.most) + " are allowed"};
  if (limits.max_seq_len > num_positions_of(plan))
    throw Failure{Cause::limits, "max_seq_len is " + std::to_string(limits.max_seq_len) + ", its rotary tables hold " +
                                     std::to_string(num_positions_of(plan)) + " positions"};
}

int64_t room_for_rows(const BufferSpec& buffer, const EngineLimits& limits) {
  const int64_t rows = buffer.rows == (int32_t)Rows::tokens ? limits.max_num_tokens : limits.max_logit_rows;
  return (rows / BLOCK_OF_ROWS + 1) * BLOCK_OF_ROWS;
}

Footprint footprint_of(const Plan& plan, const EngineLimits& limits) {
  Footprint found{0, 0, (int64_t)SCRATCH_BYTES * limits.num_threads};
  if (__builtin_mul_overflow(block_bytes_of(plan.header->geometry), limits.num_blocks, &found.pool) || found.pool > INT64_MAX / 4)
    found.pool = INT64_MAX / 4;
  for (int32_t i = 0; i < plan.header->num_buffers; i++)
    found.buffers += room_for_rows(plan.buffers[i], limits) * row_bytes_of(plan.buffers[i]);
  return found;
}

std::string text_of(const Footprint& footprint) {
  return "it takes " + mebibytes(footprint.total()) + " (KV pool " + mebibytes(footprint.pool) + ", buffers of a step " +
         mebibytes(footprint.buffers) + ", threads " + mebibytes(footprint.scratch) + ")";
}

}  // namespace forerun

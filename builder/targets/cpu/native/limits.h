// What an engine is opened for: how much a step and a sequence may hold, and what of the machine it may take.
#pragma once
#include <cstdint>

#include "builder/targets/cpu/native/plan.h"

namespace forerun {

struct EngineLimits {
  int32_t max_num_tokens, max_num_seqs, max_logit_rows, max_seq_len, num_blocks, num_threads;
  int64_t max_bytes;  // of the machine's memory
};

// What an engine takes, in bytes, beside its weights; a pool beyond any machine counts as INT64_MAX / 4.
struct Footprint {
  int64_t pool, buffers, scratch;
  int64_t total() const { return pool + buffers + scratch; }
};

// Throws a Failure if a limit has a value that nothing could run with, or that the plan can't keep.
void check_limits(const EngineLimits& limits, const Plan& plan);

Footprint footprint_of(const Plan& plan, const EngineLimits& limits);
std::string text_of(const Footprint& footprint);

// Rows that a buffer has room for: kernels read whole blocks of 16.
int64_t room_for_rows(const BufferSpec& buffer, const EngineLimits& limits);

}  // namespace forerun

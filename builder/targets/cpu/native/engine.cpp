#include "builder/targets/cpu/native/engine.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "builder/targets/cpu/native/failure.h"

namespace forerun {
namespace {

constexpr int64_t HUGE_PAGE = 2 << 20;

}  // namespace

Pages::Pages(int64_t num_bytes) : data_(nullptr), num_bytes_((num_bytes + 4095) / 4096 * 4096) {
  void* found = mmap(nullptr, num_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (found == MAP_FAILED) return;
  data_ = (char*)found;
#if defined(MADV_HUGEPAGE)
  if (num_bytes_ >= HUGE_PAGE) madvise(data_, num_bytes_, MADV_HUGEPAGE);
#endif
}

Pages::~Pages() {
  if (data_) munmap(data_, num_bytes_);
}

Engine::Engine(const Plan& plan, const char* weights, const EngineLimits& limits, const Build& build)
    : plan_(plan), limits_(limits), build_(build), num_positions_(num_positions_of(plan)) {
  check_limits(limits, plan);
  step_.geometry = plan.header->geometry;
  step_.weights = plan.weights;
  step_.weight_bytes = weights;
  step_.num_threads = limits.num_threads;
  step_.head_bytes = head_bytes_of(step_.geometry);
  block_bytes_ = block_bytes_of(step_.geometry);
  read_operations();
  allocate();
  start_team();
}

void Engine::read_operations() {
  for (int32_t i = 0; i < plan_.header->num_operations; i++) {
    const Operation& op = plan_.operations[i];
    if (op.code == (int32_t)OpCode::attention) group_ = op.num_heads / op.num_kv_heads;
    if (op.code == (int32_t)OpCode::row_answers) logits_ = op.in;
  }
  for (int32_t i = 0; i < plan_.header->num_operations; i++)
    if (plan_.operations[i].code == (int32_t)OpCode::attention &&
        plan_.operations[i].num_heads / plan_.operations[i].num_kv_heads != group_)
      throw Failure{Cause::plan, "its layers group heads differently"};
  if (logits_ == NOTHING) throw Failure{Cause::plan, "it gives no logits"};
}

void Engine::allocate() {
  const Footprint needed = footprint_of(plan_, limits_);
  if (needed.total() > limits_.max_bytes)
    throw Failure{Cause::memory, text_of(needed) + ", " + std::to_string(limits_.max_bytes >> 20) + " MiB are free"};
  for (int32_t i = 0; i < plan_.header->num_buffers; i++) {
    const BufferSpec& spec = plan_.buffers[i];
    buffers_.push_back({take(room_for_rows(spec, limits_) * row_bytes_of(spec)), row_bytes_of(spec), spec});
  }
  for (int32_t thread = 0; thread < limits_.num_threads; thread++) scratch_.push_back(take(SCRATCH_BYTES));
  step_.pool = take(needed.pool);
  step_.buffers = buffers_.data();
}

char* Engine::take(int64_t num_bytes) {
  pages_.emplace_back(num_bytes);
  if (pages_.back().data()) return pages_.back().data();
  throw Failure{Cause::memory, text_of(footprint_of(plan_, limits_)) + ", which the system refuses"};
}

void Engine::start_team() {
  try {
    team_.emplace(limits_.num_threads);
  } catch (const std::exception& failure) {
    throw Failure{Cause::threads, failure.what()};
  }
}

std::string Engine::check(const StepInputs& in) const {
  const Geometry& g = step_.geometry;
  if (in.num_tokens < 1 || in.num_tokens > limits_.max_num_tokens || in.num_seqs < 1 ||
      in.num_seqs > limits_.max_num_seqs || in.num_rows < 0 || in.num_rows > limits_.max_logit_rows)
    return "a step is larger than its limits";
  for (int32_t t = 0; t < in.num_tokens; t++) {
    if (in.token_ids[t] < 0 || in.token_ids[t] >= g.vocab_size) return "a token is outside the vocabulary";
    if (in.positions[t] < 0 || in.positions[t] >= num_positions_) return "a position is outside the rotary tables";
    if (in.slot_mapping[t] < g.block_size || in.slot_mapping[t] / g.block_size >= limits_.num_blocks)
      return "a slot is outside the pool";
  }
  for (int32_t j = 0; j < in.num_rows; j++)
    if (in.logit_rows[j] < 0 || in.logit_rows[j] >= in.num_tokens) return "a logit row is no token of the step";
  return check_places(in);
}

std::string Engine::check_places(const StepInputs& in) const {
  const int32_t size = step_.geometry.block_size;
  if (in.query_start[0] != 0 || in.query_start[in.num_seqs] != in.num_tokens) return "tokens belong to no sequence";
  for (int32_t s = 0; s < in.num_seqs; s++) {
    const int32_t count = in.query_start[s + 1] - in.query_start[s], length = in.seq_lens[s];
    if (count < 1 || in.query_start[s + 1] > in.num_tokens || length < count || length > limits_.max_seq_len)
      return "a sequence has an impossible length";
    if ((length + size - 1) / size > in.table_width) return "a sequence is longer than its block table";
    for (int32_t b = 0; b * (int64_t)size < length; b++) {
      const int32_t block = in.block_tables[(int64_t)s * in.table_width + b];
      if (block < 1 || block >= limits_.num_blocks) return "a block is outside the pool";
    }
  }
  return "";
}

void Engine::copy_blocks(const int32_t* copies, int32_t num_copies) {
  for (int32_t c = 0; c < num_copies; c++, copies += 3)
    memcpy(step_.pool + copies[2] * block_bytes_, step_.pool + copies[1] * block_bytes_, block_bytes_);
}

std::string Engine::run(const StepInputs& inputs, const StepOutputs& outputs, const int32_t* copies, int32_t num_copies) {
  if (std::string problem = check(inputs); !problem.empty()) return problem;
  for (int32_t c = 0; c < num_copies; c++)
    if (copies[3 * c] != 0 || copies[3 * c + 1] < 0 || copies[3 * c + 1] >= limits_.num_blocks ||
        copies[3 * c + 2] < 1 || copies[3 * c + 2] >= limits_.num_blocks)
      return "a block to copy is outside the pool";
  copy_blocks(copies, num_copies);
  step_.in = inputs;
  step_.out = outputs;
  tiling_.lay(step_, group_);
  const int32_t count = plan_.header->num_operations;
  sizes_.resize(count);
  for (int32_t i = 0; i < count; i++) {
    const Operation& op = plan_.operations[i];
    sizes_[i] = step_.num_rows(op.rows) ? build_.kernels[op.code].units(step_, op) : 0;
  }
  const Team::Unit unit = [this](int32_t phase, int32_t index, int32_t thread) {
    const Operation& op = plan_.operations[phase];
    build_.kernels[op.code].run(step_, op, index, scratch_[thread]);
  };
  team_->run(sizes_, unit, build_.enter, build_.leave);
  count_times();
  return "";
}

void Engine::count_times() {
  const auto& ends = team_->ends();
  int64_t before = ends.back();
  for (size_t i = 0; i + 1 < ends.size(); i++) {
    if (!ends[i]) continue;
    times_[plan_.operations[i].code] += ends[i] - before;
    before = ends[i];
  }
}

void Engine::rank(const int32_t* rows, int32_t num_rows, int32_t count, int32_t* ids, float* logits) {
  const int32_t size = step_.geometry.vocab_size;
  const Team::Unit unit = [&](int32_t, int32_t index, int32_t) {
    const int64_t at = (int64_t)index * count;
    build_.rank(this->logits(rows[index]), size, ids + at, logits + at, count);
  };
  team_->run({num_rows}, unit, [] {}, [] {});
}

const float* Engine::logits(int32_t row) const {
  const Buffer& buffer = buffers_[logits_];
  return (const float*)(buffer.data + row * buffer.row_bytes);
}

}  // namespace forerun

// The engine: a checked plan, its buffers, the KV pool and a team of threads; runs one step per call.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "builder/targets/cpu/native/limits.h"
#include "builder/targets/cpu/native/plan.h"
#include "builder/targets/cpu/native/tiling.h"
#include "plugins/native/team.h"

namespace forerun {

// Zeroed pages of the system, given back at the end.
class Pages {
 public:
  explicit Pages(int64_t num_bytes);
  ~Pages();
  Pages(Pages&& other) noexcept : data_(other.data_), num_bytes_(other.num_bytes_) { other.data_ = nullptr; }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  char* data() const { return data_; }  // null when there is no memory

 private:
  char* data_;
  int64_t num_bytes_;
};

class Engine {
 public:
  // Plan and weights must live as long as the engine. Throws a Failure if it can't be made.
  Engine(const Plan& plan, const char* weights, const EngineLimits& limits, const Build& build);

  // Gives what is wrong with a step, or an empty text when it ran.
  std::string run(const StepInputs& inputs, const StepOutputs& outputs, const int32_t* copies, int32_t num_copies);
  const float* logits(int32_t row) const;
  // Gives the `count` largest logits of some rows of the last step, `[num_rows, count]`; all rows must be of it.
  void rank(const int32_t* rows, int32_t num_rows, int32_t count, int32_t* ids, float* logits);
  const int64_t* times_ns() const { return times_; }
  const Build& build() const { return build_; }

 private:
  std::string check(const StepInputs& inputs) const;
  std::string check_places(const StepInputs& inputs) const;
  void copy_blocks(const int32_t* copies, int32_t num_copies);
  void read_operations();
  void allocate();
  char* take(int64_t num_bytes);
  void start_team();
  void count_times();

  Plan plan_;
  EngineLimits limits_;
  const Build& build_;
  std::vector<Pages> pages_;
  std::vector<Buffer> buffers_;
  std::vector<char*> scratch_;
  std::vector<int32_t> sizes_;
  Tiling tiling_;
  Step step_{};
  int32_t group_ = 1, logits_ = NOTHING;
  int64_t num_positions_ = 0, block_bytes_ = 0;
  int64_t times_[NUM_OP_CODES] = {};  // by OpCode, summed over all steps
  std::optional<Team> team_;  // last: its threads end before what they work on
};

}  // namespace forerun

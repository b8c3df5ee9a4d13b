// A team of threads that works through a list of phases, each a number of independent units.
//
// Threads take units one by one, and whoever finishes the last unit of a phase opens the next: a thread that the system
// holds back delays the others by the unit it holds, never by a share of the work, and one that comes late just joins in.
// Between runs threads spin for a moment, because the next step usually follows at once, and then sleep.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace forerun {

class Team {
 public:
  using Unit = std::function<void(int32_t phase, int32_t unit, int32_t thread)>;

  explicit Team(int32_t num_threads);  // throws if the system refuses a thread
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  // Runs all phases on all threads, the caller's included; `sizes` holds the units of each phase, some may be 0.
  // `enter` and `leave` run on each thread that takes part.
  void run(const std::vector<int32_t>& sizes, const Unit& unit, void (*enter)(), void (*leave)());
  // When each phase of the last run ended, in ns; 0 where it had no units. One more entry, the last, for its beginning.
  const std::vector<int64_t>& ends() const { return ends_; }
  int32_t num_threads() const { return (int32_t)threads_.size() + 1; }

 private:
  void close();
  void serve(int32_t thread);
  void work(int32_t thread);
  void open_next(int32_t phase);

  static constexpr int32_t NO_PHASE = 0x7fffffff;
  // The open phase in the upper half, its next unit in the lower: taken together by one addition.
  alignas(64) std::atomic<uint64_t> ticket_{(uint64_t)NO_PHASE << 32};
  alignas(64) std::atomic<int32_t> num_done_{0};
  alignas(64) std::atomic<uint32_t> generation_{0};
  alignas(64) std::atomic<int32_t> num_inside_{0};
  std::atomic<bool> is_closing_{false};
  const std::vector<int32_t>* sizes_ = nullptr;
  const Unit* unit_ = nullptr;
  std::vector<int64_t> ends_;
  void (*enter_)() = nullptr;
  void (*leave_)() = nullptr;
  std::vector<std::thread> threads_;
};

}  // namespace forerun

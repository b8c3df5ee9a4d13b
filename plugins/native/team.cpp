#include "plugins/native/team.h"

#include <chrono>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace forerun {
namespace {

constexpr int SPINS_BEFORE_YIELD = 2000;
constexpr auto SPIN_TIME = std::chrono::microseconds(200);

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Team::Team(int32_t num_threads) {
  try {
    for (int32_t thread = 1; thread < num_threads; thread++) threads_.emplace_back([this, thread] { serve(thread); });
  } catch (...) {
    close();  // a thread that still runs when its object is destroyed ends the process
    throw;
  }
}

Team::~Team() { close(); }

void Team::close() {
  is_closing_ = true;
  generation_.fetch_add(1);
  generation_.notify_all();
  for (auto& thread : threads_) thread.join();
}

void Team::run(const std::vector<int32_t>& sizes, const Unit& unit, void (*enter)(), void (*leave)()) {
  sizes_ = &sizes, unit_ = &unit, enter_ = enter, leave_ = leave;
  ends_.assign(sizes.size() + 1, 0);
  ends_.back() = now_ns();
  num_done_.store(0, std::memory_order_relaxed);
  open_next(-1);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  work(0);
  // The caller's vectors must outlive every thread's look at them.
  while (num_inside_.load()) pause();
}

void Team::open_next(int32_t phase) {
  const int32_t count = (int32_t)sizes_->size();
  do phase++;
  while (phase < count && !(*sizes_)[phase]);
  ticket_.store((uint64_t)(phase < count ? phase : NO_PHASE) << 32);
}

void Team::work(int32_t thread) {
  enter_();
  int spins = 0;
  for (;;) {
    const int32_t open = (int32_t)(ticket_.load(std::memory_order_acquire) >> 32);
    if (open == NO_PHASE) break;
    if ((int32_t)(uint32_t)ticket_.load(std::memory_order_relaxed) >= (*sizes_)[open]) {
      if (++spins % SPINS_BEFORE_YIELD)
        pause();
      else
        std::this_thread::yield();  // the thread that holds the last unit may be waiting for this core
      continue;
    }
    const uint64_t ticket = ticket_.fetch_add(1, std::memory_order_acq_rel);
    const int32_t phase = (int32_t)(ticket >> 32), unit = (int32_t)(uint32_t)ticket;
    if (phase == NO_PHASE) break;
    if (unit >= (*sizes_)[phase]) continue;
    spins = 0;
    (*unit_)(phase, unit, thread);
    if (num_done_.fetch_add(1, std::memory_order_acq_rel) + 1 == (*sizes_)[phase]) {
      ends_[phase] = now_ns();
      num_done_.store(0, std::memory_order_relaxed);
      open_next(phase);
    }
  }
  leave_();
}

void Team::serve(int32_t thread) {
  uint32_t seen = 0;
  for (;;) {
    const auto deadline = std::chrono::steady_clock::now() + SPIN_TIME;
    while (generation_.load(std::memory_order_acquire) == seen) {
      for (int i = 0; i < 64; i++) pause();
      if (std::chrono::steady_clock::now() > deadline) generation_.wait(seen, std::memory_order_acquire);
    }
    seen = generation_.load(std::memory_order_acquire);
    if (is_closing_) return;
    // In one total order with the caller, which opens no phase and then looks for who is inside.
    num_inside_.fetch_add(1);
    if ((int32_t)(ticket_.load() >> 32) != NO_PHASE) work(thread);
    num_inside_.fetch_sub(1);
  }
}

}  // namespace forerun

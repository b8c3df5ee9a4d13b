// Prints the read bandwidth of this machine in GB/s for buffers of the sizes on the command line:
// read_bandwidth THREADS BYTES... Each thread sums its part of the buffer; the best of many passes counts.

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t kLine = 64;
constexpr int64_t kBytesInAll = int64_t{1} << 33;

int64_t sum(const int64_t* values, int64_t count) {
  int64_t sums[32] = {};  // as many as fit into registers: one sum would wait for each addition
  for (int64_t i = 0; i + 32 <= count; i += 32) {
    for (int64_t j = 0; j < 32; ++j) sums[j] += values[i + j];
  }
  int64_t total = 0;
  for (int64_t part : sums) total += part;
  return total;
}

double read(int num_threads, int64_t bytes) {
  const int64_t part = bytes / num_threads / kLine * kLine;
  std::vector<int64_t> buffer(part * num_threads / 8);
  for (size_t i = 0; i < buffer.size(); ++i) buffer[i] = static_cast<int64_t>(i);
  const int passes = static_cast<int>(std::clamp<int64_t>(kBytesInAll / bytes, 8, 4000));
  std::barrier gate(num_threads);
  std::vector<std::thread> threads;
  double best_s = 1e9;
  volatile int64_t sink = 0;
  for (int t = 0; t < num_threads; ++t) {
    threads.emplace_back([&, t] {
      for (int pass = 0; pass < passes; ++pass) {
        gate.arrive_and_wait();
        const auto start = Clock::now();
        sink = sink + sum(buffer.data() + t * (part / 8), part / 8);
        gate.arrive_and_wait();
        if (t == 0) best_s = std::min(best_s, std::chrono::duration<double>(Clock::now() - start).count());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return static_cast<double>(part * num_threads) / best_s / 1e9;
}

}  // namespace

int main(int count, char** arguments) {
  const int num_threads = std::atoi(arguments[1]);
  for (int i = 2; i < count; ++i) std::printf("%.2f\n", read(num_threads, std::atoll(arguments[i])));
}

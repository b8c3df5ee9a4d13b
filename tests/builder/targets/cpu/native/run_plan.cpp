// Runs a plan over one sequence and writes the logits of every token: for machines that Python does not run on.
// Usage: run_plan PLAN WEIGHTS BLOCK_SIZE VOCAB_SIZE THREADS CHUNK < token ids as int32 > logits as float32
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "builder/targets/cpu/native/engine.h"

extern "C" {
int32_t forerun_open(
    const char*, int64_t, const char*, int64_t, const forerun::EngineLimits*, const char*, forerun::Engine**, char*);
int32_t forerun_run(
    forerun::Engine*, const forerun::StepInputs*, const forerun::StepOutputs*, const int32_t*, int32_t, char*);
const float* forerun_logits(const forerun::Engine*, int32_t);
void forerun_close(forerun::Engine*);
}

namespace {

struct alignas(64) Line {
  char bytes[64];
};

// Reads a file to whole cache lines, as a mapped one lies.
std::vector<Line> read_lines(const char* path, int64_t* num_bytes) {
  std::ifstream stream(path, std::ios::binary | std::ios::ate);
  *num_bytes = stream.tellg();
  std::vector<Line> lines(*num_bytes / 64 + 1);
  stream.seekg(0).read((char*)lines.data(), *num_bytes);
  return lines;
}

int fail(const char* error) {
  fprintf(stderr, "%s\n", error);
  return 1;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 7) return fail("six arguments");
  int64_t plan_bytes, weights_bytes;
  const auto plan = read_lines(arguments[1], &plan_bytes), weights = read_lines(arguments[2], &weights_bytes);
  const int32_t block_size = atoi(arguments[3]), vocab_size = atoi(arguments[4]), threads = atoi(arguments[5]), chunk = atoi(arguments[6]);
  std::vector<int32_t> tokens;
  for (int32_t token; fread(&token, sizeof token, 1, stdin) == 1;) tokens.push_back(token);
  const int32_t length = (int32_t)tokens.size(), blocks = length / block_size + 1;
  const forerun::EngineLimits limits{length, 1, length, length, blocks + 1, threads, INT64_MAX};
  char error[256];
  forerun::Engine* engine = nullptr;
  if (forerun_open((const char*)plan.data(), plan_bytes, (const char*)weights.data(), weights_bytes, &limits, "", &engine, error))
    return fail(error);
  std::vector<int32_t> places(length), slots(length), table(blocks);
  for (int32_t i = 0; i < length; i++) places[i] = i, slots[i] = block_size + i;
  for (int32_t i = 0; i < blocks; i++) table[i] = i + 1;
  const std::vector<float> temperatures(length);
  std::vector<int32_t> argmax(length);
  std::vector<float> sums(length);
  for (int32_t start = 0; start < length; start += chunk) {
    const int32_t rows = length - start < chunk ? length - start : chunk, end = start + rows;
    const int32_t query_start[2] = {0, rows};
    const forerun::StepInputs inputs{
        rows, 1, blocks, rows, 0, &tokens[start], &places[start], query_start, &end, table.data(), &slots[start], places.data(), temperatures.data()};
    const forerun::StepOutputs outputs{argmax.data(), nullptr, nullptr, sums.data()};
    if (forerun_run(engine, &inputs, &outputs, nullptr, 0, error)) return fail(error);
    for (int32_t row = 0; row < rows; row++) fwrite(forerun_logits(engine, row), sizeof(float), vocab_size, stdout);
  }
  forerun_close(engine);
  return 0;
}

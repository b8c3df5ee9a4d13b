// The plain C interface that Python loads with ctypes (builder/targets/cpu/native.py). Errors come back as text.
#include <cstring>
#include <exception>
#include <string>

#include "builder/targets/cpu/native/builds.h"
#include "builder/targets/cpu/native/engine.h"
#include "builder/targets/cpu/native/failure.h"

namespace {

constexpr int ERROR_BYTES = 256;

void say(char* error, const std::string& text) {
  strncpy(error, text.c_str(), ERROR_BYTES - 1);
  error[ERROR_BYTES - 1] = 0;
}

std::string names_of_builds() {
  std::string names;
  for (const forerun::Build* build : forerun::usable_builds()) names += (names.empty() ? "" : ", ") + std::string(build->name);
  return names;
}

}  // namespace

#define FORERUN_EXPORT extern "C" __attribute__((visibility("default")))

FORERUN_EXPORT uint32_t forerun_plan_version() { return forerun::PLAN_VERSION; }

// Name of the `index`-th build that this machine can run, best first, or null.
FORERUN_EXPORT const char* forerun_build_name(int32_t index) {
  const auto builds = forerun::usable_builds();
  return index >= 0 && index < (int32_t)builds.size() ? builds[index]->name : nullptr;
}

// Gives a Cause, and the engine or what is wrong; no more than `max_bytes` of the limits are taken.
FORERUN_EXPORT int32_t forerun_open(
    const char* plan_bytes, int64_t num_plan_bytes, const char* weights, int64_t num_weights_bytes,
    const forerun::EngineLimits* limits, const char* build_name, forerun::Engine** engine, char* error) {
  using forerun::Cause;
  try {
    const forerun::Build* build = forerun::find_build(build_name);
    if (!build) throw forerun::Failure{Cause::build, names_of_builds()};
    forerun::Plan plan;
    const std::string problem = forerun::read_plan(plan_bytes, num_plan_bytes, weights, num_weights_bytes, &plan);
    if (!problem.empty()) throw forerun::Failure{Cause::plan, problem};
    *engine = new forerun::Engine(plan, weights, *limits, *build);
    return (int32_t)Cause::none;
  } catch (const forerun::Failure& failure) {
    say(error, failure.text);
    return (int32_t)failure.cause;
  } catch (const std::exception& failure) {  // of the library: nothing but allocations is left to throw one
    say(error, failure.what());
    return (int32_t)Cause::memory;
  }
}

FORERUN_EXPORT void forerun_close(forerun::Engine* engine) { delete engine; }

// Gives 0, or 1 and what is wrong with the step.
FORERUN_EXPORT int32_t forerun_run(
    forerun::Engine* engine, const forerun::StepInputs* inputs, const forerun::StepOutputs* outputs,
    const int32_t* copies, int32_t num_copies, char* error) {
  try {
    const std::string problem = engine->run(*inputs, *outputs, copies, num_copies);
    say(error, problem);
    return problem.empty() ? 0 : 1;
  } catch (const std::exception& failure) {
    say(error, failure.what());
    return 1;
  }
}

// Ranks rows of the last step; the caller has checked that they are of it, and that `count` is no more than the vocabulary.
FORERUN_EXPORT void forerun_rank(
    forerun::Engine* engine, const int32_t* rows, int32_t num_rows, int32_t count, int32_t* ids, float* logits) {
  engine->rank(rows, num_rows, count, ids, logits);
}

FORERUN_EXPORT const float* forerun_logits(const forerun::Engine* engine, int32_t row) { return engine->logits(row); }

// Nanoseconds spent in each kind of operation so far, by operation code.
FORERUN_EXPORT const int64_t* forerun_times_ns(const forerun::Engine* engine) { return engine->times_ns(); }

// Why an engine can't be opened; thrown, and told to Python as a kind and a text.
#pragma once
#include <cstdint>
#include <string>

namespace forerun {

// What a user can do about it differs by kind: builder/targets/cpu/opening.py has the words.
enum class Cause : int32_t { none = 0, plan = 1, limits = 2, build = 3, memory = 4, threads = 5 };

struct Failure {
  Cause cause;
  std::string text;
};

}  // namespace forerun

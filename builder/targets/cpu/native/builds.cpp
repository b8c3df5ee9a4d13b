#include "builder/targets/cpu/native/builds.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

#define DECLARE(isa)                  \
  namespace isa {                     \
  extern const forerun::Build build;  \
  }
DECLARE(forerun_generic)
#if defined(__x86_64__)
DECLARE(forerun_avx2)
DECLARE(forerun_avx_vnni)
DECLARE(forerun_avx512)
DECLARE(forerun_amx)
#endif

namespace forerun {
namespace {

#if defined(__x86_64__)
struct Leaf {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  Leaf(uint32_t leaf, uint32_t subleaf) { __get_cpuid_count(leaf, subleaf, &eax, &ebx, &ecx, &edx); }
};

bool has(uint32_t bits, std::initializer_list<int> wanted) {
  for (int bit : wanted)
    if (!(bits >> bit & 1)) return false;
  return true;
}

// What the system saves for a thread: without it an instruction that the machine has can't be used.
bool saves(uint64_t state) {
  if (!has(Leaf(1, 0).ecx, {27})) return false;  // OSXSAVE
  uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (((uint64_t)high << 32 | low) & state) == state;
}

bool may_use_tiles() {
#if defined(__linux__)
  constexpr long ASK_FOR_STATE = 0x1023, TILE_DATA = 18;  // Linux gives the tiles' state to who asks for it
  return syscall(SYS_arch_prctl, ASK_FOR_STATE, TILE_DATA) == 0;
#else
  return false;
#endif
}

bool has_avx2() { return saves(0x6) && has(Leaf(1, 0).ecx, {12, 29}) && has(Leaf(7, 0).ebx, {5}); }
bool has_avx_vnni() { return has_avx2() && has(Leaf(7, 1).eax, {4}); }
bool has_avx512() {
  // F, DQ, BW, VL; VNNI; BF16.
  return saves(0xe6) && has(Leaf(7, 0).ebx, {16, 17, 30, 31}) && has(Leaf(7, 0).ecx, {11}) && has(Leaf(7, 1).eax, {5});
}
bool has_amx() { return has_avx512() && saves(0x60000) && has(Leaf(7, 0).edx, {22, 24, 25}) && may_use_tiles(); }
#endif

}  // namespace

std::vector<const Build*> usable_builds() {
  std::vector<const Build*> found;
#if defined(__x86_64__)
  if (has_amx()) found.push_back(&forerun_amx::build);
  if (has_avx512()) found.push_back(&forerun_avx512::build);
  if (has_avx_vnni()) found.push_back(&forerun_avx_vnni::build);
  if (has_avx2()) found.push_back(&forerun_avx2::build);
#endif
  found.push_back(&forerun_generic::build);
  return found;
}

const Build* find_build(const std::string& name) {
  for (const Build* build : usable_builds())
    if (name.empty() || name == build->name) return build;
  return nullptr;
}

}  // namespace forerun

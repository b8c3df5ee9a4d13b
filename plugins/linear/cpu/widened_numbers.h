// Weights that are kept in fewer bits than the float32 numbers which they stand for: how a panel of them is read.
//
// A panel holds 16 outputs. E4M3 and widened int8: bytes [size_in][16], then float32 scales [groups][16]. E2M1: 4-bit
// numbers as int4_block.h has them, then scales [groups][16] in a byte each: of groups of 32 E8M0; of groups of 16 E4M3,
// and behind them float32 factors [16]. Each part is padded to 64 bytes. A weight is its number times its scale, rounded
// to float32 once; a scale that has a factor is their product, rounded once.
#pragma once
#include "plugins/native/e4m3.h"
#include "plugins/native/step.h"

namespace FORERUN_ISA {

struct WidenedPanels {
  const char* panels;
  int64_t size_in;
  int64_t group;  // inputs that share a scale
  bool is_4_bits;

  FORERUN_INLINE_MEMBER int64_t num_groups() const { return (size_in + group - 1) / group; }
  FORERUN_INLINE_MEMBER bool has_factors() const { return is_4_bits && group == 16; }
  FORERUN_INLINE_MEMBER int64_t scales_at() const { return is_4_bits ? 8 * group * num_groups() : round_up(16 * size_in, 64); }
  FORERUN_INLINE_MEMBER int64_t factors_at() const { return scales_at() + (is_4_bits ? round_up(16 * num_groups(), 64) : 64 * num_groups()); }
  FORERUN_INLINE_MEMBER int64_t panel_bytes() const { return factors_at() + (has_factors() ? 64 : 0); }
  FORERUN_INLINE_MEMBER const char* numbers(int panel) const { return panels + panel * panel_bytes(); }
  FORERUN_INLINE_MEMBER const char* scales(int panel) const { return numbers(panel) + scales_at(); }
  FORERUN_INLINE_MEMBER const float* factors(int panel) const { return (const float*)(numbers(panel) + factors_at()); }
};

// The numbers from 0 to 6 that E2M1 has, in the lower 3 of 4 bits; the highest is the sign.
FORERUN_INLINE Floats from_e2m1(Bits numbers) {
  alignas(64) static constexpr float OF[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
#if defined(__AVX512F__)
  return (Floats)_mm512_permutexvar_ps((__m512i)numbers, _mm512_load_ps(OF));
#elif defined(__AVX2__)
  const Bits signs = numbers << 28 & 0x80000000u;
  __m256i halves[2];
  memcpy(halves, &numbers, 64);
  const __m256 table = _mm256_load_ps(OF);
  const __m256 sizes[2] = {_mm256_permutevar8x32_ps(table, halves[0]), _mm256_permutevar8x32_ps(table, halves[1])};
  Bits bits;
  memcpy(&bits, sizes, 64);
  return (Floats)(bits | signs);
#else
  Floats value;
  for (int i = 0; i < LANES; i++) value[i] = OF[numbers[i] & 15];
  return value;
#endif
}

// A power of two from its exponent and 127; 0 stands for 2**-127.
FORERUN_INLINE Floats load_e8m0(const char* from) {
  const Bits exponents = (Bits)load_bytes((const uint8_t*)from);
  return (Floats)(exponents << 23 | ((Bits)(exponents == 0) & 0x400000u));
}

// Each kind of numbers: how many inputs are read at once, how, and the scales of a group.
struct E4m3Numbers {
  static constexpr int TOGETHER = 1;
  typedef Floats Run;
  static FORERUN_INLINE_MEMBER Run run(const char* numbers, int64_t k) { return load_e4m3(numbers + 16 * k); }
  static FORERUN_INLINE_MEMBER Floats number(Run run, int) { return run; }
  static FORERUN_INLINE_MEMBER Floats scale(const WidenedPanels& w, int panel, int64_t group) {
    return load((const float*)w.scales(panel) + 16 * group);
  }
};

struct Int8Numbers : E4m3Numbers {
  static FORERUN_INLINE_MEMBER Run run(const char* numbers, int64_t k) {
    return to_floats((Ints)((Bits)load_bytes((const uint8_t*)numbers + 16 * k) << 24) >> 24);
  }
};

struct E2m1Numbers {
  static constexpr int TOGETHER = 8;
  typedef Bits Run;
  static FORERUN_INLINE_MEMBER Run run(const char* numbers, int64_t k) {
    Bits bits;
    memcpy(&bits, numbers + 8 * k, sizeof bits);
    return bits;
  }
  static FORERUN_INLINE_MEMBER Floats number(Run run, int i) { return from_e2m1(run >> (i % 4 * 8 + i / 4 * 4)); }
};

struct Nvfp4Numbers : E2m1Numbers {
  static FORERUN_INLINE_MEMBER Floats scale(const WidenedPanels& w, int panel, int64_t group) {
    return load_e4m3(w.scales(panel) + 16 * group) * load(w.factors(panel));
  }
};

struct Mxfp4Numbers : E2m1Numbers {
  static FORERUN_INLINE_MEMBER Floats scale(const WidenedPanels& w, int panel, int64_t group) {
    return load_e8m0(w.scales(panel) + 16 * group);
  }
};

}  // namespace FORERUN_ISA

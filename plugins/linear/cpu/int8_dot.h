// Products of int8 with int8, summed in fours into int32: exact on every instruction set.
//
// `add_dots` adds w[4 n .. 4 n + 3] . a for each of 16 outputs n. Where the machine multiplies unsigned by signed only,
// 128 is added to the weights and the sum starts at -128 times the sum of the activations.
#pragma once
#include "plugins/native/vector.h"

namespace FORERUN_ISA {

// What a sum of unsigned weights starts with, so that each weight counts as itself minus its output's zero point.
// Factors of 16 bits are enough: a group has at most 256 activations.
FORERUN_INLINE Ints start_of_dots(Ints zeros, int32_t sum_of_activations) {
#if defined(__AVX512BW__)
  return (Ints)_mm512_madd_epi16((__m512i)zeros, _mm512_set1_epi32(-sum_of_activations));
#else
  return zeros * -sum_of_activations;
#endif
}

// Adds w[4 n .. 4 n + 3] . a for each of 16 outputs n; weights from 0 to 15.
FORERUN_INLINE Ints add_nibble_dots(Ints total, Bits weights, int32_t four) {
#if defined(__AVX512VNNI__)
  return (Ints)_mm512_dpbusd_epi32((__m512i)total, (__m512i)weights, _mm512_set1_epi32(four));
#elif defined(__AVX2__)
  __m256i halves[2], w[2];
  memcpy(halves, &total, sizeof halves), memcpy(w, &weights, sizeof w);
  const __m256i repeated = _mm256_set1_epi32(four);
  for (int i = 0; i < 2; i++) {
#if defined(__AVXVNNI__)
    halves[i] = _mm256_dpbusd_avx_epi32(halves[i], w[i], repeated);
#else
    const __m256i pairs = _mm256_maddubs_epi16(w[i], repeated);  // at most 2 * 15 * 127
    halves[i] = _mm256_add_epi32(halves[i], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
#endif
  }
  memcpy(&total, halves, sizeof halves);
  return total;
#else
  const Ints signs = all_ints(four);
  const Ints bytes = (Ints)weights;
  for (int i = 0; i < 4; i++) total += (bytes >> (8 * i) & 255) * (signs << (24 - 8 * i) >> 24);
  return total;
#endif
}

#if defined(__AVX512VNNI__)
FORERUN_INLINE Ints start_of_dots(int32_t sum_of_activations) { return all_ints(-128 * sum_of_activations); }
FORERUN_INLINE Ints add_dots(Ints total, const int8_t* weights, int32_t four) {
  const __m512i unsigned_weights = _mm512_xor_si512(_mm512_loadu_si512(weights), _mm512_set1_epi8((char)0x80));
  return (Ints)_mm512_dpbusd_epi32((__m512i)total, unsigned_weights, _mm512_set1_epi32(four));
}
#elif defined(__AVX2__)
FORERUN_INLINE Ints start_of_dots(int32_t) { return Ints{}; }
FORERUN_INLINE Ints add_dots(Ints total, const int8_t* weights, int32_t four) {
  __m256i halves[2];
  memcpy(halves, &total, sizeof halves);
  const __m256i repeated = _mm256_set1_epi32(four);
  for (int i = 0; i < 2; i++) {
    const __m256i w = _mm256_loadu_si256((const __m256i*)weights + i);
    const __m256i positive = _mm256_sign_epi8(w, w), with_sign = _mm256_sign_epi8(repeated, w);
#if defined(__AVXVNNI__)
    halves[i] = _mm256_dpbusd_avx_epi32(halves[i], positive, with_sign);
#else
    // No saturation: a pair is at most 2 * 128 * 127 (imported weights reach -128), below 2**15.
    const __m256i pairs = _mm256_maddubs_epi16(positive, with_sign);
    halves[i] = _mm256_add_epi32(halves[i], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
#endif
  }
  memcpy(&total, halves, sizeof halves);
  return total;
}
#else
FORERUN_INLINE Ints start_of_dots(int32_t) { return Ints{}; }
FORERUN_INLINE Ints add_dots(Ints total, const int8_t* weights, int32_t four) {
  int8_t a[4];
  memcpy(a, &four, sizeof a);
  for (int n = 0; n < LANES; n++)
    for (int i = 0; i < 4; i++) total[n] += weights[4 * n + i] * a[i];
  return total;
}
#endif

}  // namespace FORERUN_ISA

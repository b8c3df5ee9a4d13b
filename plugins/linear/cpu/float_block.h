// Up to 16 rows times some panels of float32 weights. A panel holds 16 outputs: float32 numbers [size_in][16].
//
// An output is one chain of fused additions over the inputs in ascending order, for every number of rows.
#pragma once
#include "plugins/native/vector.h"

namespace FORERUN_ISA {

struct FloatFactors {
  const float* rows;
  int64_t row_floats;
  const float* panels;
  int64_t size_in;
};

template <int M, int P>
FORERUN_APART void float_rows(const FloatFactors& f, float* out, int64_t stride) {
  Floats results[M][P] = {};
  const float* w = f.panels;
  for (int64_t k = 0; k < f.size_in; k++, w += 16) {
    Floats weights[P];
#pragma GCC unroll 4
    for (int p = 0; p < P; p++) weights[p] = load(w + p * 16 * f.size_in);
#pragma GCC unroll 8
    for (int m = 0; m < M; m++)
#pragma GCC unroll 4
      for (int p = 0; p < P; p++)
        results[m][p] = fused(all(f.rows[m * f.row_floats + k]), weights[p], results[m][p]);
  }
  for (int m = 0; m < M; m++)
    for (int p = 0; p < P; p++) store(out + m * stride + 16 * p, results[m][p]);
}

template <int M>
FORERUN_INLINE void float_panels(const FloatFactors& f, int num_panels, float* out, int64_t stride) {
  FloatFactors rest = f;
  int p = 0;
  for (; p + 2 <= num_panels; p += 2, rest.panels += 32 * f.size_in) float_rows<M, 2>(rest, out + 16 * p, stride);
  if (p < num_panels) float_rows<M, 1>(rest, out + 16 * p, stride);
}

// 1 to 16 rows by `num_panels` panels.
static void float_block(const FloatFactors& f, int num_rows, int num_panels, float* out, int64_t stride) {
  FloatFactors rest = f;
  while (num_rows > 0) {
    const int taken = num_rows >= 8 ? 8 : num_rows >= 4 ? 4 : 1;
    if (taken == 8) float_panels<8>(rest, num_panels, out, stride);
    if (taken == 4) float_panels<4>(rest, num_panels, out, stride);
    if (taken == 1) float_panels<1>(rest, num_panels, out, stride);
    num_rows -= taken, out += taken * stride, rest.rows += taken * f.row_floats;
  }
}

}  // namespace FORERUN_ISA

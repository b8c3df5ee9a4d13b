// Up to 16 rows times some panels of widened weights, to float32; and the same panels as float32, for many rows.
//
// An output has the bits that `float_block` gives it with the float32 weights: one chain of fused additions over the
// inputs in ascending order, whichever way it is computed.
#pragma once
#include "plugins/linear/cpu/float_block.h"
#include "plugins/linear/cpu/widened_numbers.h"

namespace FORERUN_ISA {

struct WidenedFactors {
  const float* rows;
  int64_t row_floats;
  WidenedPanels weights;
};

// Gives `use` every input of panels [0, P) in ascending order, with its weights.
template <typename Numbers, int P, typename Use>
FORERUN_INLINE void each_input(const WidenedPanels& w, const Use& use) {
  int64_t k = 0;
  for (int64_t group = 0; k < w.size_in; group++) {
    const int64_t end = k + w.group < w.size_in ? k + w.group : w.size_in;
    Floats scales[P];
#pragma GCC unroll 4
    for (int p = 0; p < P; p++) scales[p] = Numbers::scale(w, p, group);
    for (; k < end; k += Numbers::TOGETHER) {
      typename Numbers::Run runs[P];
#pragma GCC unroll 4
      for (int p = 0; p < P; p++) {
        runs[p] = Numbers::run(w.numbers(p), k);
        __builtin_prefetch(w.numbers(p) + k * (16 / (w.is_4_bits ? 2 : 1)) + 2048);
      }
#pragma GCC unroll 8
      for (int i = 0; i < Numbers::TOGETHER; i++) {
        if (i && k + i >= end) return;  // only the last group of a row is cut short
        Floats weights[P];
#pragma GCC unroll 4
        for (int p = 0; p < P; p++) weights[p] = Numbers::number(runs[p], i) * scales[p];
        use(k + i, weights);
      }
    }
  }
}

template <typename Numbers, int M, int P>
FORERUN_APART void widened_rows(const WidenedFactors& f, float* out, int64_t stride) {
  Floats results[M][P] = {};
  each_input<Numbers, P>(f.weights, [&](int64_t k, const Floats* weights) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int m = 0; m < M; m++)
#pragma GCC unroll 4
      for (int p = 0; p < P; p++) results[m][p] = fused(all(f.rows[m * f.row_floats + k]), weights[p], results[m][p]);
  });
  for (int m = 0; m < M; m++)
    for (int p = 0; p < P; p++) store(out + m * stride + 16 * p, results[m][p]);
}

template <typename Numbers, int M>
FORERUN_INLINE void widened_panels(const WidenedFactors& f, int num_panels, float* out, int64_t stride) {
  WidenedFactors rest = f;
  int p = 0;
  for (; p + 2 <= num_panels; p += 2, rest.weights.panels += 2 * f.weights.panel_bytes())
    widened_rows<Numbers, M, 2>(rest, out + 16 * p, stride);
  if (p < num_panels) widened_rows<Numbers, M, 1>(rest, out + 16 * p, stride);
}

// 1 to 16 rows by `num_panels` panels.
template <typename Numbers>
FORERUN_APART void widened_block(const WidenedFactors& f, int num_rows, int num_panels, float* out, int64_t stride) {
  WidenedFactors rest = f;
  while (num_rows > 0) {
    const int taken = num_rows >= 4 ? 4 : num_rows >= 2 ? 2 : 1;
    if (taken == 4) widened_panels<Numbers, 4>(rest, num_panels, out, stride);
    if (taken == 2) widened_panels<Numbers, 2>(rest, num_panels, out, stride);
    if (taken == 1) widened_panels<Numbers, 1>(rest, num_panels, out, stride);
    num_rows -= taken, out += taken * stride, rest.rows += taken * f.row_floats;
  }
}

// Writes panels as `float_block` reads them.
template <typename Numbers>
FORERUN_APART void widen(const WidenedPanels& w, int num_panels, float* to) {
  WidenedPanels rest = w;
  for (int p = 0; p < num_panels; p++, rest.panels += w.panel_bytes(), to += 16 * w.size_in)
    each_input<Numbers, 1>(rest, [&](int64_t k, const Floats* weights) __attribute__((always_inline)) { store(to + 16 * k, weights[0]); });
}

// What is done to weights of any kind.
struct WidenedKernels {
  void (*block)(const WidenedFactors&, int num_rows, int num_panels, float* out, int64_t stride);
  void (*widen)(const WidenedPanels&, int num_panels, float* to);
};

template <typename Numbers>
constexpr WidenedKernels WIDENED = {widened_block<Numbers>, widen<Numbers>};

static const WidenedKernels& widened_kernels(const forerun::WeightSpec& weight) {
  if (weight.form == (int32_t)forerun::Form::e4m3) return WIDENED<E4m3Numbers>;
  if (weight.form == (int32_t)forerun::Form::widened_int8) return WIDENED<Int8Numbers>;
  return weight.group == 16 ? WIDENED<Nvfp4Numbers> : WIDENED<Mxfp4Numbers>;
}

}  // namespace FORERUN_ISA

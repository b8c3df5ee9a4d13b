// Activations that an epilogue applies, each a type so that the choice is made once per row.
#pragma once
#include "plugins/native/vector.h"

namespace FORERUN_ISA {

struct Silu {
  static FORERUN_INLINE_MEMBER Floats of(Floats x) { return silu_of(x); }
};

struct Relu {
  static FORERUN_INLINE_MEMBER Floats of(Floats x) { return x < Floats{} ? Floats{} : x; }  // a NaN stays one
};

// x / 2 (1 + tanh(u)) is x sigmoid(2 u), with u = sqrt(2 / pi) (x + 0.044715 x^3).
struct GeluTanh {
  static FORERUN_INLINE_MEMBER Floats of(Floats x) {
    const Floats doubled = all(1.5957691216057308f) * x * fused(all(0.044715f) * x, x, all(1.0f));
    const Floats bounded = larger(all(-80.0f), doubled < all(80.0f) ? doubled : all(80.0f));
    return x * reciprocal(all(1.0f) + exp2_of(bounded * all(-LOG2_E)));
  }
};

// x / 2 (1 + erf(x / sqrt(2))), with a series (Abramowitz and Stegun 7.1.26) whose error is below 1.5e-7.
struct Gelu {
  static FORERUN_INLINE_MEMBER Floats of(Floats x) {
    const Floats z = magnitude(x) * all(0.70710678118654752f), bounded = z < all(10.0f) ? z : all(10.0f);
    const Floats t = reciprocal(fused(all(0.3275911f), bounded, all(1.0f)));
    Floats series = fused(all(1.061405429f), t, all(-1.453152027f));
    series = fused(series, t, all(1.421413741f));
    series = fused(series, t, all(-0.284496736f));
    series = fused(series, t, all(0.254829592f));
    const Floats rest = series * t * exp2_of(bounded * bounded * all(-LOG2_E));  // 1 - erf(|x| / sqrt(2))
    return all(0.5f) * x * (x < Floats{} ? rest : all(2.0f) - rest);
  }
};

}  // namespace FORERUN_ISA

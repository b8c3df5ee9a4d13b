// Writes a row of float32 to a buffer of any form: as it is, rounded to bfloat16 or E4M3, or quantized in groups.
#pragma once
#include "plugins/native/bfloat16.h"
#include "plugins/native/e4m3.h"
#include "plugins/native/quantize.h"
#include "plugins/native/step.h"

namespace FORERUN_ISA {

// `values` are as many as the buffer is wide, padding included.
FORERUN_INLINE void write_row(const forerun::Buffer& out, int64_t row, const float* values) {
  if ((forerun::Form)out.spec.form == forerun::Form::float32) {
    memcpy(out.data + row * out.row_bytes, values, sizeof(float) * out.spec.width);
    return;
  }
  if ((forerun::Form)out.spec.form == forerun::Form::bfloat16) {
    uint16_t* to = (uint16_t*)(out.data + row * out.row_bytes);
    for (int32_t i = 0; i < out.spec.width; i += LANES) store_bfloat16(to + i, load(values + i));
    return;
  }
  if ((forerun::Form)out.spec.form == forerun::Form::e4m3) {
    round_row_to_e4m3(values, (float*)(out.data + row * out.row_bytes), out.spec.width);
    return;
  }
  const QuantizedBlock layout{out.spec.width, out.spec.group};
  for (int64_t i = 0; i < layout.num_groups(); i++) quantize_group(values + i * layout.group, out.data, layout, row, i);
}

// A whole block of quantized rows: two threads that write scales of one block would pass its cache lines back and forth.
constexpr int ROWS_PER_UNIT = BLOCK_ROWS;

FORERUN_INLINE int32_t units_of_rows(int32_t rows) { return (rows + ROWS_PER_UNIT - 1) / ROWS_PER_UNIT; }

// Of every operation that works on rows one by one.
static int32_t rows_num_units(const forerun::Step& step, const forerun::Operation& op) {
  return units_of_rows(step.num_rows(op.rows));
}

static void quantize_run(const forerun::Step& step, const forerun::Operation& op, int32_t unit, char* scratch) {
  const auto &in = step.buffers[op.in], &out = step.buffers[op.out];
  float* values = (float*)scratch;
  memset(values, 0, sizeof(float) * out.spec.width);
  const int32_t last = step.num_rows(op.rows), begin = unit * ROWS_PER_UNIT;
  for (int32_t row = begin; row < last && row < begin + ROWS_PER_UNIT; row++) {
    memcpy(values, in.data + row * in.row_bytes, sizeof(float) * op.size_in);
    write_row(out, row, values);
  }
}

}  // namespace FORERUN_ISA

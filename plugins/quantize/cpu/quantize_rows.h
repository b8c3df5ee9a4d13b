// Writes rows of float32 to a buffer of any form: as they are, rounded, or quantized in groups.
#pragma once
#include "plugins/native/bfloat16.h"
#include "plugins/native/quantize.h"
#include "plugins/native/step.h"
#include "plugins/quantize/cpu/emulated_rows.h"

namespace FORERUN_ISA {

// Writes numbers of a row from a column on, whole groups of them; not of a form that is rounded as a whole row.
FORERUN_INLINE void write_part(const forerun::Buffer& out, int64_t row, const float* values, int64_t column, int64_t width) {
  char* to = out.data + row * out.row_bytes;
  if ((forerun::Form)out.spec.form == forerun::Form::float32) {
    memcpy((float*)to + column, values, sizeof(float) * width);
    return;
  }
  if ((forerun::Form)out.spec.form == forerun::Form::bfloat16) {
    for (int64_t i = 0; i < width; i += LANES) store_bfloat16((uint16_t*)to + column + i, load(values + i));
    return;
  }
  const QuantizedBlock layout{out.spec.width, out.spec.group};
  for (int64_t i = 0; i < width; i += layout.group)
    quantize_group(values + i, out.data, layout, row, (column + i) / layout.group, out.spec.scale);
}

// `values` are as many as the buffer is wide, padding included.
FORERUN_INLINE void write_row(const forerun::Buffer& out, int64_t row, const float* values) {
  const forerun::BufferSpec& spec = out.spec;
  float* to = (float*)(out.data + row * out.row_bytes);
  switch ((forerun::Form)spec.form) {
    case forerun::Form::e4m3: return write_e4m3_row(values, to, spec.width, spec.group, spec.scale);
    case forerun::Form::e2m1: return write_e2m1_row(values, to, spec.width, spec.scale);
    default: return write_part(out, row, values, 0, spec.width);
  }
}

// A whole block of quantized rows: two threads that write scales of one block would pass its cache lines back and forth.
constexpr int ROWS_PER_UNIT = BLOCK_ROWS;

FORERUN_INLINE int32_t units_of_rows(int32_t rows) { return (rows + ROWS_PER_UNIT - 1) / ROWS_PER_UNIT; }

// Of every operation that works on rows one by one.
static int32_t rows_num_units(const forerun::Step& step, const forerun::Operation& op) {
  return units_of_rows(step.num_rows(op.rows));
}

// Rounds rows, their numbers in another order and each times its factor where there are any.
static void quantize_run(const forerun::Step& step, const forerun::Operation& op, int32_t unit, char* scratch) {
  const auto &in = step.buffers[op.in], &out = step.buffers[op.out];
  const float* factors = op.weight == forerun::NOTHING ? nullptr : (const float*)step.weight(op.weight);
  const int32_t* order = op.extra == forerun::NOTHING ? nullptr : (const int32_t*)step.weight(op.extra);
  float* values = (float*)scratch;
  memset(values, 0, sizeof(float) * out.spec.width);
  const int32_t last = step.num_rows(op.rows), begin = unit * ROWS_PER_UNIT;
  for (int32_t row = begin; row < last && row < begin + ROWS_PER_UNIT; row++) {
    const auto* from = (const float*)(in.data + row * in.row_bytes);
    if (!order) memcpy(values, from, sizeof(float) * op.size_in);
    for (int32_t i = 0; order && i < op.size_in; i++) values[i] = from[order[i]];
    for (int32_t i = 0; factors && i < op.size_in; i += LANES) store(values + i, load(values + i) * load(factors + i));
    write_row(out, row, values);
  }
}

}  // namespace FORERUN_ISA

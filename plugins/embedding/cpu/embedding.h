// Embedding: one row of a table per token, read from the panels that a linear layer packs (a tied head shares them).
#pragma once
#include "plugins/linear/cpu/int4_block.h"
#include "plugins/quantize/cpu/quantize_rows.h"

namespace FORERUN_ISA {

static void embed_int8(const Int8Factors& table, int64_t token, float scale, float* out, int32_t width) {
  const int8_t* numbers = table.weights((int)(token / 16)) + token % 16 * 4;
  const uint16_t* scales = table.weight_scales((int)(token / 16)) + token % 16;
  for (int32_t i = 0; i < width; i++) {
    const float step = from_half(scales[i / table.layout.group * 16]) * scale;
    out[i] = (float)numbers[i / 4 * 64 + i % 4] * step;
  }
}

static void embed_int4(const Int4Factors& table, int64_t token, float scale, float* out, int32_t width) {
  const int panel = (int)(token / 16), lane = (int)(token % 16), group = table.rows.weight_group;
  const uint8_t* numbers = (const uint8_t*)table.weights(panel) + 4 * lane;
  for (int32_t i = 0; i < width; i++) {
    const float step = from_half(table.weight_scales(panel)[i / group * 16 + lane]) * scale;
    const int number = numbers[i / 8 * 64 + i % 4] >> (i % 8 < 4 ? 0 : 4) & 15;
    out[i] = (float)(number - table.zeros(panel, i / group)[lane]) * step;
  }
}

static void embed_float(const char* table, int64_t token, int32_t size_in, float* out, int32_t width) {
  const float* column = (const float*)table + token / 16 * 16 * size_in + token % 16;
  for (int32_t i = 0; i < width; i++) out[i] = column[16 * i];
}

static void embed_bfloat16(const char* table, int64_t token, int32_t size_in, float* out, int32_t width) {
  const uint16_t* column = (const uint16_t*)table + token / 16 * 16 * size_in + token % 16 * 2;
  for (int32_t i = 0; i < width; i++) out[i] = from_bfloat16(column[i / 2 * 32 + i % 2]);
}

static void embedding_run(const forerun::Step& step, const forerun::Operation& op, int32_t unit, char*) {
  const auto& out = step.buffers[op.out];
  const auto& weight = step.weights[op.weight];
  const char* table = step.weight(op.weight);
  const int32_t last = step.num_rows(op.rows), begin = unit * ROWS_PER_UNIT;
  for (int32_t row = begin; row < last && row < begin + ROWS_PER_UNIT; row++) {
    const int64_t token = step.in.token_ids[row];
    float* to = (float*)(out.data + row * out.row_bytes);
    const Int8Factors integers{nullptr, {weight.size_in, weight.group}, table, weight.group};
    switch ((forerun::Form)weight.form) {
      case forerun::Form::float32: embed_float(table, token, weight.size_in, to, op.size_out); break;
      case forerun::Form::bfloat16: embed_bfloat16(table, token, weight.size_in, to, op.size_out); break;
      case forerun::Form::int8: embed_int8(integers, token, op.scale, to, op.size_out); break;
      case forerun::Form::int4: embed_int4({integers, false}, token, op.scale, to, op.size_out); break;
      case forerun::Form::uint4: embed_int4({integers, true}, token, op.scale, to, op.size_out); break;
      case forerun::Form::e4m3:
      case forerun::Form::e2m1: break;  // of rows alone
    }
  }
}

}  // namespace FORERUN_ISA

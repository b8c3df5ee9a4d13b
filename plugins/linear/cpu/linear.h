// The linear operation: rows times weights, then an epilogue, in units of some panels by some rows.
#pragma once
#include "plugins/linear/cpu/float_block.h"
#include "plugins/linear/cpu/int8_block.h"
#include "plugins/native/step.h"

namespace FORERUN_ISA {

using forerun::Buffer;
using forerun::Epilogue;
using forerun::Form;
using forerun::Operation;
using forerun::Step;

constexpr int MAX_CHUNK_PANELS = 32;
constexpr int CHUNK_ROWS = 256;  // a unit reads its panels once from memory and uses them for this many rows

struct LinearUnits {
  int32_t panels, rows;        // of a unit
  int32_t num_chunks, num_runs;  // of panels, of rows
};

// Panels that an epilogue needs together: the gates and their factors of one quantized group.
FORERUN_INLINE int32_t least_panels(const Step& step, const Operation& op) {
  if ((Epilogue)op.epilogue != Epilogue::silu_gate) return 1;
  const int32_t group = step.buffers[op.out].spec.group;
  return 2 * (group ? group / 16 : 1);
}

static LinearUnits linear_units(const Step& step, const Operation& op) {
  const int32_t num_panels = (int32_t)round_up(step.weights[op.weight].size_out, 16) / 16;
  const int32_t rows = step.num_rows(op.rows), least = least_panels(step, op);
  LinearUnits units{};
  units.num_runs = (rows + CHUNK_ROWS - 1) / CHUNK_ROWS;
  // About 12 units for each thread: few enough that taking one costs nothing, enough to even out a busy neighbour.
  const int32_t wanted = num_panels * (units.num_runs ? units.num_runs : 1) / (12 * step.num_threads);
  units.panels = (int32_t)round_up(wanted < 2 ? 2 : wanted, least);
  if (units.panels > MAX_CHUNK_PANELS) units.panels = MAX_CHUNK_PANELS;
  units.rows = units.num_runs ? (int32_t)round_up((rows + units.num_runs - 1) / units.num_runs, 16) : 0;
  units.num_chunks = (num_panels + units.panels - 1) / units.panels;
  return units;
}

static int32_t linear_num_units(const Step& step, const Operation& op) {
  const LinearUnits units = linear_units(step, op);
  return units.num_chunks * units.num_runs;
}

// Where the results of one row go, and what is done to them on the way.
struct EpilogueRow {
  Epilogue kind;
  const float* results;
  const float* bias;   // or null
  const float* other;  // of the row, or null
  float scale;
  const Buffer* out;
  int64_t row;
};

FORERUN_INLINE Floats finished(const EpilogueRow& row, int64_t from, int64_t column) {
  const Floats value = load(row.results + from) * row.scale;
  return row.bias ? value + load(row.bias + column) : value;
}

FORERUN_APART void finish_plain(const EpilogueRow& row, int64_t column, int64_t width) {
  for (int64_t i = 0; i < width; i += LANES) {
    Floats value = finished(row, i, column + i);
    if (row.kind == Epilogue::add) value += load(row.other + column + i);
    store((float*)(row.out->data + row.row * row.out->row_bytes) + column + i, value);
  }
}

// Columns come as 16 gates, their 16 factors, the next 16 gates, and so on.
FORERUN_APART void finish_gates(const EpilogueRow& row, int64_t column, int64_t width) {
  alignas(64) float gated[16 * MAX_CHUNK_PANELS / 2];
  for (int64_t i = 0; i < width; i += 2 * LANES) {
    const Floats gate = finished(row, i, column + i), factor = finished(row, i + LANES, column + i + LANES);
    store(gated + i / 2, silu_of(gate) * factor);
  }
  const int group = row.out->spec.group;
  if ((Form)row.out->spec.form == Form::float32) {
    memcpy((float*)(row.out->data + row.row * row.out->row_bytes) + column / 2, gated, sizeof(float) * width / 2);
    return;
  }
  const QuantizedBlock layout{row.out->spec.width, group};
  for (int64_t i = 0; i < width / 2; i += group)
    quantize_group(gated + i, row.out->data, layout, row.row, (column / 2 + i) / group);
}

static void linear_block(
    const Step& step, const Operation& op, int32_t first, int32_t num_panels, int64_t row, int rows, float* out) {
  const Buffer& in = step.buffers[op.in];
  const auto& weight = step.weights[op.weight];
  if ((Form)weight.form == Form::int8) {
    const QuantizedBlock layout{weight.size_in, weight.group};
    Int8Factors factors{in.data + row / BLOCK_ROWS * layout.num_bytes(), layout, step.weight(op.weight)};
    factors.panels += first * factors.panel_bytes();
    int8_block(factors, rows, num_panels, out, 16 * num_panels);
  } else {
    const float* panels = (const float*)step.weight(op.weight) + (int64_t)first * 16 * weight.size_in;
    float_block({(const float*)(in.data + row * in.row_bytes), in.row_bytes / 4, panels, weight.size_in}, rows, num_panels, out, 16 * num_panels);
  }
}

static void linear_run(const Step& step, const Operation& op, int32_t unit, char* scratch) {
  const LinearUnits units = linear_units(step, op);
  const int32_t all_panels = (int32_t)round_up(step.weights[op.weight].size_out, 16) / 16;
  const int32_t first = unit / units.num_runs * units.panels;
  const int32_t num_panels = first + units.panels < all_panels ? units.panels : all_panels - first;
  const int64_t begin = (int64_t)(unit % units.num_runs) * units.rows, last = step.num_rows(op.rows);
  const int64_t end = begin + units.rows < last ? begin + units.rows : last;
  const Buffer& out = step.buffers[op.out];
  float* results = (float*)scratch;
  for (int64_t row = begin; row < end; row += 16) {
    const int rows = end - row < 16 ? (int)(end - row) : 16;
    linear_block(step, op, first, num_panels, row, rows, results);
    for (int r = 0; r < rows; r++) {
      EpilogueRow finish{(Epilogue)op.epilogue, results + r * 16 * num_panels, nullptr, nullptr, op.scale, &out,
                         row + r};
      if (op.bias != forerun::NOTHING) finish.bias = (const float*)step.weight(op.bias);
      if (op.other != forerun::NOTHING) {
        const Buffer& other = step.buffers[op.other];
        finish.other = (const float*)(other.data + (row + r) * other.row_bytes);
      }
      if (finish.kind == Epilogue::silu_gate)
        finish_gates(finish, 16 * first, 16 * num_panels);
      else
        finish_plain(finish, 16 * first, 16 * num_panels);
    }
  }
}

}  // namespace FORERUN_ISA

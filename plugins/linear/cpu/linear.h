// The linear operation: rows times weights, then an epilogue, in units of some panels by some rows.
#pragma once
#include "plugins/linear/cpu/activation.h"
#include "plugins/linear/cpu/bfloat16_block.h"
#include "plugins/linear/cpu/float_block.h"
#include "plugins/linear/cpu/int4_block.h"
#include "plugins/native/step.h"
#include "plugins/quantize/cpu/quantize_rows.h"

namespace FORERUN_ISA {

using forerun::Activation;
using forerun::Buffer;
using forerun::Epilogue;
using forerun::Form;
using forerun::Operation;
using forerun::Step;

constexpr int MAX_CHUNK_PANELS = 32;
constexpr int64_t RESULT_BYTES = 4 * 16 * 16 * MAX_CHUNK_PANELS, UNPACKED_BYTES = forerun::SCRATCH_BYTES - RESULT_BYTES;
// From so many rows on, 4-bit weights are faster unpacked once than read as they are for every four (measured).
#if defined(__AMX_INT8__)
constexpr int64_t LEAST_UNPACKED_ROWS = 9;
#else
constexpr int64_t LEAST_UNPACKED_ROWS = 17;
#endif
constexpr int CHUNK_ROWS = 256;  // a unit reads its panels once from memory and uses them for this many rows

FORERUN_INLINE bool is_4_bits(const forerun::WeightSpec& weight) {
  return (Form)weight.form == Form::int4 || (Form)weight.form == Form::uint4;
}

struct LinearUnits {
  int32_t panels, rows;        // of a unit
  int32_t num_chunks, num_runs;  // of panels, of rows
};

// Panels that an epilogue needs together: the gates and their factors of one quantized group.
FORERUN_INLINE int32_t least_panels(const Step& step, const Operation& op) {
  const int32_t group = step.buffers[op.out].spec.group, panels = group ? group / 16 : 1;
  return (Epilogue)op.epilogue == Epilogue::gate ? 2 * panels : panels;
}

static LinearUnits linear_units(const Step& step, const Operation& op) {
  const int32_t num_panels = (int32_t)round_up(step.weights[op.weight].size_out, 16) / 16;
  const int32_t rows = step.num_rows(op.rows), least = least_panels(step, op);
  LinearUnits units{};
  units.num_runs = (rows + CHUNK_ROWS - 1) / CHUNK_ROWS;
  // About 12 units for each thread: few enough that taking one costs nothing, enough to even out a busy neighbour.
  const int32_t wanted = num_panels * (units.num_runs ? units.num_runs : 1) / (12 * step.num_threads);
  units.panels = (int32_t)round_up(wanted < 2 ? 2 : wanted, least);
  // Of 4-bit weights no more than can be unpacked; int8 panels take 17 bytes per input at most, and padding.
  const int32_t unpacked = (int32_t)(UNPACKED_BYTES / (17 * (int64_t)step.weights[op.weight].size_in + 64)) / least * least;
  if (is_4_bits(step.weights[op.weight]) && units.panels > unpacked && unpacked) units.panels = unpacked;
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
  Activation activation;
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
template <typename Function>
FORERUN_APART void finish_gates(const EpilogueRow& row, int64_t column, int64_t width) {
  alignas(64) float gated[16 * MAX_CHUNK_PANELS / 2];
  for (int64_t i = 0; i < width; i += 2 * LANES) {
    const Floats gate = finished(row, i, column + i), factor = finished(row, i + LANES, column + i + LANES);
    store(gated + i / 2, Function::of(gate) * factor);
  }
  write_part(*row.out, row.row, gated, column / 2, width / 2);
}

template <typename Function>
FORERUN_APART void finish_activated(const EpilogueRow& row, int64_t column, int64_t width) {
  alignas(64) float values[16 * MAX_CHUNK_PANELS];
  for (int64_t i = 0; i < width; i += LANES) store(values + i, Function::of(finished(row, i, column + i)));
  write_part(*row.out, row.row, values, column, width);
}

template <typename Function>
FORERUN_INLINE void finish_with(const EpilogueRow& row, int64_t column, int64_t width) {
  row.kind == Epilogue::gate ? finish_gates<Function>(row, column, width) : finish_activated<Function>(row, column, width);
}

FORERUN_INLINE void finish(const EpilogueRow& row, int64_t column, int64_t width) {
  if (row.kind == Epilogue::none || row.kind == Epilogue::add) return finish_plain(row, column, width);
  switch (row.activation) {
    case Activation::silu: return finish_with<Silu>(row, column, width);
    case Activation::gelu: return finish_with<Gelu>(row, column, width);
    case Activation::gelu_tanh: return finish_with<GeluTanh>(row, column, width);
    case Activation::relu: return finish_with<Relu>(row, column, width);
  }
}

// Where the products of one unit come from: weights of any form, and room for those that are unpacked for many rows.
struct LinearSource {
  const Buffer* in;
  const forerun::WeightSpec* weight;
  const char* panels;  // the unit's first
  int32_t num_panels;
  bool is_unpacked;  // 4-bit weights that now lie there as int8

  FORERUN_INLINE_MEMBER bool is_nibbles() const { return !is_unpacked && is_4_bits(*weight); }
  FORERUN_INLINE_MEMBER Int8Factors integers(int64_t row) const {
    const QuantizedBlock layout{in->spec.width, in->spec.group};
    return {in->data + row / BLOCK_ROWS * layout.num_bytes(), layout, panels, weight->group};
  }
  FORERUN_INLINE_MEMBER int64_t panel_bytes() const {
    if ((Form)weight->form == Form::float32) return 64 * (int64_t)weight->size_in;
    if ((Form)weight->form == Form::bfloat16) return 32 * (int64_t)weight->size_in;
    return is_nibbles() ? nibbles(0).panel_bytes() : integers(0).panel_bytes();
  }
  FORERUN_INLINE_MEMBER Int4Factors nibbles(int64_t row) const { return {integers(row), (Form)weight->form == Form::uint4}; }
};

// Points a source at the panels from `first` on; unpacks 4-bit ones if they are used for many rows and there is room.
static LinearSource linear_source(const Step& step, const Operation& op, int32_t first, int32_t num_panels, int64_t rows, char* room) {
  const auto& weight = step.weights[op.weight];
  LinearSource source{&step.buffers[op.in], &weight, step.weight(op.weight), num_panels, false};
  source.panels += first * source.panel_bytes();
  if (!source.is_nibbles() || rows < LEAST_UNPACKED_ROWS) return source;
  const Int4Factors factors = source.nibbles(0);
  if (num_panels * factors.rows.panel_bytes() > UNPACKED_BYTES) return source;
  unpack_int4(factors, num_panels, room);
  source.panels = room, source.is_unpacked = true;
  return source;
}

static void linear_block(const LinearSource& source, int64_t row, int rows, float* out) {
  const char* data = source.in->data + row * source.in->row_bytes;
  const int64_t size_in = source.weight->size_in, stride = 16 * source.num_panels;
  if (source.is_nibbles())
    int4_block(source.nibbles(row), rows, source.num_panels, out, stride);
  else if ((Form)source.weight->form == Form::float32)
    float_block({(const float*)data, source.in->row_bytes / 4, (const float*)source.panels, size_in}, rows, source.num_panels, out, stride);
  else if ((Form)source.weight->form == Form::bfloat16)
    bfloat16_block({data, source.in->row_bytes, source.panels, size_in}, rows, source.num_panels, out, stride);
  else
    int8_block(source.integers(row), rows, source.num_panels, out, stride);
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
  const LinearSource source = linear_source(step, op, first, num_panels, end - begin, scratch + RESULT_BYTES);
  for (int64_t row = begin; row < end; row += 16) {
    const int rows = end - row < 16 ? (int)(end - row) : 16;
    linear_block(source, row, rows, results);
    for (int r = 0; r < rows; r++) {
      EpilogueRow ending{(Epilogue)op.epilogue, (Activation)op.activation, results + r * 16 * num_panels, nullptr, nullptr,
                         op.scale, &out, row + r};
      if (op.bias != forerun::NOTHING) ending.bias = (const float*)step.weight(op.bias);
      if (op.other != forerun::NOTHING) {
        const Buffer& other = step.buffers[op.other];
        ending.other = (const float*)(other.data + (row + r) * other.row_bytes);
      }
      finish(ending, 16 * first, 16 * num_panels);
    }
  }
}

}  // namespace FORERUN_ISA

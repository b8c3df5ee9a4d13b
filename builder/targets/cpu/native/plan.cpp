#include "builder/targets/cpu/native/plan.h"

#include <algorithm>
#include <cfloat>
#include <cstring>

namespace forerun {
namespace {

constexpr int32_t MAX_SIZE = 1 << 24;
constexpr int32_t MAX_HEAD_DIM = 256;
constexpr int32_t MAX_SCRATCH_WIDTH = SCRATCH_BYTES / 2 / sizeof(float);  // of rows that pass through scratch memory

int64_t up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }
bool in_range(int64_t value, int64_t least, int64_t most) { return least <= value && value <= most; }
// Of a row: an epilogue works on up to 32 panels of 16, which whole groups of gates and of their factors must fill.
bool is_group(int32_t group) { return group == 32 || group == 64 || group == 128 || group == 256; }
bool is_integer(int32_t form) { return in_range(form, (int32_t)Form::int8, (int32_t)Form::uint4); }
// Of keys and values: in 8 bits with a fixed scale.
bool is_fixed(int32_t form) { return form == (int32_t)Form::e4m3 || form == (int32_t)Form::int8_static; }
bool is_float(int32_t form) { return in_range(form, (int32_t)Form::float32, (int32_t)Form::bfloat16); }
// Whether a weight is kept in fewer bits than the float32 numbers that it is multiplied as.
bool is_widened(int32_t form) { return in_range(form, (int32_t)Form::e4m3, (int32_t)Form::widened_int8); }

// Rounded as a whole: a unit that has a part of a row can't write it.
bool is_written_whole(int32_t form) { return form == (int32_t)Form::e4m3 || form == (int32_t)Form::e2m1; }

// A row of float32 numbers, whatever they were rounded to.
bool has_wide_numbers(int32_t form) { return form == (int32_t)Form::float32 || is_written_whole(form); }

// Then no scale of a group is below float32's smallest, and no number beyond its largest.
bool is_fixed(float scale) { return scale >= 0x1p-100f && scale <= 0x1p100f; }

bool is_right(const BufferSpec& buffer) {
  if (!in_range(buffer.rows, 0, 1) || !in_range(buffer.width, 1, MAX_SIZE) || buffer.width % 16) return false;
  if (buffer.reserved || (buffer.scale != 0 && !is_fixed(buffer.scale))) return false;
  const bool is_dynamic = buffer.scale == 0;
  switch ((Form)buffer.form) {
    case Form::float32:
    case Form::bfloat16: return is_dynamic && buffer.group == 0;
    case Form::int8: return is_group(buffer.group) && buffer.width % buffer.group == 0;
    case Form::e4m3: return is_dynamic ? buffer.group >= 0 && buffer.group % 16 == 0 : buffer.group == 0;
    case Form::e2m1: return !is_dynamic && buffer.group == 16;
    default: return false;
  }
}

bool is_right(const WeightSpec& weight, int64_t weights_bytes) {
  if (weight.offset < 0 || weight.num_bytes < 0 || weight.offset % 64 || weight.offset > weights_bytes) return false;
  if (weight.num_bytes > weights_bytes - weight.offset) return false;
  if (!in_range(weight.size_out, 1, MAX_SIZE) || !in_range(weight.size_in, 1, MAX_SIZE)) return false;
  if (weight.form == (int32_t)Form::bfloat16 && weight.size_in % 32) return false;
  if (is_float(weight.form)) return weight.group == 0;
  if (weight.form == (int32_t)Form::e2m1) return weight.group == 16 || weight.group == 32;
  if (is_widened(weight.form)) return weight.group == 0 || (weight.group >= 16 && weight.group % 16 == 0);
  return is_integer(weight.form) && weight.group >= 32 && weight.group % 32 == 0 && weight.size_in % weight.group == 0;
}

// Looks at one operation; every number that a kernel takes on trust is compared with what it indexes.
struct Checker {
  const Plan& plan;
  const Operation& op;

  bool has_buffer(int32_t id) const { return in_range(id, 0, plan.header->num_buffers - 1); }
  bool has_weight(int32_t id) const { return in_range(id, 0, plan.header->num_weights - 1); }
  const BufferSpec& buffer(int32_t id) const { return plan.buffers[id]; }
  const WeightSpec& weight(int32_t id) const { return plan.weights[id]; }
  bool is_float(int32_t id, int64_t width) const {
    return has_buffer(id) && buffer(id).form == (int32_t)Form::float32 && buffer(id).width >= width;
  }
  bool is_vector(int32_t id, int64_t size) const {
    return has_weight(id) && weight(id).form == (int32_t)Form::float32 && weight(id).num_bytes >= 4 * size;
  }
  bool has_rows(int32_t id, int32_t rows) const { return has_buffer(id) && buffer(id).rows == rows; }
  bool is_packed(int32_t id) const {
    return has_weight(id) && weight(id).num_bytes >= panel_weight_bytes(weight(id));
  }

  bool embedding() const {
    return op.rows == 0 && has_rows(op.out, 0) && is_packed(op.weight) && is_float(op.out, op.size_out) && !is_widened(weight(op.weight).form) &&
           in_range(op.size_out, 1, weight(op.weight).size_in) &&
           weight(op.weight).size_out >= plan.header->geometry.vocab_size;
  }
  bool layer_norm() const { return rms_norm() && (op.bias == NOTHING || is_vector(op.bias, up(op.size_in, 16))); }
  bool rms_norm() const {
    const int64_t width = up(op.size_in, 16);
    return is_float(op.in, width) && has_rows(op.out, op.rows) && (buffer(op.in).rows == op.rows || op.rows == 1) &&
           op.size_in > 0 && is_vector(op.weight, width) && in_range(buffer(op.out).width, width, MAX_SCRATCH_WIDTH);
  }
  // A float row may be wider than the weight; quantized rows lie in blocks that the width decides.
  static bool takes(const WeightSpec& w, const BufferSpec& in) {
    if (is_integer(w.form)) return in.form == (int32_t)Form::int8 && in.width == w.size_in && w.group % in.group == 0;
    const bool is_wide = w.form == (int32_t)Form::float32 || is_widened(w.form);
    return (is_wide ? has_wide_numbers(in.form) : in.form == w.form) && in.width >= w.size_in;
  }
  bool linear() const {
    if (!is_packed(op.weight) || !has_rows(op.in, op.rows) || !has_rows(op.out, op.rows)) return false;
    const WeightSpec& w = weight(op.weight);
    const BufferSpec &in = buffer(op.in), &out = buffer(op.out);
    const bool is_gate = op.epilogue == (int32_t)Epilogue::gate, activates = op.epilogue == (int32_t)Epilogue::activate;
    const int64_t width = up(w.size_out, 16) / (is_gate ? 2 : 1);
    if (!takes(w, in) || !in_range(op.epilogue, 0, 3) || !in_range(op.activation, 0, 3) || out.width < width) return false;
    if (!is_gate && !activates && out.form != (int32_t)Form::float32) return false;
    if (is_written_whole(out.form)) return false;
    if (is_gate && w.size_out % (out.group ? 2 * out.group : 32)) return false;
    if (activates && w.size_out % (out.group ? out.group : 16)) return false;
    if (op.bias != NOTHING && !is_vector(op.bias, up(w.size_out, 16))) return false;
    const bool adds = op.epilogue == (int32_t)Epilogue::add;
    return adds == (op.other != NOTHING) && (!adds || (is_float(op.other, width) && has_rows(op.other, op.rows)));
  }
  // Cosines and sines of as many positions.
  bool has_angles() const {
    const int64_t half = op.rope_dim / 2;
    return is_vector(op.extra, half) && is_vector(op.extra + 1, half) &&
           weight(op.extra).num_bytes == weight(op.extra + 1).num_bytes;
  }
  // Attention appends for itself where it can: it stands behind its append, and differs in nothing but its output.
  bool follows_append() const {
    if (&op == plan.operations) return false;
    Operation append = *(&op - 1);
    if (append.code != (int32_t)OpCode::append) return false;
    append.code = op.code, append.out = op.out;
    return memcmp(&append, &op, sizeof op) == 0;
  }
  // A scale that divides and multiplies every number of 8 bits without leaving the normal ones.
  static bool is_scale(float value) { return value >= FLT_MIN && value <= FLT_MAX / 512; }
  bool has_scales() const {
    if (!is_fixed(plan.header->geometry.kv_form)) return op.key_scale == 0 && op.value_scale == 0;
    return is_scale(op.key_scale) && is_scale(op.value_scale);
  }
  bool heads() const {
    const Geometry& g = plan.header->geometry;
    return has_scales() && op.rows == 0 && op.num_kv_heads == g.num_kv_heads && op.head_dim == g.head_dim && op.num_heads > 0 &&
           op.num_heads < MAX_SIZE / MAX_HEAD_DIM && op.num_heads % op.num_kv_heads == 0 &&
           op.num_heads / op.num_kv_heads < 16384 && in_range(op.layer, 0, g.num_layers - 1) &&
           in_range(op.rope_dim, 0, op.head_dim) && op.rope_dim % 2 == 0 && in_range(op.pairs_neighbours, 0, 1) &&
           (op.rope_dim == 0 || has_angles()) && has_rows(op.in, 0) && is_float(op.in, (int64_t)(op.num_heads + 2 * op.num_kv_heads) * op.head_dim);
  }
  bool attention() const {
    if (!heads() || !follows_append() || !has_rows(op.out, 0)) return false;
    const int64_t width = (int64_t)op.num_heads * op.head_dim;
    const BufferSpec& out = buffer(op.out);
    if (op.window < 0 || !(op.soft_cap >= 0 && op.soft_cap < 1e6f)) return false;
    if (out.width < width || out.form == (int32_t)Form::bfloat16 || is_written_whole(out.form)) return false;
    return out.form == (int32_t)Form::float32 || op.head_dim % out.group == 0;
  }
  bool row_answers() const { return op.rows == 1 && has_rows(op.in, 1) && op.size_in == plan.header->geometry.vocab_size && is_float(op.in, op.size_in); }
  bool quantize() const {
    return has_rows(op.in, op.rows) && has_rows(op.out, op.rows) && op.size_in > 0 && is_float(op.in, op.size_in) &&
           in_range(buffer(op.out).width, op.size_in, MAX_SCRATCH_WIDTH) &&
           (op.weight == NOTHING || is_vector(op.weight, up(op.size_in, 16))) && (op.extra == NOTHING || is_vector(op.extra, op.size_in));
  }
  // Whether each number of a row is taken from one that the row has.
  bool has_order_within_rows(const char* weights) const {
    if (op.code != (int32_t)OpCode::quantize || op.extra == NOTHING) return true;
    const auto* order = (const int32_t*)(weights + weight(op.extra).offset);
    return std::all_of(order, order + op.size_in, [this](int32_t index) { return in_range(index, 0, op.size_in - 1); });
  }
  bool is_right() const {
    if (!in_range(op.rows, 0, 1)) return false;
    for (int32_t number : op.reserved)
      if (number) return false;
    switch ((OpCode)op.code) {
      case OpCode::embedding: return embedding();
      case OpCode::rms_norm: return rms_norm();
      case OpCode::linear: return linear();
      case OpCode::append: return heads();
      case OpCode::attention: return attention();
      case OpCode::row_answers: return row_answers();
      case OpCode::quantize: return quantize();
      case OpCode::layer_norm: return layer_norm();
    }
    return false;
  }
};

bool is_right(const Geometry& g) {
  return in_range(g.num_layers, 1, 100000) && in_range(g.num_kv_heads, 1, 65536) && in_range(g.head_dim, 1, MAX_HEAD_DIM) &&
         (in_range(g.kv_form, 0, 2) || is_fixed(g.kv_form)) && in_range(g.block_size, 16, 1024) && g.block_size % 16 == 0 && in_range(g.vocab_size, 1, MAX_SIZE);
}

int64_t widened_panel_bytes(const WeightSpec& weight) {
  const int64_t group = weight.group ? weight.group : weight.size_in, groups = (weight.size_in + group - 1) / group;
  if (weight.form != (int32_t)Form::e2m1) return up(16 * (int64_t)weight.size_in, 64) + 64 * groups;
  return 8 * group * groups + up(16 * groups, 64) + (weight.group == 16 ? 64 : 0);
}

}  // namespace

int64_t num_positions_of(const Plan& plan) {
  int64_t found = 1 << 30;
  for (int32_t i = 0; i < plan.header->num_operations; i++) {
    const Operation& op = plan.operations[i];
    const bool turns = op.code == (int32_t)OpCode::append || op.code == (int32_t)OpCode::attention;
    if (turns && op.rope_dim) found = std::min(found, plan.weights[op.extra].num_bytes / (2 * op.rope_dim));
  }
  return found;
}

int64_t block_bytes_of(const Geometry& g) { return head_bytes_of(g) * g.num_kv_heads * 2 * g.num_layers; }

int64_t head_bytes_of(const Geometry& g) {
  const int64_t depth = up(g.head_dim, 16);
  if (g.kv_form == (int32_t)Form::int8) return g.block_size * (depth + 4);  // and a scale
  if (is_fixed(g.kv_form)) return g.block_size * depth;
  return g.block_size * depth * (g.kv_form == (int32_t)Form::float32 ? 4 : 2);
}

int64_t row_bytes_of(const BufferSpec& buffer) {
  if (has_wide_numbers(buffer.form)) return up(4 * (int64_t)buffer.width, 64);
  if (is_float(buffer.form)) return up(2 * (int64_t)buffer.width, 64);
  return up(buffer.width, 64) + 8 * (int64_t)(buffer.width / buffer.group);  // a sixteenth of a block of 16 rows
}

int64_t panel_weight_bytes(const WeightSpec& weight) {
  const int64_t panels = up(weight.size_out, 16) / 16;
  if (is_widened(weight.form)) return panels * widened_panel_bytes(weight);
  if (is_float(weight.form)) return panels * (weight.form == (int32_t)Form::float32 ? 64 : 32) * weight.size_in;
  const int64_t groups = weight.size_in / weight.group, scales = up(32 * groups, 64);
  if (weight.form == (int32_t)Form::int8) return panels * (16 * (int64_t)weight.size_in + scales);
  return panels * (8 * (int64_t)weight.size_in + scales + (weight.form == (int32_t)Form::uint4 ? up(16 * groups, 64) : 0));
}

std::string read_plan(const char* bytes, int64_t num_bytes, const char* weights, int64_t weights_bytes, Plan* plan) {
  const auto* header = (const PlanHeader*)bytes;
  if (num_bytes < (int64_t)sizeof(PlanHeader) || memcmp(header->magic, MAGIC, 8)) return "it is not a plan";
  if (header->version != PLAN_VERSION)
    return "it has version " + std::to_string(header->version) + ", this engine reads " + std::to_string(PLAN_VERSION);
  if (!in_range(header->num_buffers, 1, 65536) || !in_range(header->num_weights, 1, MAX_SIZE) ||
      !in_range(header->num_operations, 1, MAX_SIZE))
    return "its tables have impossible sizes";
  const int64_t expected = sizeof(PlanHeader) + sizeof(BufferSpec) * (int64_t)header->num_buffers +
                           sizeof(WeightSpec) * (int64_t)header->num_weights + sizeof(Operation) * (int64_t)header->num_operations;
  if (header->plan_bytes != num_bytes || expected != num_bytes) return "it is cut short or too long";
  if (header->weights_bytes != weights_bytes) return "its weights are of another size";
  if (!is_right(header->geometry)) return "its geometry can't be right";
  *plan = {header, (const BufferSpec*)(header + 1), nullptr, nullptr};
  plan->weights = (const WeightSpec*)(plan->buffers + header->num_buffers);
  plan->operations = (const Operation*)(plan->weights + header->num_weights);
  for (int32_t i = 0; i < header->num_buffers; i++)
    if (!is_right(plan->buffers[i])) return "buffer " + std::to_string(i) + " can't be right";
  for (int32_t i = 0; i < header->num_weights; i++)
    if (!is_right(plan->weights[i], weights_bytes)) return "weight " + std::to_string(i) + " can't be right";
  for (int32_t i = 0; i < header->num_operations; i++) {
    const Checker checker{*plan, plan->operations[i]};
    if (!checker.is_right() || !checker.has_order_within_rows(weights)) return "operation " + std::to_string(i) + " can't be right";
  }
  return "";
}

}  // namespace forerun

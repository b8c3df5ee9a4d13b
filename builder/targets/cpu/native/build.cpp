// All operations, compiled once per instruction set: CMake gives each build its flags, FORERUN_ISA and FORERUN_NAME.
#include "plugins/embedding/cpu/embedding.h"
#include "plugins/layer_norm/cpu/layer_norm.h"
#include "plugins/linear/cpu/linear.h"
#include "plugins/native/tiles.h"
#include "plugins/paged_attention/cpu/attention.h"
#include "plugins/quantize/cpu/quantize_rows.h"
#include "plugins/rms_norm/cpu/rms_norm.h"
#include "plugins/row_answers/cpu/row_answers.h"

namespace FORERUN_ISA {

static_assert(sizeof(AttentionScratch) <= forerun::SCRATCH_BYTES, "scratch of a thread");

extern const forerun::Build build = {
    FORERUN_NAME,
    enter_tiles,
    leave_tiles,
    rank,
    {
        {nullptr, nullptr},
        {rows_num_units, embedding_run},
        {rows_num_units, rms_norm_run},
        {linear_num_units, linear_run},
        {append_num_units, append_run},
        {attention_num_units, attention_run},
        {row_answers_num_units, row_answers_run},
        {rows_num_units, quantize_run},
        {rows_num_units, layer_norm_run},
    },
};

}  // namespace FORERUN_ISA

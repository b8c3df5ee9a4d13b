// A C interface to libllama for llama_cpp.py: one context, steps of any sequences' tokens, greedy choices or logits.

#include <algorithm>
#include <cstdint>

#include "llama.h"

namespace {

struct Driver {
  llama_model* model;
  llama_context* context;
  llama_batch batch;
  int32_t vocab_size;
};

void keep_quiet(ggml_log_level, const char*, void*) {}

}  // namespace

extern "C" {

// Gives null where the model does not load. A context has `num_sequences` equal shares of `num_tokens`.
Driver* driver_open(const char* path, int32_t threads, int32_t num_sequences, int32_t num_tokens, int32_t max_batch,
                    int32_t max_outputs) {
  llama_log_set(keep_quiet, nullptr);
  llama_backend_init();
  llama_model* model = llama_model_load_from_file(path, llama_model_default_params());
  if (model == nullptr) return nullptr;
  llama_context_params params = llama_context_default_params();
  params.n_ctx = num_tokens;
  params.n_batch = max_batch;
  params.n_ubatch = 512;
  params.n_seq_max = num_sequences;
  params.n_outputs_max = max_outputs;
  params.n_outputs_max_per_seq = max_outputs;
  params.n_threads = params.n_threads_batch = threads;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
  llama_context* context = llama_init_from_model(model, params);
  if (context == nullptr) return nullptr;
  const int32_t vocab_size = llama_vocab_n_tokens(llama_model_get_vocab(model));
  return new Driver{model, context, llama_batch_init(max_batch, 0, 1), vocab_size};
}

// Computes `count` tokens; where `wanted` is set, `chosen` gets the likeliest next token. Gives 0 if all went well.
int32_t driver_step(Driver* driver, int32_t count, const int32_t* tokens, const int32_t* positions,
                    const int32_t* sequences, const int8_t* wanted, int32_t* chosen) {
  llama_batch& batch = driver->batch;
  batch.n_tokens = count;
  for (int32_t i = 0; i < count; ++i) {
    batch.token[i] = tokens[i];
    batch.pos[i] = positions[i];
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = sequences[i];
    batch.logits[i] = wanted[i];
  }
  if (const int32_t code = llama_decode(driver->context, batch)) return code;
  for (int32_t i = 0; i < count; ++i) {
    if (!wanted[i] || chosen == nullptr) continue;
    const float* logits = llama_get_logits_ith(driver->context, i);
    chosen[i] = static_cast<int32_t>(std::max_element(logits, logits + driver->vocab_size) - logits);
  }
  return 0;
}

const float* driver_logits(Driver* driver, int32_t token) { return llama_get_logits_ith(driver->context, token); }

int32_t driver_vocab_size(Driver* driver) { return driver->vocab_size; }

// Forgets what a sequence holds from `first` on.
void driver_forget(Driver* driver, int32_t sequence, int32_t first) {
  llama_memory_seq_rm(llama_get_memory(driver->context), sequence, first, -1);
}

// Writes a GGUF file in another format, chosen per tensor as llama.cpp's own tool does. Gives 0 if all went well.
int32_t driver_quantize(const char* from, const char* to, int32_t format, int32_t threads) {
  llama_log_set(keep_quiet, nullptr);
  llama_model_quantize_params params = llama_model_quantize_default_params();
  params.nthread = threads;
  params.ftype = static_cast<llama_ftype>(format);
  params.allow_requantize = true;
  return static_cast<int32_t>(llama_model_quantize(from, to, &params));
}

const char* driver_system() { return llama_print_system_info(); }

}  // extern "C"

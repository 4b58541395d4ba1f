#include "convert/lm_names.h"

/* ---- Hugging Face ---- */

#define MODEL \
    .prefix = "model.", .layers = "layers"
#define MODEL_ENDS \
    [POME_PART_EMBEDDING] = "embed_tokens", [POME_PART_HEAD] = "lm_head", [POME_PART_NORM] = "norm"
#define MODEL_ATTENTION \
    [POME_PART_QUERY] = "self_attn.q_proj", [POME_PART_KEY] = "self_attn.k_proj", \
    [POME_PART_VALUE] = "self_attn.v_proj", [POME_PART_OUT] = "self_attn.o_proj"
#define MODEL_MLP \
    [POME_PART_GATE] = "mlp.gate_proj", [POME_PART_UP] = "mlp.up_proj", [POME_PART_DOWN] = "mlp.down_proj"
#define MODEL_NORMS \
    [POME_PART_ATTENTION_NORM] = "input_layernorm", [POME_PART_MLP_NORM] = "post_attention_layernorm"
#define MODEL_FOUR_NORMS \
    [POME_PART_ATTENTION_NORM] = "input_layernorm", [POME_PART_MLP_NORM] = "pre_feedforward_layernorm", \
    [POME_PART_ATTENTION_POST_NORM] = "post_attention_layernorm", \
    [POME_PART_MLP_POST_NORM] = "post_feedforward_layernorm"
#define MODEL_QK_NORMS \
    [POME_PART_QUERY_NORM] = "self_attn.q_norm", [POME_PART_KEY_NORM] = "self_attn.k_norm"

const pome_lm_names pome_lm_names_llama = {MODEL, .part = {MODEL_ENDS, MODEL_ATTENTION, MODEL_MLP, MODEL_NORMS}};

const pome_lm_names pome_lm_names_qwen3 = {
    MODEL, .part = {MODEL_ENDS, MODEL_ATTENTION, MODEL_MLP, MODEL_NORMS, MODEL_QK_NORMS}};

const pome_lm_names pome_lm_names_gemma2 = {
    MODEL, .part = {MODEL_ENDS, MODEL_ATTENTION, MODEL_MLP, MODEL_FOUR_NORMS}};

const pome_lm_names pome_lm_names_gemma3 = {
    MODEL, .part = {MODEL_ENDS, MODEL_ATTENTION, MODEL_MLP, MODEL_FOUR_NORMS, MODEL_QK_NORMS}};

const pome_lm_names pome_lm_names_phi3 = {
    MODEL,
    .part = {MODEL_ENDS, MODEL_NORMS, [POME_PART_QUERY] = "self_attn.qkv_proj",
             [POME_PART_KEY] = "self_attn.qkv_proj", [POME_PART_VALUE] = "self_attn.qkv_proj",
             [POME_PART_OUT] = "self_attn.o_proj", [POME_PART_GATE] = "mlp.gate_up_proj",
             [POME_PART_UP] = "mlp.gate_up_proj", [POME_PART_DOWN] = "mlp.down_proj"}};

const pome_lm_names pome_lm_names_openelm = {
    .prefix = "transformer.",
    .layers = "layers",
    .part = {[POME_PART_EMBEDDING] = "token_embeddings", [POME_PART_HEAD] = "lm_head", [POME_PART_NORM] = "norm",
             [POME_PART_QUERY] = "attn.qkv_proj", [POME_PART_KEY] = "attn.qkv_proj",
             [POME_PART_VALUE] = "attn.qkv_proj", [POME_PART_OUT] = "attn.out_proj",
             [POME_PART_GATE] = "ffn.proj_1", [POME_PART_UP] = "ffn.proj_1", [POME_PART_DOWN] = "ffn.proj_2",
             [POME_PART_ATTENTION_NORM] = "attn_norm", [POME_PART_MLP_NORM] = "ffn_norm",
             [POME_PART_QUERY_NORM] = "attn.q_norm", [POME_PART_KEY_NORM] = "attn.k_norm"}};

const pome_lm_names pome_lm_names_gpt2 = {
    .prefix = "transformer.",
    .layers = "h",
    .part = {[POME_PART_EMBEDDING] = "wte", [POME_PART_HEAD] = "lm_head", [POME_PART_POSITIONS] = "wpe",
             [POME_PART_NORM] = "ln_f", [POME_PART_QUERY] = "attn.c_attn", [POME_PART_KEY] = "attn.c_attn",
             [POME_PART_VALUE] = "attn.c_attn", [POME_PART_OUT] = "attn.c_proj", [POME_PART_UP] = "mlp.c_fc",
             [POME_PART_DOWN] = "mlp.c_proj", [POME_PART_ATTENTION_NORM] = "ln_1", [POME_PART_MLP_NORM] = "ln_2"}};

/* ---- GGUF ---- */

#define GGUF \
    .prefix = "", .layers = "blk"
#define GGUF_ENDS \
    [POME_PART_EMBEDDING] = "token_embd", [POME_PART_HEAD] = "output", [POME_PART_NORM] = "output_norm"
#define GGUF_ATTENTION \
    [POME_PART_QUERY] = "attn_q", [POME_PART_KEY] = "attn_k", [POME_PART_VALUE] = "attn_v", \
    [POME_PART_OUT] = "attn_output"
#define GGUF_FUSED_ATTENTION \
    [POME_PART_QUERY] = "attn_qkv", [POME_PART_KEY] = "attn_qkv", [POME_PART_VALUE] = "attn_qkv", \
    [POME_PART_OUT] = "attn_output"
#define GGUF_MLP \
    [POME_PART_GATE] = "ffn_gate", [POME_PART_UP] = "ffn_up", [POME_PART_DOWN] = "ffn_down"
#define GGUF_NORMS \
    [POME_PART_ATTENTION_NORM] = "attn_norm", [POME_PART_MLP_NORM] = "ffn_norm"
#define GGUF_POST_NORMS \
    [POME_PART_ATTENTION_POST_NORM] = "post_attention_norm", [POME_PART_MLP_POST_NORM] = "post_ffw_norm"
#define GGUF_QK_NORMS \
    [POME_PART_QUERY_NORM] = "attn_q_norm", [POME_PART_KEY_NORM] = "attn_k_norm"

const pome_lm_names pome_lm_names_gguf = {GGUF, .part = {GGUF_ENDS, GGUF_ATTENTION, GGUF_MLP, GGUF_NORMS}};

const pome_lm_names pome_lm_names_gguf_qwen3 = {
    GGUF, .part = {GGUF_ENDS, GGUF_ATTENTION, GGUF_MLP, GGUF_NORMS, GGUF_QK_NORMS}};

const pome_lm_names pome_lm_names_gguf_gemma2 = {
    GGUF, .part = {GGUF_ENDS, GGUF_ATTENTION, GGUF_MLP, GGUF_NORMS, GGUF_POST_NORMS}};

const pome_lm_names pome_lm_names_gguf_gemma3 = {
    GGUF, .part = {GGUF_ENDS, GGUF_ATTENTION, GGUF_MLP, GGUF_NORMS, GGUF_POST_NORMS, GGUF_QK_NORMS}};

const pome_lm_names pome_lm_names_gguf_phi3 = {
    GGUF,
    .part = {GGUF_ENDS, GGUF_FUSED_ATTENTION, GGUF_NORMS, [POME_PART_GATE] = "ffn_up", [POME_PART_UP] = "ffn_up",
             [POME_PART_DOWN] = "ffn_down"}};

const pome_lm_names pome_lm_names_gguf_openelm = {
    GGUF, .part = {GGUF_ENDS, GGUF_FUSED_ATTENTION, GGUF_MLP, GGUF_NORMS, GGUF_QK_NORMS}};

const pome_lm_names pome_lm_names_gguf_gpt2 = {
    GGUF,
    .part = {GGUF_ENDS, GGUF_FUSED_ATTENTION, GGUF_NORMS, [POME_PART_POSITIONS] = "position_embd",
             [POME_PART_UP] = "ffn_up", [POME_PART_DOWN] = "ffn_down"}};

/* What a language model is: sizes, rotary positions, the variants of its blocks. Read from config.json or from the
 * metadata of a GGUF file. */
#ifndef POME_CONVERT_LM_CONFIG_H
#define POME_CONVERT_LM_CONFIG_H

#include "base/arena.h"
#include "formats/gguf.h"
#include "pome/status.h"

typedef enum pome_rope_kind {
    POME_ROPE_PLAIN = 0,
    POME_ROPE_LINEAR,
    POME_ROPE_DYNAMIC,
    POME_ROPE_LLAMA3,
    POME_ROPE_YARN,
    POME_ROPE_LONGROPE,
    POME_ROPE_FACTORS /* each frequency divided by its short_factor (tensor rope_freqs of GGUF files) */
} pome_rope_kind;

/* The names are those of config.json. */
typedef struct pome_rope {
    pome_rope_kind kind;
    int64_t dim;                 /* rotated elements of a head; the rest passes */
    double theta, factor;
    int64_t original;            /* positions the model was trained on before scaling */
    double low_freq_factor, high_freq_factor;             /* llama3 */
    double beta_fast, beta_slow, mscale, mscale_all_dim;  /* yarn */
    bool truncate;                                        /* yarn */
    double attention_factor;     /* multiplies cos and sin; 0: follows from factor */
    const double *short_factor, *long_factor;             /* longrope: [dim / 2] */
} pome_rope;

typedef enum pome_activation { POME_SILU = 0, POME_GELU_TANH, POME_GELU } pome_activation;

/* One row per family that shares a configuration file's `model_type`; see docs/convert.md. */
typedef struct pome_lm_family {
    const char *model_type;     /* of config.json */
    const char *gguf;           /* general.architecture; NULL: none of its own */
    bool gguf_interleaved;      /* query and key rows of GGUF files are interleaved */
    bool has_qk_norm;
    bool has_post_norms;        /* norms after attention and MLP too */
    bool norm_plus_one;         /* safetensors hold norm weights less one */
    bool scales_embedding;      /* by sqrt(hidden) */
    bool has_fused_rows;        /* one matrix for query, key and value, one for gate and up */
    bool window_is_optional;    /* sliding_window counts only with use_sliding_window */
    int window_period;          /* every n-th layer sees all, the others a window; 0: all layers the window */
    pome_activation activation; /* default */
    double rope_local_theta;    /* of layers with a window, where it differs; 0: the same */
    bool ties_by_default;       /* what an absent tie_word_embeddings means */
} pome_lm_family;

typedef struct pome_lm_config {
    const pome_lm_family *family;
    const char *architecture;   /* as in config.json's architectures, or GGUF's name */
    const char *name;           /* of the repository, NULL if unknown */
    int64_t n_layers, hidden, n_heads, n_kv_heads, head_dim, ffn;
    int64_t n_positions;        /* the model's own limit; 0: unknown */
    double norm_eps;
    pome_rope rope;
    double rope_local_theta;    /* 0: none */
    pome_activation activation;
    bool ties;                  /* the configuration says so */
    int64_t window;             /* 0: none */
    const bool *is_local;       /* [n_layers] which layers see only the window; NULL: as the family has it */
    double query_scale;         /* multiplies q . k: 1 / sqrt(head_dim) as a rule */
    double attention_cap, logit_cap; /* soft caps; 0: none */
} pome_lm_config;

/* Strings live in the arena. Errors: UNSUPPORTED with the name of what is not known (model_type, rope type, activation),
 * FORMAT (a field that is missing or out of range). */
pome_status pome_lm_config_read(pome_lm_config *out, const char *path, pome_arena *arena, pome_error *err);
pome_status pome_lm_config_read_gguf(pome_lm_config *out, const pome_gguf *gguf, pome_arena *arena, pome_error *err);

const pome_lm_family *pome_lm_family_find(const char *model_type);
const pome_lm_family *pome_lm_family_find_gguf(pome_str architecture);
/* "llama, mistral, ..." for messages. */
const char *pome_lm_family_list(pome_arena *arena);
/* Whether a layer sees only the window. */
bool pome_lm_config_is_local(const pome_lm_config *c, int64_t layer);
/* Checks what both readers read, and fills in what follows from the rest. */
pome_status pome_lm_config_check(pome_lm_config *c, pome_error *err);

/* cos and sin, each [n_positions, dim], computed in double. */
pome_status pome_rope_tables(float *cos_out, float *sin_out, const pome_rope *rope, int64_t n_positions,
                             pome_error *err);

#endif

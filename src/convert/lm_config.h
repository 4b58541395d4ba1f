/* What a language model is: sizes, rotary positions, the variants of its blocks. Read from config.json or from the
 * metadata of a GGUF file. */
#ifndef POME_CONVERT_LM_CONFIG_H
#define POME_CONVERT_LM_CONFIG_H

#include "base/arena.h"
#include "convert/lm_names.h"
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
    int64_t dim;                 /* rotated elements of a head, the rest passes; 0: none, positions are learned */
    double theta, factor;
    int64_t original;            /* positions the model was trained on before scaling */
    double low_freq_factor, high_freq_factor;             /* llama3 */
    double beta_fast, beta_slow, mscale, mscale_all_dim;  /* yarn */
    bool truncate;                                        /* yarn */
    double attention_factor;     /* multiplies cos and sin; 0: follows from factor */
    const double *short_factor, *long_factor;             /* longrope: [dim / 2] */
} pome_rope;

typedef enum pome_activation { POME_SILU = 0, POME_GELU_TANH, POME_GELU, POME_RELU } pome_activation;
typedef enum pome_norm_kind { POME_NORM_RMS = 0, POME_NORM_LAYER /* with mean and bias */ } pome_norm_kind;

/* Which layers see only a window of positions. */
typedef enum pome_window_kind {
    POME_WINDOW_NONE = 0, /* the family knows none */
    POME_WINDOW_ALL,      /* all layers, if there is a window */
    POME_WINDOW_OPTIONAL, /* with use_sliding_window, those from max_window_layers on */
    POME_WINDOW_PERIOD    /* all but each window_period-th */
} pome_window_kind;

/* What config.json calls its fields; NULL: there is no such field. */
typedef struct pome_lm_fields {
    const char *layers, *hidden, *heads, *kv_heads, *ffn, *positions, *epsilon, *activation, *ties, *theta;
} pome_lm_fields;

/* One row per value of config.json's model_type; see docs/convert.md. */
typedef struct pome_lm_family {
    const char *model_type;
    const char *gguf;           /* general.architecture; NULL: none of its own */
    const pome_lm_fields *fields;
    const pome_lm_names *names, *gguf_names;
    bool gguf_interleaved;      /* query and key rows of GGUF files are interleaved */
    bool stores_columns;        /* safetensors hold the layers' matrices [in, out] */
    pome_norm_kind norm;
    bool norm_plus_one;         /* safetensors hold norm weights less one */
    bool scales_embedding;      /* by sqrt(hidden) */
    bool turns_part;            /* partial_rotary_factor counts */
    bool yarn_is_longrope;      /* an old name in its configuration files */
    bool ties_by_default;       /* what the absent field means */
    pome_window_kind window_kind;
    int window_period;
    pome_activation activation; /* default */
    unsigned biases;            /* 1 << part: always */
    unsigned attention_biases, mlp_biases; /* with attention_bias, mlp_bias; 0: there is no such field */
    /* what absent fields mean */
    int64_t window, original_positions;
    double epsilon, theta, local_theta /* of layers with a window; 0: as the others */, query_scalar, attention_cap,
        logit_cap;
} pome_lm_family;

/* What a layer has. */
typedef struct pome_lm_layer {
    int64_t n_heads, n_kv_heads, ffn;
    bool is_local; /* sees only the window */
} pome_lm_layer;

typedef struct pome_lm_config {
    const pome_lm_family *family;
    const pome_lm_names *names; /* of this source */
    const char *architecture;   /* as in config.json's architectures, or GGUF's name */
    const char *name;           /* of the repository, NULL if unknown */
    int64_t n_layers, hidden, head_dim;
    int64_t n_heads, n_kv_heads, ffn; /* the most that a layer has */
    const int64_t *layer_heads, *layer_kv_heads, *layer_ffn; /* [n_layers]; NULL: all layers have as many */
    int64_t n_vocab;            /* 0: unknown */
    int64_t n_positions;        /* the model's own limit; 0: unknown */
    double norm_eps;
    pome_rope rope;
    pome_rope local_rope;       /* of layers with a window; dim 0: as the others */
    pome_activation activation;
    bool ties;                  /* the configuration says so */
    bool has_qk_norm;
    unsigned biases;            /* 1 << part */
    int64_t window;             /* 0: none */
    const bool *is_local;       /* [n_layers] which layers see only the window; NULL: as the family has it */
    double query_scale;         /* multiplies q . k: 1 / sqrt(head_dim) as a rule */
    double attention_cap, logit_cap; /* soft caps; 0: none */
    bool has_fp8;               /* 8-bit floats have scales */
    int64_t fp8_block[2];       /* rows and columns that share one, if they are in blocks; 0: unknown */
} pome_lm_config;

/* Strings live in the arena. Errors: UNSUPPORTED with the name of what is not known (model_type, rope type, activation,
 * a field that changes the model), FORMAT (a field that is missing or out of range). */
pome_status pome_lm_config_read(pome_lm_config *out, const char *path, pome_arena *arena, pome_error *err);
/* Biases and rotary factors are told by the tensors, see checkpoint.c. */
pome_status pome_lm_config_read_gguf(pome_lm_config *out, const pome_gguf *gguf, pome_arena *arena, pome_error *err);

const pome_lm_family *pome_lm_family_find(const char *model_type);
const pome_lm_family *pome_lm_family_find_gguf(pome_str architecture);
/* "llama, mistral, ..." for messages. */
const char *pome_lm_family_list(pome_arena *arena);
/* What absent fields mean. */
void pome_lm_config_default(pome_lm_config *out, const pome_lm_family *family, const pome_lm_names *names);
/* Whether layers (or the model) have a part. The head is told by the tensors. */
bool pome_lm_config_has(const pome_lm_config *c, pome_part part);
pome_lm_layer pome_lm_config_layer(const pome_lm_config *c, int64_t layer);
/* Checks what both readers read, and fills in what follows from the rest. */
pome_status pome_lm_config_check(pome_lm_config *c, pome_error *err);

/* Inverse frequencies [dim / 2] for the token at a position, in double. */
void pome_rope_frequencies(double *out, const pome_rope *rope, int64_t position);
/* What cos and sin are multiplied by. */
double pome_rope_attention_factor(const pome_rope *rope);
/* cos and sin, each [n_positions, dim], computed in double. */
pome_status pome_rope_tables(float *cos_out, float *sin_out, const pome_rope *rope, int64_t n_positions,
                             pome_error *err);

#endif

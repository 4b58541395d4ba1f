/* Looking into a model: what its program consists of, and the program as text; and into a checkpoint. */
#ifndef POME_INSPECT_H
#define POME_INSPECT_H

#include "pome/convert.h"
#include "pome/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pome_op_count {
    const char *op; /* "linear"; lives as long as the process */
    uint64_t n;
} pome_op_count;

/* The operators of one function, nested blocks included, constants not; most frequent first, then by name.
 * *counts is malloc'ed. Errors: ARG (no such function), NOMEM. */
POME_API POME_NODISCARD pome_status pome_model_count_ops(const pome_model *model, uint32_t function,
                                                         pome_op_count **counts, size_t *n, pome_error *err);

typedef struct pome_weight_count {
    char kind[64];         /* "fp16", or element type of the codes and encoding: "int4 blockwise_shift_scale" */
    uint64_t n;            /* constants; shared ones count once */
    uint64_t n_elements;   /* of the decoded constants */
    uint64_t size_bytes;   /* as stored, with scales, palettes and masks */
} pome_weight_count;

/* The constants of all functions that are compressed or lie in weight files, by kind; largest kind first.
 * *counts is malloc'ed. Errors: NOMEM. */
POME_API POME_NODISCARD pome_status pome_model_count_weights(const pome_model *model, pome_weight_count **counts,
                                                             size_t *n, pome_error *err);

/* Takes the next piece of text (not NUL-terminated). */
typedef void pome_text_sink(void *arg, const char *text, size_t len);

/* The program as MIL text, all functions (function -1) or one. Errors: ARG, NOMEM. */
POME_API POME_NODISCARD pome_status pome_model_print_mil(const pome_model *model, int function, pome_text_sink *sink,
                                                         void *arg, pome_error *err);

/* The compiled plan of a function as text: a line per step with its kind (shape: evaluated when input shapes change;
 * tensor: run each time; dynamic: sized while running), operator, result and what is special about it.
 * Errors: ARG, NOMEM. */
POME_API POME_NODISCARD pome_status pome_model_print_plan(pome_model *model, uint32_t function, pome_text_sink *sink,
                                                          void *arg, pome_error *err);

/* ---- checkpoints: what a conversion starts from ---- */

typedef struct pome_source_tensor {
    const char *name, *type;      /* type as the file calls it: "BF16", "Q4_K" */
    int32_t rank;
    int64_t shape[POME_MAX_RANK]; /* slowest axis first, whatever the order in the file */
    uint64_t n_elements, size_bytes;
} pome_source_tensor;

typedef struct pome_source_type {
    const char *type;
    uint64_t n_tensors, n_elements, size_bytes;
} pome_source_type;

/* A size that the configuration does not give is 0; "" stands for a text that is not there. */
typedef struct pome_source_info {
    const char *path;
    const char *format;            /* "safetensors", "GGUF" */
    uint32_t version;              /* of GGUF files */
    uint32_t n_files;
    uint64_t size_bytes;           /* of the files with tensors */
    const char *architecture;      /* in the configuration's words: "LlamaForCausalLM", "llama" */
    const char *name;              /* of the model */
    int64_t n_layers, hidden, ffn, n_heads, n_kv_heads, head_dim, n_vocab, n_positions;
    uint32_t n_config;             /* the fields of config.json, or a GGUF file's metadata but the arrays */
    const pome_metadata_entry *config; /* values as JSON text */
    uint64_t n_parameters;
    uint32_t n_tensors, n_types;
    const pome_source_tensor *tensors; /* in the order of the files */
    const pome_source_type *types;     /* most bytes first */
    const char *tokenizer, *chat_template, *generation; /* the file or metadata key they are in */
    const char *tokenizer_problem; /* why the tokenizer cannot be used */
    bool is_convertible;
    const char *refusal;           /* why pome_convert would not take it */
    pome_convert_report conversion; /* what pome_convert would make with its default options */
} pome_source_info;

/* True for a GGUF file, a safetensors file, and a folder with safetensors that is no package. */
POME_API bool pome_source_is_checkpoint(const char *path);
/* Reads headers, configuration and tokenizer, no weights. What pome_convert would refuse is no failure here, as long as
 * the files are whole. Free with pome_source_info_free. Errors: IO (missing files; missing shards by name), FORMAT (cut
 * or damaged), UNSUPPORTED (another version), NOMEM. */
POME_API POME_NODISCARD pome_status pome_source_describe(pome_source_info **out, const char *path, pome_error *err);
POME_API void pome_source_info_free(pome_source_info **info); /* accepts NULL */

#ifdef __cplusplus
}
#endif
#endif

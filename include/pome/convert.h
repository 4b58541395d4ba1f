/* From a checkpoint (a Hugging Face folder with safetensors, or a GGUF file) to a Core ML package: an iOS 18 program
 * with its key/value cache as state, or one without a cache. Weights are streamed from the mapped files, a band of rows at a time. */
#ifndef POME_CONVERT_H
#define POME_CONVERT_H

#include <stdbool.h>
#include <stddef.h>

#include "pome/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pome_quantize {
    POME_QUANTIZE_DEFAULT = 0, /* KEEP for a GGUF file with quantized tensors, else INT4; iOS 16: INT8; fp32: NONE */
    POME_QUANTIZE_NONE,        /* fp16 */
    POME_QUANTIZE_INT8,        /* symmetric, a scale per block */
    POME_QUANTIZE_INT4,
    POME_QUANTIZE_KEEP,        /* a GGUF file's own codes and scales; tensors that are not quantized: fp16 */
    POME_QUANTIZE_UINT8,       /* a scale and an offset per block */
    POME_QUANTIZE_UINT4,
    POME_QUANTIZE_LUT1,        /* palettes of 2, 4, 8, 16, 64, 256 entries */
    POME_QUANTIZE_LUT2,
    POME_QUANTIZE_LUT3,
    POME_QUANTIZE_LUT4,
    POME_QUANTIZE_LUT6,
    POME_QUANTIZE_LUT8
} pome_quantize;

typedef enum pome_convert_target {
    POME_TARGET_IOS18 = 0,
    POME_TARGET_IOS16          /* no cache: every call takes the whole text */
} pome_convert_target;

typedef enum pome_convert_precision {
    POME_PRECISION_FP16 = 0,
    POME_PRECISION_FP32        /* constants, arithmetic and logits; no cache, for states are fp16 */
} pome_convert_precision;

typedef enum pome_convert_states {
    POME_STATES_STACKED = 0,   /* keyCache and valueCache of all layers */
    POME_STATES_PER_LAYER      /* keyCache_0, valueCache_0, ... */
} pome_convert_states;

typedef enum pome_palette_mode {
    POME_PALETTE_DEFAULT = 0, /* KMEANS; the others are an error where nothing gets a palette */
    POME_PALETTE_KMEANS,      /* entries of least squared error */
    POME_PALETTE_UNIFORM      /* evenly between the least and the largest weight */
} pome_palette_mode;

typedef enum pome_convert_chunks {
    POME_CHUNKS_STATEFUL = 0,  /* each group of layers has states of its own */
    POME_CHUNKS_LLM_CLI        /* windows of 64 ids, a context of 512; keys and values are inputs and outputs */
} pome_convert_chunks;

/* How far a conversion is. Returning false stops it (CANCELLED). */
typedef bool pome_convert_progress_fn(void *arg, const char *tensor, uint64_t done_bytes, uint64_t total_bytes);

typedef struct pome_convert_opts {
    size_t size;           /* sizeof(pome_convert_opts) */
    pome_quantize quantize;
    int64_t block;         /* columns per scale; 0: one per row; -1: 32, or 0 for iOS 16, which has no blocks. An
                            * error, but for -1, where nothing gets codes with scales */
    pome_palette_mode palette;
    int64_t group_rows;    /* rows per palette; 0: one for the whole tensor; -1: the same, and no error where nothing
                            * gets a palette */
    int64_t context;       /* rows of the cache; 0: 2048, or 512 for POME_CHUNKS_LLM_CLI, which has no other */
    pome_convert_target target;
    pome_convert_precision precision;
    pome_convert_states states;
    int64_t n_chunks;      /* 0: one package; else a folder of packages, with so many groups of layers */
    pome_convert_chunks chunk_style;
    const char *name;      /* repository for the metadata, "owner/model"; NULL: what the source says of itself */
    bool snake_names;      /* input_ids, causal_mask, key_cache, value_cache */
    bool search;           /* scales of least squared error, not those of coremltools */
    bool force;            /* replace what is at the output's path */
    bool resume;           /* go on with what an interrupted conversion left */
    bool dry_run;          /* plan only: nothing is written */
    const char *embedding, *head, *attention, *mlp; /* "fp16", "int8", "lut4", "keep", ... or
                                                             NULL: as `quantize` says */
    pome_convert_progress_fn *progress; /* NULL: none */
    void *progress_arg;
} pome_convert_opts;

POME_API void pome_convert_opts_default(pome_convert_opts *opts); /* DEFAULT, block and group_rows -1, Apple's names */

/* What came of it. */
typedef struct pome_convert_report {
    char architecture[64];
    char quantize[64];          /* "int4, block 32", "kept: Q4_1 170, Q8_0 1" */
    char tokenizer[64];         /* what was carried over; "" if nothing was found */
    uint64_t weights_bytes, source_bytes, n_parameters;
    int64_t n_layers, context, n_vocab;
    bool is_tied;               /* the embedding serves as head */
    uint32_t n_tensors, n_packages;
    double worst_steps;         /* KEEP: the largest difference from the source's values, in quantization steps */
    double beyond_steps;        /* the same where it is more than rounding those values to fp16 makes */
} pome_convert_report;

/* `out` ends in ".mlpackage", or is the folder of a set of chunks, whose last name begins the packages' names; nothing is ever half-written under it. report may be NULL.
 * Errors: UNSUPPORTED (architecture, rotary scaling, activation, element type, by name), FORMAT (damaged source; shapes
 * that do not fit the configuration), ARG (out exists; options), IO (missing files; disk), CANCELLED. */
POME_API POME_NODISCARD pome_status pome_convert(const char *source, const char *out, const pome_convert_opts *opts,
                                                 pome_convert_report *report, pome_error *err);

#ifdef __cplusplus
}
#endif
#endif

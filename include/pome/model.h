/* A model: a Core ML package or compiled model opened for prediction. Opening maps the weights and checks the program;
 * it copies no weight. A model may be shared by threads; it must outlive its predictors. */
#ifndef POME_MODEL_H
#define POME_MODEL_H

#include "pome/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pome_model pome_model;

/* docs/numerics.md has the whole rule. */
typedef enum pome_numerics {
    POME_NUMERICS_EXACT = 0, /* constants as in the file, fp32 between operators */
    POME_NUMERICS_FAST,      /* as exact, activations of quantized linear layers may be int8 */
    POME_NUMERICS_FP16       /* every result rounded to its declared type, as a half-precision device */
} pome_numerics;

typedef struct pome_model_opts {
    size_t size;             /* sizeof(pome_model_opts) */
    pome_numerics numerics;
    int n_threads;           /* 0: as many as the process may use */
    const char *no_fuse;     /* fusions to leave out, comma-separated, or "all" (docs/performance.md); NULL: none.
                                Read while opening. Without fusions every operator's result can be observed */
} pome_model_opts;

POME_API void pome_model_opts_default(pome_model_opts *opts);

/* How the size of one axis may vary: [min, max]; max -1 is unbounded. */
typedef struct pome_axis_range {
    int64_t min, max;
} pome_axis_range;

typedef enum pome_feature_kind {
    POME_FEATURE_TENSOR = 0,
    POME_FEATURE_IMAGE,
    POME_FEATURE_DICTIONARY,
    POME_FEATURE_STRING,
    POME_FEATURE_INT64,
    POME_FEATURE_DOUBLE,
    POME_FEATURE_SEQUENCE
} pome_feature_kind;

/* Pixels of an image as a caller gives and gets them are red, green, blue; the program may want them the other way. */
typedef enum pome_color {
    POME_COLOR_NONE = 0, /* no image */
    POME_COLOR_GRAY,     /* uint8 */
    POME_COLOR_GRAY_F16,
    POME_COLOR_RGB,      /* uint8 */
    POME_COLOR_BGR
} pome_color;

/* One input, output or state. All pointers live as long as the model. */
typedef struct pome_feature {
    const char *name;
    const char *description; /* "" if none */
    pome_feature_kind kind;
    pome_dtype dtype;               /* of the array as the caller sees it */
    int32_t rank;                   /* -1: not given (outputs of flexible shape) */
    int64_t shape[POME_MAX_RANK];   /* the default shape; -1 where an output's axis is flexible */
    bool is_ranged;                 /* `range` is valid */
    pome_axis_range range[POME_MAX_RANK];
    uint32_t n_enumerated;          /* > 0: the only shapes allowed, the default first */
    const int64_t *enumerated;      /* [n_enumerated, rank] */
    bool is_optional;
    bool has_default;               /* a missing optional input is filled with default_value */
    double default_value;
    pome_color color;               /* images: the order of the program's planes; shape is [1, channels, height, width] */
} pome_feature;

/* Writes type and shapes as one line, cut at size: "int32 [1, 1..128]", "fp16 [1, 8] or [1, 64]",
 * "fp16 [flexible]", "image RGB 640 x 480". Returns text. */
POME_API const char *pome_feature_format(const pome_feature *feature, char *text, size_t size);

typedef struct pome_function_info {
    const char *name;
    uint32_t n_inputs, n_outputs, n_states;
    const pome_feature *inputs, *outputs, *states;
} pome_function_info;

typedef struct pome_metadata_entry {
    const char *key, *value;
} pome_metadata_entry;

typedef struct pome_model_info {
    const char *path;               /* the package or compiled folder */
    int32_t specification_version;
    const char *short_description, *version, *author, *license; /* "" if none */
    uint32_t n_metadata;
    const pome_metadata_entry *metadata; /* user-defined keys */
    uint32_t n_functions;
    const pome_function_info *functions;
    uint32_t default_function;      /* index into functions */
    uint64_t weights_bytes;         /* of the mapped weight files */
} pome_model_info;

/* Opens a .mlpackage or compiled .mlmodelc folder, or a file inside one. opts may be NULL.
 * Errors: IO (no such file), FORMAT (damaged, with byte position), UNSUPPORTED (another kind of model,
 * or operators without an implementation, all listed). */
POME_API POME_NODISCARD pome_status pome_model_open(pome_model **out, const char *path,
                                                    const pome_model_opts *opts, pome_error *err);
/* Closes and nulls; accepts NULL. Every predictor and state of the model must be gone. */
POME_API void pome_model_close(pome_model **model);

/* The description lives as long as the model. */
POME_API const pome_model_info *pome_model_describe(const pome_model *model);
/* Index of the function called `name` (NULL or "": the default one), or -1. */
POME_API int pome_model_find_function(const pome_model *model, const char *name);

/* The classes that an output of a classifier speaks of: the one with the label (kind STRING or INT64) or the one with the
 * probabilities (kind DICTIONARY), which come in the order of the classes. */
typedef struct pome_classes {
    uint32_t n;               /* 0: the output is of another kind */
    const char *const *names; /* [n] or NULL: */
    const int64_t *ids;       /* [n] */
} pome_classes;
/* Indices as in the description. Lives as long as the model. */
POME_API pome_classes pome_model_classes(const pome_model *model, uint32_t function, uint32_t output);

#ifdef __cplusplus
}
#endif
#endif

/* A checkpoint opened: its configuration, and its tensors by the part they play. */
#ifndef POME_CONVERT_CHECKPOINT_H
#define POME_CONVERT_CHECKPOINT_H

#include "convert/lm_config.h"
#include "convert/weight.h"

typedef struct pome_checkpoint {
    pome_arena *arena;
    pome_lm_config config;
    const char *folder;      /* where other files of the model lie; NULL: a GGUF file */
    bool is_gguf, is_quantized;
    pome_gguf gguf;
    pome_safetensors tensors;
    pome_strmap gguf_names;  /* name -> pome_gguf_tensor */
    const char *prefix;      /* of the tensors' names */
    int64_t n_vocab;
    bool has_head;           /* a head of its own */
    uint64_t source_bytes;
} pome_checkpoint;

/* Opens a folder, a .safetensors file in one, or a GGUF file; reads the configuration; checks that every tensor is
 * there with the shape it must have. Errors: as pome_convert. */
pome_status pome_checkpoint_open(pome_checkpoint **out, const char *path, pome_error *err);
void pome_checkpoint_close(pome_checkpoint **checkpoint);

/* A weight or bias. found: false and POME_OK if there is none. layer is ignored for parts of the whole model. */
pome_status pome_checkpoint_find(const pome_checkpoint *c, pome_part part, int64_t layer, bool is_bias, pome_weight *out,
                                 bool *found, pome_error *err);

#endif

/* The element types of GGUF tensors. A quantized row is a sequence of blocks; each is taken apart into small integer
 * codes and, per group of them, a scale and an offset: element = scale * code + shift. */
#ifndef POME_FORMATS_GGUF_BLOCKS_H
#define POME_FORMATS_GGUF_BLOCKS_H

#include "formats/gguf.h"
#include "pome/tensor.h"

enum { POME_GGUF_BLOCK_MAX = 256, POME_GGUF_GROUPS_MAX = 16 };

typedef struct pome_gguf_block {
    int8_t code[POME_GGUF_BLOCK_MAX];
    float scale[POME_GGUF_GROUPS_MAX], shift[POME_GGUF_GROUPS_MAX]; /* shift: 0 where the type has none */
} pome_gguf_block;

typedef struct pome_gguf_encoding {
    uint32_t type; /* as in the file */
    const char *name;
    pome_dtype dtype;      /* F32, F16, BF16; NONE for quantized types, which alone have what follows */
    uint32_t block, bytes; /* elements and bytes of a block; 1 and the element's size for floats */
    uint32_t group;        /* elements that share a scale; divides block */
    int32_t code_min, code_max;
    bool has_shift;
    void (*split)(pome_gguf_block *out, const uint8_t *bytes);
} pome_gguf_encoding;

/* NULL: a type that is not read. */
const pome_gguf_encoding *pome_gguf_encoding_find(uint32_t type);
/* "Q4_K", "IQ2_XS", or "type 99" written to the buffer. */
const char *pome_gguf_type_name(uint32_t type, char *buffer, size_t size);
/* Elements and bytes of a block, also of types that are not read; false: not known either. */
bool pome_gguf_type_size(uint32_t type, uint32_t *block, uint32_t *bytes);

/* A row of n elements (a multiple of the block) to fp32. */
void pome_gguf_row_decode(const pome_gguf_encoding *e, const uint8_t *row, size_t n, float *out);

/* The bytes of a tensor: rows of dims[0] elements. Errors: UNSUPPORTED (type, by name), FORMAT (rows that are no whole
 * blocks; data beyond the end of the file). locate: of types that are not read, too. */
pome_status pome_gguf_tensor_locate(const pome_gguf_tensor *t, pome_bytes file, pome_bytes *data, pome_error *err);
pome_status pome_gguf_tensor_data(const pome_gguf_tensor *t, pome_bytes file,
                                  const pome_gguf_encoding **encoding, pome_bytes *data, pome_error *err);

#endif

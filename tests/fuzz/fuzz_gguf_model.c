/* GGUF files as checkpoints: tables, tensors' data, the configuration, elements decoded. */
#include <stdlib.h>

#include "convert/lm_config.h"
#include "formats/gguf_blocks.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void decode(const pome_gguf *g, pome_bytes file)
{
    float row[POME_GGUF_BLOCK_MAX];
    pome_error err = {0};
    for (uint64_t i = 0; i < g->n_tensors && i < 64; i++) {
        const pome_gguf_encoding *e = NULL;
        pome_bytes bytes = {0};
        if (pome_gguf_tensor_data(&g->tensors[i], file, &e, &bytes, &err) != POME_OK)
            continue;
        for (size_t at = 0; at + e->bytes <= bytes.len && at < 4096; at += e->bytes)
            pome_gguf_row_decode(e, bytes.ptr + at, e->block, row);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pome_bytes file = {data, size};
    pome_gguf g;
    pome_error err = {0};
    pome_status status = pome_gguf_read(&g, file, &err);
    if (status != err.code)
        abort();
    if (status != POME_OK)
        return 0;
    pome_arena *arena = pome_arena_create(1 << 24);
    pome_lm_config config;
    if (pome_lm_config_read_gguf(&config, &g, arena, &err) == POME_OK)
        for (int64_t i = 0; i < config.n_layers; i++) {
            pome_lm_layer layer = pome_lm_config_layer(&config, i);
            if (layer.n_kv_heads < 1 || layer.n_heads % layer.n_kv_heads != 0 || layer.n_heads > config.n_heads)
                abort();
        }
    decode(&g, file);
    pome_arena_destroy(&arena);
    pome_gguf_close(&g);
    return 0;
}

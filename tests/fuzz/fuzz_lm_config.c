/* config.json: what is accepted keeps its promises, and its rotary tables can be made. */
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "convert/lm_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[] = "/tmp/pome-fuzz-config-XXXXXX";
    float tables[2][4 * 256];
    pome_error err = {0};
    pome_lm_config c;
    int fd = mkstemp(path);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    close(fd);
    pome_arena *arena = pome_arena_create(1 << 24);
    pome_status status = pome_lm_config_read(&c, path, arena, &err);
    unlink(path);
    if (status != err.code)
        abort();
    if (status == POME_OK) {
        if (c.n_layers < 1 || c.rope.dim > c.head_dim || c.rope.dim % 2 != 0)
            abort();
        for (int64_t i = 0; i < c.n_layers; i++) {
            pome_lm_layer layer = pome_lm_config_layer(&c, i);
            if (layer.n_kv_heads < 1 || layer.n_heads % layer.n_kv_heads != 0 || layer.n_heads > c.n_heads || layer.ffn < 1)
                abort();
        }
        if (c.rope.dim > 0 && c.rope.dim <= 256)
            (void)!pome_rope_tables(tables[0], tables[1], &c.rope, 4, &err);
    }
    pome_arena_destroy(&arena);
    return 0;
}

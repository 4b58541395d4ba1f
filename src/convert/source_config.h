/* The configuration of a checkpoint as it stands in the source, whatever the architecture: for showing, not for
 * converting. */
#ifndef POME_CONVERT_SOURCE_CONFIG_H
#define POME_CONVERT_SOURCE_CONFIG_H

#include "base/arena.h"
#include "formats/gguf.h"
#include "pome/inspect.h"

/* Fill architecture, name, sizes and config of `info`; strings live in the arena. A folder without config.json leaves
 * all of them empty. Errors: FORMAT (no JSON), IO, NOMEM. */
pome_status pome_source_config_read(pome_source_info *info, const char *folder, pome_arena *arena, pome_error *err);
pome_status pome_source_config_read_gguf(pome_source_info *info, const pome_gguf *gguf, pome_arena *arena, pome_error *err);

#endif

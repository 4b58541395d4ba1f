#include "convert/lm_graph.h"

#include <inttypes.h>

static const char *part_of(const pome_lm_graph *b)
{
    switch (b->role) {
    case POME_LM_FIRST: return ", embedding";
    case POME_LM_GROUP:
        return pome_arena_printf(b->program->arena, ", layers %" PRId64 " to %" PRId64, b->first_layer,
                                 b->first_layer + b->n_layers - 1);
    case POME_LM_LAST: return ", head";
    case POME_LM_CACHE_PROCESSOR: return ", moves new keys and values into the cache";
    case POME_LM_LOGIT_PROCESSOR: return ", chooses the likeliest token";
    default: return "";
    }
}

pome_status pome_lm_graph_describe(const pome_lm_graph *b, const char *quantize, pome_model_info *out, pome_error *err)
{
    enum { N_METADATA = 4 };
    pome_arena *arena = b->program->arena;
    const pome_lm_config *c = b->config;
    pome_metadata_entry *metadata = POME_NEW_ARRAY(arena, pome_metadata_entry, N_METADATA);
    pome_function_info *fn = POME_NEW(arena, pome_function_info);
    const char *part = part_of(b), *name = b->name ? b->name : c->name;
    const char *text = part ? pome_arena_printf(arena, "%s%s, %s, context of %" PRId64, c->architecture, part, quantize,
                                                b->context)
                            : NULL;
    if (!metadata || !fn || !text)
        return pome_fail_nomem(err, 0, "the description");
    uint32_t n = 0;
    if (name)
        metadata[n++] = (pome_metadata_entry){"co.huggingface.exporters.name", name};
    metadata[n++] = (pome_metadata_entry){"co.huggingface.exporters.task", "text-generation"};
    metadata[n++] = (pome_metadata_entry){"co.huggingface.exporters.architecture", c->architecture};
    metadata[n++] = (pome_metadata_entry){"co.huggingface.exporters.precision",
                                          b->real == POME_DTYPE_F32 ? "float32" : "float16"};
    *fn = b->io;
    fn->name = "main";
    *out = (pome_model_info){.specification_version = b->opset < POME_OPSET_IOS18 ? 7 : 9, .short_description = text,
                             .n_metadata = n, .metadata = metadata, .n_functions = 1, .functions = fn};
    return POME_OK;
}

/* From an operator's id to its implementation. A search is short and happens only while plans are compiled. */
#include "ops/families.h"

#include <stdarg.h>
#include <stdio.h>

typedef struct family {
    const pome_op_impl *impls;
    const size_t *count;
} family;

static const family families[] = {
#define FAMILY(name) {pome_ops_##name, &pome_ops_##name##_count},
#include "ops/families.def"
#undef FAMILY
    {NULL, NULL},
};

const pome_op_impl *pome_op_impl_find(pome_op_id id)
{
    for (const family *f = families; f->impls; f++)
        for (size_t i = 0; i < *f->count; i++)
            if (f->impls[i].id == id)
                return &f->impls[i];
    return NULL;
}

pome_status pome_op_fail(const pome_op *op, pome_error *err, pome_status code, const char *fmt, ...)
{
    char text[sizeof err->message];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return pome_fail(err, code, "%s (%s, #%u): %s", op->name, op->def->name, (unsigned)op->position, text);
}

/* How a feature reads in messages and listings. */
#include <stdio.h>

#include "pome/model.h"

typedef struct line {
    char *text;
    size_t size, at;
} line;

static void put(line *l, const char *s)
{
    for (; *s && l->at + 1 < l->size; s++)
        l->text[l->at++] = *s;
}

static void put_axis(line *l, int64_t min, int64_t max)
{
    char text[64];
    if (min < 0)
        put(l, "?");
    else if (max < 0)
        put(l, (snprintf(text, sizeof text, "%lld..", (long long)min), text));
    else if (min == max)
        put(l, (snprintf(text, sizeof text, "%lld", (long long)min), text));
    else
        put(l, (snprintf(text, sizeof text, "%lld..%lld", (long long)min, (long long)max), text));
}

static void put_shape(line *l, const pome_feature *f, const int64_t *shape)
{
    put(l, "[");
    for (int32_t i = 0; i < f->rank; i++) {
        put(l, i ? ", " : "");
        if (f->is_ranged && !f->n_enumerated)
            put_axis(l, f->range[i].min, f->range[i].max);
        else
            put_axis(l, shape[i], shape[i]);
    }
    put(l, "]");
}

/* Width first, as one speaks of images. */
static void put_size(line *l, const pome_feature *f, const int64_t *shape)
{
    for (int32_t i = 3; i >= 2; i--) {
        put(l, i == 3 ? "" : " x ");
        if (f->is_ranged && !f->n_enumerated)
            put_axis(l, f->range[i].min, f->range[i].max);
        else
            put_axis(l, shape[i], shape[i]);
    }
}

static void put_image(line *l, const pome_feature *f)
{
    static const char *const colors[] = {"", "gray ", "gray fp16 ", "RGB ", "BGR "};
    put(l, "image ");
    put(l, colors[f->color]);
    if (f->n_enumerated == 0)
        put_size(l, f, f->shape);
    for (uint32_t i = 0; i < f->n_enumerated; i++) {
        put(l, i ? " or " : "");
        put_size(l, f, f->enumerated + (size_t)i * 4);
    }
}

const char *pome_feature_format(const pome_feature *f, char *text, size_t size)
{
    static const char *const kinds[] = {"tensor", "image", "dictionary", "string", "int64", "double", "sequence"};
    line l = {text, size, 0};
    if (size == 0)
        return text;
    if (f->kind == POME_FEATURE_IMAGE && f->rank == 4) {
        put_image(&l, f);
    } else if (f->kind != POME_FEATURE_TENSOR) {
        put(&l, kinds[f->kind]);
    } else {
        put(&l, pome_dtype_name(f->dtype));
        put(&l, " ");
        if (f->rank < 0)
            put(&l, "[flexible]");
        else if (f->n_enumerated == 0)
            put_shape(&l, f, f->shape);
        for (uint32_t i = 0; i < f->n_enumerated && f->rank >= 0; i++) {
            put(&l, i ? " or " : "");
            put_shape(&l, f, f->enumerated + (size_t)i * (size_t)f->rank);
        }
    }
    text[l.at] = '\0';
    return text;
}

#include "llm/lengths.h"

#include <string.h>

bool pome_lengths_admit(const pome_lengths *lengths, int64_t n)
{
    if (lengths->n_listed == 0)
        return n >= lengths->min && (lengths->max < 0 || n <= lengths->max);
    for (int i = 0; i < lengths->n_listed; i++)
        if (lengths->listed[i] == n)
            return true;
    return false;
}

int64_t pome_lengths_round_up(const pome_lengths *lengths, int64_t n)
{
    if (lengths->n_listed == 0) {
        int64_t up = n < lengths->min ? lengths->min : n;
        return lengths->max >= 0 && up > lengths->max ? -1 : up;
    }
    for (int i = 0; i < lengths->n_listed; i++)
        if (lengths->listed[i] >= n)
            return lengths->listed[i];
    return -1;
}

int64_t pome_lengths_round_down(const pome_lengths *lengths, int64_t n)
{
    if (lengths->n_listed == 0) {
        int64_t down = lengths->max >= 0 && n > lengths->max ? lengths->max : n;
        return down < lengths->min ? -1 : down;
    }
    for (int i = lengths->n_listed - 1; i >= 0; i--)
        if (lengths->listed[i] <= n)
            return lengths->listed[i];
    return -1;
}

static bool insert_length(pome_lengths *lengths, int64_t n)
{
    int at = 0;
    while (at < lengths->n_listed && lengths->listed[at] < n)
        at++;
    if (at < lengths->n_listed && lengths->listed[at] == n)
        return true;
    if (lengths->n_listed == POME_LENGTHS_MAX)
        return false;
    memmove(lengths->listed + at + 1, lengths->listed + at, sizeof(int64_t) * (size_t)(lengths->n_listed - at));
    lengths->listed[at] = n;
    lengths->n_listed++;
    return true;
}

bool pome_lengths_of(const pome_feature *feature, int axis, pome_lengths *out)
{
    *out = (pome_lengths){.min = feature->shape[axis], .max = feature->shape[axis]};
    if (feature->n_enumerated > 0) {
        for (uint32_t i = 0; i < feature->n_enumerated; i++)
            if (!insert_length(out, feature->enumerated[(size_t)i * (size_t)feature->rank + (size_t)axis]))
                return false;
        out->min = out->listed[0];
        out->max = out->listed[out->n_listed - 1];
    } else if (feature->is_ranged) {
        out->min = feature->range[axis].min > 0 ? feature->range[axis].min : 1;
        out->max = feature->range[axis].max;
    }
    return true;
}

#include "passes/fusion.h"

#include <stdbool.h>
#include <string.h>

static const struct {
    const char *name;
    bool keeps_rounding;
} fusions[] = {
#define FUSION(id, name, what, fp16) {name, fp16},
    POME_FUSIONS(FUSION)
#undef FUSION
};

const char *pome_fusion_name(pome_fusion fusion)
{
    return fusions[fusion].name;
}

uint32_t pome_fusions_exact_rounding(void)
{
    uint32_t set = 0;
    for (int i = 0; i < POME_FUSION_COUNT; i++)
        set |= fusions[i].keeps_rounding ? 1u << i : 0;
    return set;
}

static uint32_t find(const char *name, size_t len)
{
    if (len == 3 && memcmp(name, "all", 3) == 0)
        return (1u << POME_FUSION_COUNT) - 1;
    for (int i = 0; i < POME_FUSION_COUNT; i++)
        if (strlen(fusions[i].name) == len && memcmp(name, fusions[i].name, len) == 0)
            return 1u << i;
    return 0;
}

pome_status pome_fusions_parse(const char *names, uint32_t *set, pome_error *err)
{
    uint32_t found = 0;
    for (const char *p = names ? names : ""; *p;) {
        size_t len = strcspn(p, ",");
        uint32_t bit = find(p, len);
        if (!bit)
            return pome_fail(err, POME_ERR_ARG, "no fusion is called '%.*s': there are all, "
#define FUSION(id, name, what, fp16) name " "
                             POME_FUSIONS(FUSION)
#undef FUSION
                             , (int)len, p);
        found |= bit;
        p += len + (p[len] == ',');
    }
    *set = found;
    return POME_OK;
}

#include "llm/chunk_list.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Splits "PREFIX_chunk12"; false for other names. */
static bool split_name(const char *name, size_t *prefix_len, unsigned long *number)
{
    static const char mark[] = "chunk";
    size_t len = strlen(name), digits = len;
    while (digits > 0 && isdigit((unsigned char)name[digits - 1]))
        digits--;
    if (digits == len || len - digits > 6 || digits < sizeof mark - 1 ||
        strncmp(name + digits - (sizeof mark - 1), mark, sizeof mark - 1) != 0)
        return false;
    size_t prefix = digits - (sizeof mark - 1);
    *prefix_len = prefix > 0 && name[prefix - 1] == '_' ? prefix - 1 : prefix;
    *number = strtoul(name + digits, NULL, 10);
    return true;
}

static bool check_numbers(const pome_chunk_list *list, const unsigned long *numbers, pome_misfit *misfit)
{
    if (numbers[0] > 1)
        return pome_misfit_say(misfit, 4, "%s_chunk1 is missing: the chunks begin with %s", list->prefix, list->chunk[0]->name);
    for (uint32_t i = 0; i + 1 < list->n; i++) {
        if (numbers[i + 1] == numbers[i])
            return pome_misfit_say(misfit, 4, "there are two models for chunk %lu: %s and %s", numbers[i],
                                   list->chunk[i]->name, list->chunk[i + 1]->name);
        if (numbers[i + 1] != numbers[i] + 1)
            return pome_misfit_say(misfit, 4, "between %s and %s chunks are missing: numbers must follow each other",
                                   list->chunk[i]->name, list->chunk[i + 1]->name);
    }
    return true;
}

bool pome_chunk_list_find(const pome_contract_subject *s, pome_chunk_list *list, pome_misfit *misfit)
{
    unsigned long numbers[POME_CHUNKS_MAX];
    list->n = 0;
    for (uint32_t i = 0; i < s->n_models; i++) {
        const char *name = s->models[i].name;
        unsigned long number;
        size_t len;
        if (!split_name(name, &len, &number))
            continue;
        if (list->n == POME_CHUNKS_MAX)
            return pome_misfit_say(misfit, 4, "there are more than %d chunks", POME_CHUNKS_MAX);
        if (list->n == 0)
            snprintf(list->prefix, sizeof list->prefix, "%.*s", (int)len, name);
        else if (strlen(list->prefix) != len || strncmp(name, list->prefix, len) != 0)
            return pome_misfit_say(misfit, 4, "there are chunks of two models: '%s' and '%.*s' (choose one with "
                                   "--local-model-prefix)", list->prefix, (int)len, name);
        uint32_t at = list->n++;
        for (; at > 0 && numbers[at - 1] > number; at--) {
            numbers[at] = numbers[at - 1];
            list->chunk[at] = list->chunk[at - 1];
        }
        numbers[at] = number;
        list->chunk[at] = &s->models[i];
    }
    if (list->n == 0)
        return pome_misfit_say(misfit, 0, "no model is called PREFIX_chunk1");
    if (s->n_models == 1)
        return pome_misfit_say(misfit, 4, "%s is one chunk of a set: give the folder that it is in", s->models[0].name);
    return check_numbers(list, numbers, misfit);
}

const pome_function_info *pome_chunk_function(const pome_contract_model *model)
{
    return &model->functions[model->default_function];
}

bool pome_chunk_feeds(const char *output, const char *input)
{
    return strcmp(output, input) == 0 || (strncmp(output, "new_", 4) == 0 && strcmp(output + 4, input) == 0);
}

const char *pome_chunk_names(const pome_feature *features, uint32_t n, char *text, size_t size)
{
    size_t at = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < n && at + 1 < size; i++) {
        char shape[128];
        int len = snprintf(text + at, size - at, "%s%s %s", i ? ", " : "", features[i].name,
                           pome_feature_format(&features[i], shape, sizeof shape));
        at += len > 0 ? (size_t)len : 0;
    }
    return text;
}

#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- words that were nearly meant ---- */

/* Levenshtein distance, swapped neighbours counted once; words above the limit are never close. */
static size_t edit_distance(const char *a, const char *b)
{
    enum { WORD_MAX = 40 };
    size_t n = strlen(a), m = strlen(b), d[WORD_MAX + 1][WORD_MAX + 1];
    if (n > WORD_MAX || m > WORD_MAX)
        return SIZE_MAX;
    for (size_t i = 0; i <= n; i++)
        for (size_t j = 0; j <= m; j++) {
            if (i == 0 || j == 0) {
                d[i][j] = i + j;
                continue;
            }
            size_t best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            best = d[i - 1][j] + 1 < best ? d[i - 1][j] + 1 : best;
            best = d[i][j - 1] + 1 < best ? d[i][j - 1] + 1 : best;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    return d[n][m];
}

const char *closest_word(const char *word, const char *const *words)
{
    const char *best = NULL;
    size_t best_distance = strlen(word) < 4 ? 2 : 3; /* closer than this */
    for (; *words; words++) {
        size_t distance = edit_distance(word, *words);
        if (distance < best_distance) {
            best_distance = distance;
            best = *words;
        }
    }
    return best;
}

/* ---- values ---- */

static bool set_int(const option *o, int64_t *to, const char *text, char *reason, size_t reason_size)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end || errno) {
        snprintf(reason, reason_size, "'%s' is not a whole number", text);
        return false;
    }
    if ((double)value < o->min || (double)value > o->max) {
        snprintf(reason, reason_size, "%lld is not in [%.0f, %.0f]", value, o->min, o->max);
        return false;
    }
    *to = value;
    return true;
}

static bool set_real(const option *o, double *to, const char *text, char *reason, size_t reason_size)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value)) {
        snprintf(reason, reason_size, "'%s' is not a number", text);
        return false;
    }
    if (value < o->min || value > o->max) {
        snprintf(reason, reason_size, "%s is not in [%g, %g]", text, o->min, o->max);
        return false;
    }
    *to = value;
    return true;
}

static bool set_choice(const option *o, int *to, const char *text, char *reason, size_t reason_size)
{
    const char *word = o->value;
    for (int i = 0;; i++) {
        size_t len = strcspn(word, "|");
        if (strlen(text) == len && memcmp(word, text, len) == 0) {
            *to = i;
            return true;
        }
        if (!word[len])
            break;
        word += len + 1;
    }
    snprintf(reason, reason_size, "'%s' is none of %s", text, o->value);
    return false;
}

static bool append(option_list *list, const char *text, char *reason, size_t reason_size)
{
    const char **items = realloc(list->items, (list->n + 1) * sizeof *items);
    if (!items) {
        snprintf(reason, reason_size, "out of memory");
        return false;
    }
    list->items = items;
    list->items[list->n++] = text;
    return true;
}

bool option_set(const option *o, void *args, const char *text, char *reason, size_t reason_size)
{
    void *to = (char *)args + o->offset;
    switch (o->kind) {
    case OPTION_FLAG:
        *(bool *)to = strcmp(text, "0") != 0 && strcmp(text, "false") != 0 && strcmp(text, "") != 0;
        return true;
    case OPTION_INT:
        return set_int(o, to, text, reason, reason_size);
    case OPTION_REAL:
        return set_real(o, to, text, reason, reason_size);
    case OPTION_TEXT:
        *(const char **)to = text;
        return true;
    case OPTION_LIST:
        return append(to, text, reason, reason_size);
    case OPTION_CHOICE:
        return set_choice(o, to, text, reason, reason_size);
    }
    return false;
}

/* ---- environment ---- */

/* POME_MAX_NEW_TOKENS for max-new-tokens. An empty variable counts as none. */
static int apply_environment(const verb *v, void *args)
{
    for (const option *o = v->options; o->name; o++) {
        char name[64] = "POME_", reason[160] = "";
        size_t at = strlen(name);
        for (const char *p = o->name; *p && at + 1 < sizeof name; p++)
            name[at++] = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
        name[at] = '\0';
        const char *value = o->is_setting ? getenv(name) : NULL;
        if (value && *value && !option_set(o, args, value, reason, sizeof reason)) {
            fprintf(stderr, "pome %s: environment variable %s: %s\n", v->name, name, reason);
            return EXIT_USAGE;
        }
    }
    return 0;
}

/* ---- command line ---- */

static const option *find_option(const verb *v, const char *name, size_t len)
{
    for (const option *o = v->options; o->name; o++) {
        if (strlen(o->name) == len && memcmp(o->name, name, len) == 0)
            return o;
        if (o->alias && strlen(o->alias) == len && memcmp(o->alias, name, len) == 0)
            return o;
    }
    return NULL;
}

static const option *find_letter(const verb *v, char letter)
{
    for (const option *o = v->options; o->name; o++)
        if (o->letter == letter)
            return o;
    return NULL;
}

static int fail_unknown(const verb *v, const char *arg)
{
    const char *words[128], *name = arg + strspn(arg, "-");
    char typed[64];
    size_t n = 0;
    for (const option *o = v->options; o->name && n + 2 < sizeof words / sizeof words[0]; o++) {
        if (o->help)
            words[n++] = o->name;
        if (o->alias)
            words[n++] = o->alias;
    }
    words[n] = NULL;
    snprintf(typed, sizeof typed, "%.*s", (int)strcspn(name, "="), name);
    const char *meant = closest_word(typed, words);
    fprintf(stderr, "pome %s: no option %.*s", v->name, (int)strcspn(arg, "="), arg);
    if (meant)
        fprintf(stderr, "; did you mean --%s?", meant);
    fprintf(stderr, " (see pome %s --help)\n", v->name);
    return EXIT_USAGE;
}

typedef struct parser {
    const verb *v;
    void *args;
    char **argv;
    int argc, at;
} parser;

/* Sets `o` from `value`, or from the next argument if that is NULL and one is wanted. */
static int take_option(parser *p, const option *o, const char *value)
{
    char reason[200] = "";
    if (o->kind == OPTION_FLAG && value) {
        fprintf(stderr, "pome %s: --%s takes no value\n", p->v->name, o->name);
        return EXIT_USAGE;
    }
    if (o->kind == OPTION_FLAG)
        value = "1";
    if (!value && p->at < p->argc)
        value = p->argv[p->at++];
    if (!value) {
        fprintf(stderr, "pome %s: --%s wants a value (%s)\n", p->v->name, o->name, o->value);
        return EXIT_USAGE;
    }
    if (!option_set(o, p->args, value, reason, sizeof reason)) {
        fprintf(stderr, "pome %s: --%s: %s\n", p->v->name, o->name, reason);
        return EXIT_USAGE;
    }
    return 0;
}

static int take_long(parser *p, const char *arg)
{
    size_t len = strcspn(arg + 2, "=");
    const option *o = find_option(p->v, arg + 2, len);
    if (!o)
        return fail_unknown(p->v, arg);
    return take_option(p, o, arg[2 + len] == '=' ? arg + 2 + len + 1 : NULL);
}

/* -q, -qv, -n 5 and -n5. */
static int take_letters(parser *p, const char *arg)
{
    for (const char *letter = arg + 1; *letter; letter++) {
        const option *o = find_letter(p->v, *letter);
        if (!o)
            return fail_unknown(p->v, arg);
        if (o->kind != OPTION_FLAG)
            return take_option(p, o, letter[1] ? letter + 1 : NULL);
        int status = take_option(p, o, NULL);
        if (status)
            return status;
    }
    return 0;
}

static int check_operands(const verb *v, const common_args *common, int n)
{
    if (common->help || common->help_man)
        return 0;
    if (n >= v->n_operands_min && (v->n_operands_max < 0 || n <= v->n_operands_max))
        return 0;
    fprintf(stderr, "pome %s: %s\nusage: pome %s %s [options]\n", v->name,
            n < v->n_operands_min ? "too few arguments" : "too many arguments", v->name, v->operands);
    return EXIT_USAGE;
}

int options_parse(const verb *v, int argc, char **argv, void *args, const char ***operands, int *n_operands)
{
    parser p = {.v = v, .args = args, .argv = argv, .argc = argc};
    const char **found = calloc((size_t)argc + 1, sizeof *found);
    int n = 0, status = 0;
    bool is_verbatim = false; /* after "--" */
    *operands = found;
    *n_operands = 0;
    memset(args, 0, v->args_size);
    v->set_defaults(args);
    if (!found) {
        fprintf(stderr, "pome: out of memory\n");
        return 1;
    }
    status = config_apply(v, args);
    if (status == 0)
        status = apply_environment(v, args);
    while (status == 0 && p.at < argc) {
        const char *arg = argv[p.at++];
        if (is_verbatim || arg[0] != '-' || !arg[1])
            found[n++] = arg;
        else if (strcmp(arg, "--") == 0)
            is_verbatim = true;
        else
            status = arg[1] == '-' ? take_long(&p, arg) : take_letters(&p, arg);
    }
    *n_operands = n;
    return status ? status : check_operands(v, args, n);
}

void options_free(const verb *v, void *args, const char **operands)
{
    for (const option *o = v->options; o->name; o++)
        if (o->kind == OPTION_LIST)
            free(((option_list *)((char *)args + o->offset))->items);
    free(((common_args *)args)->config);
    free(operands);
}

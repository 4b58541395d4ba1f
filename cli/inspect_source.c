#include "inspect_source.h"

#include <jansson.h>
#include <string.h>

#include "pome/inspect.h"

/* ---- text ---- */

/* Names come from files: what a terminal could take for a command is not passed on. */
static void print_clean(const char *text)
{
    for (; *text; text++)
        putchar((unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text);
}

static void print_line(const char *title, const char *text)
{
    printf("%-11s ", title);
    print_clean(text);
    putchar('\n');
}

static void print_sizes(const pome_source_info *s)
{
    const char *between = "sizes       ";
    const struct {
        const char *what;
        int64_t n;
    } sizes[] = {{"layers", s->n_layers}, {"hidden", s->hidden}, {"feed-forward", s->ffn}, {"heads", s->n_heads},
                 {"key/value heads", s->n_kv_heads}, {"head size", s->head_dim}, {"vocabulary", s->n_vocab},
                 {"positions", s->n_positions}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (!sizes[i].n)
            continue;
        printf("%s%s %lld", between, sizes[i].what, (long long)sizes[i].n);
        between = ", ";
    }
    if (between[0] == ',')
        putchar('\n');
}

static void print_types(const pome_source_info *s)
{
    printf("parameters  %llu in %u tensors\n", (unsigned long long)s->n_parameters, (unsigned)s->n_tensors);
    for (uint32_t i = 0; i < s->n_types; i++) {
        const pome_source_type *t = &s->types[i];
        printf("  %-10s %5llu tensors %14llu elements %12.2f MB  %.2f bits each\n", t->type,
               (unsigned long long)t->n_tensors, (unsigned long long)t->n_elements, (double)t->size_bytes / 1e6,
               t->n_elements ? 8.0 * (double)t->size_bytes / (double)t->n_elements : 0.0);
    }
}

static void print_conversion(const pome_source_info *s)
{
    const pome_convert_report *r = &s->conversion;
    if (!s->is_convertible) {
        printf("convert     no: ");
        print_clean(s->refusal);
        putchar('\n');
        return;
    }
    printf("convert     yes: %s, %.2f MB of weights, context %lld%s\n", r->quantize, (double)r->weights_bytes / 1e6,
           (long long)r->context, r->is_tied ? ", the embedding is the head" : "");
}

static void print_tensors(const pome_source_info *s)
{
    printf("tensors\n");
    for (uint32_t i = 0; i < s->n_tensors; i++) {
        const pome_source_tensor *t = &s->tensors[i];
        printf("  %-8s %12llu bytes  ", t->type, (unsigned long long)t->size_bytes);
        print_clean(t->name);
        for (int32_t k = 0; k < t->rank; k++)
            printf("%s%lld", k ? ", " : " [", (long long)t->shape[k]);
        puts(t->rank ? "]" : " []");
    }
}

static void print_text(const pome_source_info *s, bool lists_tensors)
{
    print_line("checkpoint", s->path);
    printf("format      %s", s->format);
    if (s->version)
        printf(" %u", (unsigned)s->version);
    printf(", %u file%s, %.2f MB\n", (unsigned)s->n_files, s->n_files == 1 ? "" : "s", (double)s->size_bytes / 1e6);
    if (s->name[0])
        print_line("name", s->name);
    print_line("architecture", s->architecture[0] ? s->architecture : "not given");
    print_sizes(s);
    print_types(s);
    print_line("tokenizer", s->tokenizer[0] ? s->tokenizer : "none");
    if (s->tokenizer_problem[0])
        print_line("", s->tokenizer_problem);
    print_line("template", s->chat_template[0] ? s->chat_template : "none");
    print_conversion(s);
    if (lists_tensors)
        print_tensors(s);
}

/* ---- JSON ---- */

static json_t *text_or_null(const char *text)
{
    return text[0] ? json_text(text) : json_null();
}

static json_t *size_or_null(int64_t n)
{
    return n ? json_integer((json_int_t)n) : json_null();
}

static json_t *types_json(const pome_source_info *s)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < s->n_types; i++)
        json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:I}", "type", s->types[i].type, "tensors",
                                              (json_int_t)s->types[i].n_tensors, "elements",
                                              (json_int_t)s->types[i].n_elements, "bytes",
                                              (json_int_t)s->types[i].size_bytes));
    return list;
}

static json_t *tensors_json(const pome_source_info *s)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < s->n_tensors; i++) {
        const pome_source_tensor *t = &s->tensors[i];
        json_t *shape = json_array();
        for (int32_t k = 0; k < t->rank; k++)
            json_array_append_new(shape, json_integer((json_int_t)t->shape[k]));
        json_array_append_new(list, json_pack("{s:o, s:s, s:o, s:I}", "name", json_text(t->name), "type", t->type, "shape",
                                              shape, "bytes", (json_int_t)t->size_bytes));
    }
    return list;
}

static json_t *config_json(const pome_source_info *s)
{
    json_t *o = json_object();
    for (uint32_t i = 0; i < s->n_config; i++) {
        json_t *value = json_loads(s->config[i].value, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        json_object_set_new(o, s->config[i].key, value ? value : json_null());
    }
    return o;
}

static json_t *conversion_json(const pome_source_info *s)
{
    const pome_convert_report *r = &s->conversion;
    if (!s->is_convertible)
        return json_pack("{s:b, s:o}", "possible", 0, "reason", json_text(s->refusal));
    return json_pack("{s:b, s:s, s:I, s:I, s:b}", "possible", 1, "quantize", r->quantize, "weights_bytes",
                     (json_int_t)r->weights_bytes, "context", (json_int_t)r->context, "tied_head", r->is_tied);
}

static json_t *source_json(const pome_source_info *s, bool lists_tensors)
{
    json_t *o = json_pack("{s:o, s:s, s:s, s:o, s:I, s:I}", "path", json_text(s->path), "kind", "checkpoint", "format",
                          s->format, "version", size_or_null(s->version), "files", (json_int_t)s->n_files, "bytes",
                          (json_int_t)s->size_bytes);
    const struct {
        const char *key;
        json_t *value;
    } fields[] = {
        {"name", text_or_null(s->name)},
        {"architecture", text_or_null(s->architecture)},
        {"layers", size_or_null(s->n_layers)},
        {"hidden", size_or_null(s->hidden)},
        {"feed_forward", size_or_null(s->ffn)},
        {"heads", size_or_null(s->n_heads)},
        {"key_value_heads", size_or_null(s->n_kv_heads)},
        {"head_size", size_or_null(s->head_dim)},
        {"vocabulary", size_or_null(s->n_vocab)},
        {"positions", size_or_null(s->n_positions)},
        {"parameters", json_integer((json_int_t)s->n_parameters)},
        {"types", types_json(s)},
        {"tokenizer", text_or_null(s->tokenizer)},
        {"tokenizer_problem", text_or_null(s->tokenizer_problem)},
        {"chat_template", text_or_null(s->chat_template)},
        {"generation", text_or_null(s->generation)},
        {"conversion", conversion_json(s)},
        {"config", config_json(s)},
        {"tensors", lists_tensors ? tensors_json(s) : NULL},
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (fields[i].value)
            json_object_set_new(o, fields[i].key, fields[i].value);
    return o;
}

int inspect_source(const char *path, const common_args *common, bool lists_tensors)
{
    pome_error err = {0};
    pome_source_info *info = NULL;
    int status = 0;
    listen_to_log(common);
    if (pome_source_describe(&info, path, &err) != POME_OK)
        return fail_with(&err);
    if (common->json)
        status = print_json(source_json(info, lists_tensors));
    else
        print_text(info, lists_tensors);
    pome_source_info_free(&info);
    return finish_output(status);
}

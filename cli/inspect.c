/* `pome inspect`: what is in a model. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "inspect_source.h"
#include "pome/inspect.h"
#include "pome/llm.h"
#include "verbs.h"

typedef struct inspect_args {
    common_args common;
    const char *function;
    bool mil, plan, tensors;
} inspect_args;

static void set_defaults(void *args)
{
    (void)args;
}

#define AT(member) offsetof(inspect_args, member)
static const option options[] = {
    {"mil", 0, NULL, OPTION_FLAG, NULL, AT(mil), 0, 0, false, "Print the program as MIL text"},
    {"plan", 0, NULL, OPTION_FLAG, NULL, AT(plan), 0, 0, false, "Print what the program is compiled to, a line per step"},
    {"function", 0, NULL, OPTION_TEXT, "NAME", AT(function), 0, 0, false, "Only this function (all)"},
    {"tensors", 0, NULL, OPTION_FLAG, NULL, AT(tensors), 0, 0, false, "List the tensors of a checkpoint"},
    OPTIONS_OUTPUT(inspect_args),
    {0},
};

static const char *const examples[] = {
    "pome inspect model.mlpackage", "inputs, outputs, states, operators, weights, metadata",
    "pome inspect model.mlpackage --json | jq .functions[0].inputs", "the same as JSON",
    "pome inspect model.mlpackage --mil | less", "the program text",
    "pome inspect model.mlpackage --plan | less", "the steps that run",
    "pome inspect model.gguf --tensors", "a checkpoint: configuration, tensors, and what `convert` would make of it",
    NULL,
};

/* ---- text ---- */

static void print_features(const char *title, const pome_feature *f, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        char shape[1024];
        printf("  %-8s %s  %s", i ? "" : title, f[i].name, pome_feature_format(&f[i], shape, sizeof shape));
        if (f[i].is_optional)
            printf("  optional");
        if (f[i].has_default)
            printf(", %g if absent", f[i].default_value);
        if (f[i].description[0])
            printf("  (%s)", f[i].description);
        putchar('\n');
    }
}

/* "linear 29, mul 28, ..." */
static pome_status print_ops(const pome_model *model, uint32_t function, pome_error *err)
{
    pome_op_count *counts = NULL;
    size_t n = 0;
    pome_status status = pome_model_count_ops(model, function, &counts, &n, err);
    if (status != POME_OK)
        return status;
    printf("  ops     ");
    for (size_t i = 0; i < n; i++)
        printf("%s %s %llu", i ? "," : "", counts[i].op, (unsigned long long)counts[i].n);
    putchar('\n');
    free(counts);
    return POME_OK;
}

/* What `run` would make of a function, or why it cannot: allocated text, NULL if it fits no contract. */
static char *contract_of(pome_model *model, const char *function)
{
    pome_llm_opts opts;
    pome_llm *llm = NULL;
    char *text = NULL;
    pome_llm_opts_default(&opts);
    opts.function = function;
    if (pome_llm_open(&llm, model, &opts, NULL) != POME_OK)
        return NULL;
    size_t size = strlen(pome_llm_describe(llm)) + 80;
    text = malloc(size);
    if (text)
        snprintf(text, size, "%s; context %lld, vocabulary %lld", pome_llm_describe(llm),
                 (long long)pome_llm_n_context(llm), (long long)pome_llm_n_vocab(llm));
    pome_llm_close(&llm);
    return text;
}

static pome_status print_function(pome_model *model, uint32_t index, pome_error *err)
{
    const pome_model_info *info = pome_model_describe(model);
    const pome_function_info *f = &info->functions[index];
    printf("function %s%s\n", f->name, info->n_functions > 1 && index == info->default_function ? " (default)" : "");
    print_features("inputs", f->inputs, f->n_inputs);
    print_features("states", f->states, f->n_states);
    print_features("outputs", f->outputs, f->n_outputs);
    pome_status status = print_ops(model, index, err);
    char *contract = contract_of(model, f->name);
    if (contract)
        printf("  language model: %s\n", contract);
    free(contract);
    return status;
}

static pome_status print_weights(const pome_model *model, pome_error *err)
{
    pome_weight_count *counts = NULL;
    size_t n = 0;
    pome_status status = pome_model_count_weights(model, &counts, &n, err);
    if (status != POME_OK)
        return status;
    printf("weights  %.2f MB mapped\n", (double)pome_model_describe(model)->weights_bytes / 1e6);
    for (size_t i = 0; i < n; i++)
        printf("  %-28s %5llu constants %14llu elements %12.2f MB  %.2f bits each\n", counts[i].kind,
               (unsigned long long)counts[i].n, (unsigned long long)counts[i].n_elements,
               (double)counts[i].size_bytes / 1e6,
               counts[i].n_elements ? 8.0 * (double)counts[i].size_bytes / (double)counts[i].n_elements : 0.0);
    free(counts);
    return POME_OK;
}

static pome_status print_text(pome_model *model, int only, pome_error *err)
{
    const pome_model_info *info = pome_model_describe(model);
    const struct {
        const char *title, *value;
    } about[] = {{"about", info->short_description}, {"version", info->version}, {"author", info->author},
                 {"license", info->license}};
    printf("model    %s\nformat   ML Program, specification %d\n", info->path, (int)info->specification_version);
    for (size_t i = 0; i < sizeof about / sizeof about[0]; i++)
        if (about[i].value[0])
            printf("%-8s %s\n", about[i].title, about[i].value);
    pome_status status = POME_OK;
    for (uint32_t i = 0; i < info->n_functions && status == POME_OK; i++)
        if (only < 0 || only == (int)i)
            status = print_function(model, i, err);
    if (status == POME_OK)
        status = print_weights(model, err);
    for (uint32_t i = 0; i < info->n_metadata; i++)
        printf("%s%s = %s\n", i ? "         " : "metadata ", info->metadata[i].key, info->metadata[i].value);
    return status;
}

/* ---- JSON ---- */

static json_t *shape_json(const int64_t *shape, int32_t rank)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < rank; i++) /* a size that may vary is null */
        json_array_append_new(list, shape[i] < 0 ? json_null() : json_integer(shape[i]));
    return list;
}

static json_t *feature_json(const pome_feature *f)
{
    static const char *const kinds[] = {"tensor", "image", "dictionary", "string", "int64", "double", "sequence"};
    json_t *o = json_pack("{s:o, s:s, s:s, s:o}", "name", json_text(f->name), "kind", kinds[f->kind], "dtype",
                          pome_dtype_name(f->dtype), "shape", f->rank < 0 ? json_null() : shape_json(f->shape, f->rank));
    if (f->description[0])
        json_object_set_new(o, "description", json_text(f->description));
    if (f->is_ranged && f->n_enumerated == 0) {
        json_t *ranges = json_array();
        for (int32_t i = 0; i < f->rank; i++)
            json_array_append_new(ranges, json_pack("[I, o]", (json_int_t)f->range[i].min, f->range[i].max < 0
                                                        ? json_null()
                                                        : json_integer(f->range[i].max)));
        json_object_set_new(o, "ranges", ranges);
    }
    if (f->n_enumerated > 0) {
        json_t *shapes = json_array();
        for (uint32_t i = 0; i < f->n_enumerated; i++)
            json_array_append_new(shapes, shape_json(f->enumerated + (size_t)i * (size_t)f->rank, f->rank));
        json_object_set_new(o, "enumerated", shapes);
    }
    if (f->is_optional)
        json_object_set_new(o, "optional", json_true());
    if (f->has_default)
        json_object_set_new(o, "default", json_real(f->default_value));
    return o;
}

static json_t *features_json(const pome_feature *f, uint32_t n)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(list, feature_json(&f[i]));
    return list;
}

static pome_status function_json(json_t **out, pome_model *model, uint32_t index, pome_error *err)
{
    const pome_function_info *f = &pome_model_describe(model)->functions[index];
    pome_op_count *counts = NULL;
    size_t n = 0;
    pome_status status = pome_model_count_ops(model, index, &counts, &n, err);
    if (status != POME_OK)
        return status;
    json_t *ops = json_object();
    for (size_t i = 0; i < n; i++)
        json_object_set_new(ops, counts[i].op, json_integer((json_int_t)counts[i].n));
    free(counts);
    char *contract = contract_of(model, f->name);
    *out = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "name", json_text(f->name), "inputs", features_json(f->inputs, f->n_inputs),
                     "states", features_json(f->states, f->n_states), "outputs", features_json(f->outputs, f->n_outputs),
                     "ops", ops, "contract", contract ? json_text(contract) : json_null());
    free(contract);
    return POME_OK;
}

static pome_status weights_json(json_t **out, const pome_model *model, pome_error *err)
{
    pome_weight_count *counts = NULL;
    size_t n = 0;
    pome_status status = pome_model_count_weights(model, &counts, &n, err);
    if (status != POME_OK)
        return status;
    *out = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(*out, json_pack("{s:s, s:I, s:I, s:I}", "kind", counts[i].kind, "constants",
                                              (json_int_t)counts[i].n, "elements", (json_int_t)counts[i].n_elements,
                                              "bytes", (json_int_t)counts[i].size_bytes));
    free(counts);
    return POME_OK;
}

static pome_status model_json(json_t **out, pome_model *model, int only, pome_error *err)
{
    const pome_model_info *info = pome_model_describe(model);
    json_t *functions = json_array(), *metadata = json_object(), *weights = NULL;
    pome_status status = POME_OK;
    for (uint32_t i = 0; i < info->n_functions && status == POME_OK; i++) {
        json_t *f = NULL;
        if (only >= 0 && only != (int)i)
            continue;
        status = function_json(&f, model, i, err);
        json_array_append_new(functions, f);
    }
    if (status == POME_OK)
        status = weights_json(&weights, model, err);
    if (status != POME_OK) {
        json_decref(functions);
        json_decref(metadata);
        return status;
    }
    for (uint32_t i = 0; i < info->n_metadata; i++)
        json_object_set_new(metadata, info->metadata[i].key, json_text(info->metadata[i].value));
    *out = json_pack("{s:o, s:s, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:o}", "path", json_text(info->path), "kind",
                     "mlprogram", "specification_version", (int)info->specification_version, "description",
                     json_text(info->short_description), "version", json_text(info->version), "author",
                     json_text(info->author), "license", json_text(info->license), "default_function",
                     json_text(info->functions[info->default_function].name), "functions", functions, "weights_bytes",
                     (json_int_t)info->weights_bytes, "weights", weights, "metadata", metadata);
    return POME_OK;
}

/* ---- the verb ---- */

static void write_piece(void *arg, const char *text, size_t len)
{
    fwrite(text, 1, len, arg);
}

static pome_status print_plans(pome_model *model, int only, pome_error *err)
{
    pome_status status = POME_OK;
    for (uint32_t i = 0; i < pome_model_describe(model)->n_functions && status == POME_OK; i++)
        if (only < 0 || (uint32_t)only == i)
            status = pome_model_print_plan(model, i, write_piece, stdout, err);
    return status;
}

static int inspect(const inspect_args *args, pome_model *model)
{
    pome_error err = {0};
    pome_status status;
    json_t *document = NULL;
    int only = args->function ? pome_model_find_function(model, args->function) : -1;
    if (args->function && only < 0)
        return fail_text("no function '%s' in the model (pome inspect lists them)", args->function);
    if (args->mil)
        status = pome_model_print_mil(model, only, write_piece, stdout, &err);
    else if (args->plan)
        status = print_plans(model, only, &err);
    else if (args->common.json)
        status = model_json(&document, model, only, &err);
    else
        status = print_text(model, only, &err);
    if (status != POME_OK)
        return fail_with(&err);
    return document ? print_json(document) : finish_output(0);
}

static int run(void *opaque, const char **operands, int n_operands)
{
    const inspect_args *args = opaque;
    pome_error err = {0};
    pome_model *model = NULL;
    (void)n_operands;
    if ((args->mil || args->plan) && args->common.json) {
        fprintf(stderr, "pome inspect: --%s is text: leave out --json\n", args->mil ? "mil" : "plan");
        return EXIT_USAGE;
    }
    if (pome_source_is_checkpoint(operands[0])) {
        if (args->mil || args->plan || args->function)
            return fail_text("%s is a checkpoint, which has no program yet: pome convert makes one", operands[0]);
        return inspect_source(operands[0], &args->common, args->tensors);
    }
    if (args->tensors)
        return fail_text("%s is no checkpoint, whose tensors could be listed", operands[0]);
    if (open_model(&model, operands[0], &args->common, &err) != POME_OK)
        return fail_with(&err);
    int status = inspect(args, model);
    pome_model_close(&model);
    return status;
}

const verb verb_inspect = {
    .name = "inspect",
    .summary = "what is in a model",
    .operands = "MODEL",
    .description = "Shows a model's functions with their inputs, states, outputs and operators, its weights by kind and "
                   "size, its metadata, and how `run` would use it as a language model. Of a checkpoint (a Hugging Face "
                   "folder, a safetensors or GGUF file): format, sizes, tensors by type, tokenizer, and what `convert` "
                   "would make of it.",
    .options = options,
    .examples = examples,
    .n_operands_min = 1,
    .n_operands_max = 1,
    .args_size = sizeof(inspect_args),
    .set_defaults = set_defaults,
    .run = run,
};

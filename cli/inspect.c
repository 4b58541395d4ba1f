/* `pome inspect`: what is in a model. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "inspect_source.h"
#include "llm_open.h"
#include "pome/inspect.h"
#include "pome/llm.h"
#include "verbs.h"

typedef struct inspect_args {
    common_args common;
    llm_args llm;
    bool mil, plan, tensors;
} inspect_args;

/* What is looked at: one model, or several that belong together. */
typedef struct inspected {
    const inspect_args *args;
    pome_model_set *models;
} inspected;

static void set_defaults(void *args)
{
    (void)args;
}

#define AT(member) offsetof(inspect_args, member)
static const option options[] = {
    {"mil", 0, NULL, OPTION_FLAG, NULL, AT(mil), 0, 0, false, "Print the program as MIL text"},
    {"plan", 0, NULL, OPTION_FLAG, NULL, AT(plan), 0, 0, false, "Print what the program is compiled to, a line per step"},
    {"function", 0, NULL, OPTION_TEXT, "NAME", AT(llm.function), 0, 0, false, "Only this function (all)"},
    OPTIONS_CONTRACT(inspect_args, llm),
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

/* How `run` would feed a function, or all models of a set (NULL: their default). Allocated text; of what cannot be run
 * the reason goes to err and the text is NULL. */
static char *contract_of(const inspected *it, const char *function, pome_error *err)
{
    pome_llm *llm = NULL;
    char *text = NULL;
    llm_args args = it->args->llm;
    args.function = function;
    if (open_llm(&llm, it->models, &args, 0, err) != POME_OK)
        return NULL;
    size_t size = strlen(pome_llm_explain(llm)) + 100;
    text = malloc(size);
    if (text)
        snprintf(text, size, "%s; context %lld, vocabulary %lld%s", pome_llm_explain(llm),
                 (long long)pome_llm_n_context(llm), (long long)pome_llm_n_vocab(llm),
                 pome_llm_has_logits(llm) ? "" : ", no logits");
    pome_llm_close(&llm);
    return text;
}

/* "contract: stateful, 2 states, ids=..., because ...", or why there is none. */
static void print_contract(const inspected *it, const char *function)
{
    pome_error err = {0};
    char *contract = contract_of(it, function, &err);
    if (!contract && err.code != POME_ERR_ARG) /* what was seen is there to be read already */
        err.message[strcspn(err.message, "(")] = '\0';
    printf("  contract: %s%s\n", contract ? "" : "none, because ", contract ? contract : err.message);
    free(contract);
}

static pome_status print_function(const inspected *it, pome_model *model, uint32_t index, pome_error *err)
{
    const pome_model_info *info = pome_model_describe(model);
    const pome_function_info *f = &info->functions[index];
    printf("function %s%s\n", f->name, info->n_functions > 1 && index == info->default_function ? " (default)" : "");
    print_features("inputs", f->inputs, f->n_inputs);
    print_features("states", f->states, f->n_states);
    print_features("outputs", f->outputs, f->n_outputs);
    pome_status status = print_ops(model, index, err);
    if (status == POME_OK && pome_model_set_count(it->models) == 1)
        print_contract(it, f->name);
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

static pome_status print_text(const inspected *it, pome_model *model, int only, pome_error *err)
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
            status = print_function(it, model, i, err);
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

static pome_status function_json(json_t **out, const inspected *it, pome_model *model, uint32_t index, pome_error *err)
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
    char *contract = pome_model_set_count(it->models) == 1 ? contract_of(it, f->name, NULL) : NULL;
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

static pome_status model_json(json_t **out, const inspected *it, pome_model *model, int only, pome_error *err)
{
    const pome_model_info *info = pome_model_describe(model);
    json_t *functions = json_array(), *metadata = json_object(), *weights = NULL;
    pome_status status = POME_OK;
    for (uint32_t i = 0; i < info->n_functions && status == POME_OK; i++) {
        json_t *f = NULL;
        if (only >= 0 && only != (int)i)
            continue;
        status = function_json(&f, it, model, i, err);
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

static pome_status inspect_model(json_t **document, const inspected *it, pome_model *model, pome_error *err)
{
    const inspect_args *args = it->args;
    int only = args->llm.function ? pome_model_find_function(model, args->llm.function) : -1;
    if (args->mil)
        return pome_model_print_mil(model, only, write_piece, stdout, err);
    if (args->plan)
        return print_plans(model, only, err);
    if (args->common.json)
        return model_json(document, it, model, only, err);
    return print_text(it, model, only, err);
}

/* All models of a set, after what they are together. */
static pome_status inspect_set(json_t **document, const inspected *it, pome_error *err)
{
    const inspect_args *args = it->args;
    uint32_t n = pome_model_set_count(it->models);
    json_t *models = json_array();
    pome_status status = POME_OK;
    char *contract = args->common.json ? contract_of(it, args->llm.function, NULL) : NULL;
    if (!args->common.json && !args->mil && !args->plan) {
        printf("set      %s, %u models\n", pome_model_set_path(it->models), n);
        print_contract(it, args->llm.function);
    }
    for (uint32_t i = 0; i < n && status == POME_OK; i++) {
        json_t *one = NULL;
        if (!args->common.json)
            printf("\n%s\n", pome_model_set_name(it->models, i));
        status = inspect_model(&one, it, pome_model_set_model(it->models, i), err);
        if (one)
            json_array_append_new(models, one);
    }
    if (args->common.json && status == POME_OK)
        *document = json_pack("{s:o, s:s, s:o, s:o}", "path", json_text(pome_model_set_path(it->models)), "kind", "set",
                              "contract", contract ? json_text(contract) : json_null(), "models", models);
    else
        json_decref(models);
    free(contract);
    return status;
}

static int inspect(const inspected *it)
{
    pome_error err = {0};
    json_t *document = NULL;
    const char *function = it->args->llm.function;
    bool is_single = pome_model_set_count(it->models) == 1;
    pome_model *model = pome_model_set_model(it->models, 0);
    if (is_single && function && pome_model_find_function(model, function) < 0)
        return fail_text("no function '%s' in the model (pome inspect lists them)", function);
    pome_status status = is_single ? inspect_model(&document, it, model, &err) : inspect_set(&document, it, &err);
    if (status != POME_OK)
        return fail_with(&err);
    return document ? print_json(document) : finish_output(0);
}

static int run(void *opaque, const char **operands, int n_operands)
{
    const inspect_args *args = opaque;
    pome_error err = {0};
    inspected it = {.args = args};
    (void)n_operands;
    if ((args->mil || args->plan) && args->common.json) {
        fprintf(stderr, "pome inspect: --%s is text: leave out --json\n", args->mil ? "mil" : "plan");
        return EXIT_USAGE;
    }
    if (pome_source_is_checkpoint(operands[0])) {
        if (args->mil || args->plan || args->llm.function)
            return fail_text("%s is a checkpoint, which has no program yet: pome convert makes one", operands[0]);
        return inspect_source(operands[0], &args->common, args->tensors);
    }
    if (args->tensors)
        return fail_text("%s is no checkpoint, whose tensors could be listed", operands[0]);
    if (open_models(&it.models, operands[0], &args->common, &err) != POME_OK)
        return fail_with(&err);
    int status = inspect(&it);
    pome_model_set_close(&it.models);
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

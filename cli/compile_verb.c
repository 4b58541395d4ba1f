/* `pome compile`: package to compiled model. */
#include <jansson.h>

#include "command.h"
#include "pome/compile.h"
#include "verbs.h"

typedef struct compile_args {
    common_args common;
    int weights;
    bool force;
} compile_args;

#define AT(member) offsetof(compile_args, member)
static const option options[] = {
    {"weights", 0, NULL, OPTION_CHOICE, "auto|clone|link|copy", AT(weights), 0, 0, false,
     "Weight files: blocks shared until one side changes (clone), one file with two names (link), copied, or the first of "
     "these that the file systems allow (auto)"},
    {"force", 'f', NULL, OPTION_FLAG, NULL, AT(force), 0, 0, false, "Replace what is at OUT"},
    OPTIONS_OUTPUT(compile_args),
    {0},
};

static void set_defaults(void *opaque)
{
    (void)opaque; /* all zero */
}

static const char *const examples[] = {
    "pome compile model.mlpackage model.mlmodelc", "the program as text, the weights shared with the package",
    "pome compile llama/ llama-compiled/", "every package of a folder, as a set of chunks is",
    "pome compile model.mlpackage model.mlmodelc --weights copy", "a folder that does not change with the package", NULL,
};

static int run(void *opaque, const char **operands, int n_operands)
{
    const compile_args *args = opaque;
    pome_compile_opts opts;
    pome_compile_report r;
    pome_error err = {0};
    (void)n_operands;
    listen_to_log(&args->common);
    pome_compile_opts_default(&opts);
    opts.force = args->force;
    opts.weights = (pome_compile_weights)args->weights;
    double start = now_s();
    if (pome_compile(operands[0], operands[1], &opts, &r, &err) != POME_OK)
        return fail_with(&err);
    double seconds = now_s() - start;
    if (args->common.json)
        return print_json(json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "output", json_text(operands[1]), "models",
                                    (json_int_t)r.n_models, "functions", (json_int_t)r.n_functions, "cloned",
                                    (json_int_t)r.n_cloned, "linked", (json_int_t)r.n_linked, "copied",
                                    (json_int_t)r.n_copied, "weights_bytes", (json_int_t)r.weights_bytes, "text_bytes",
                                    (json_int_t)r.text_bytes, "seconds", seconds));
    printf("%s\n", operands[1]);
    if (r.n_models > 1)
        printf("  models        %u\n", (unsigned)r.n_models);
    printf("  program       %.1f kB of text, %u function%s\n", (double)r.text_bytes / 1e3, (unsigned)r.n_functions,
           r.n_functions == 1 ? "" : "s");
    printf("  weights       %.1f MB\n", (double)r.weights_bytes / 1e6);
    printf("  files         %u cloned, %u linked, %u copied\n", (unsigned)r.n_cloned, (unsigned)r.n_linked,
           (unsigned)r.n_copied);
    printf("  time          %.2f s\n", seconds);
    return finish_output(0);
}

const verb verb_compile = {
    .name = "compile",
    .summary = "package to compiled model",
    .operands = "SOURCE OUT",
    .description = "Makes the folder that Core ML runs, NAME.mlmodelc, of a package: the program as text, its weights, and the "
                   "description of its inputs and outputs. Pome runs packages as well; what other programs look for is "
                   "often the compiled form. A folder of packages becomes a folder of compiled models. Files beside the "
                   "model, as a tokenizer, are carried over.",
    .options = options,
    .examples = examples,
    .n_operands_min = 2,
    .n_operands_max = 2,
    .args_size = sizeof(compile_args),
    .set_defaults = set_defaults,
    .run = run,
};

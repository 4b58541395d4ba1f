/* `pome convert`: checkpoint to package. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "convert_check.h"
#include "pome/convert.h"
#include "verbs.h"

typedef struct convert_args {
    common_args common;
    int quantize, names, search, target, precision, states, palette, granularity, chunk_style;
    const char *name;
    int64_t chunks;
    int64_t block, context, group;
    option_list keep;
    bool resume, force, dry_run, no_check;
} convert_args;

static void set_defaults(void *opaque)
{
    convert_args *args = opaque;
    args->block = args->palette = args->granularity = -1; /* not given */
}

#define AT(member) offsetof(convert_args, member)
static const option options[] = {
    {"quantize", 0, NULL, OPTION_CHOICE, "auto|none|int8|int4|keep|uint8|uint4|lut1|lut2|lut3|lut4|lut6|lut8",
     AT(quantize), 0, 0, false,
     "Weights: fp16 (none), int8 or int4 with a scale per block, uint8 or uint4 with an offset too, indices into a palette "
     "(lut1 to lut8), or a GGUF file's own codes (keep); auto keeps what is quantized and makes int4 of the rest, int8 for "
     "iOS16, fp32 with --precision fp32 (auto)"},
    {"block-size", 0, NULL, OPTION_INT, "N", AT(block), 0, 65536, false,
     "Weights that share a scale: 16, 32, 64, 128, or 0 for a whole row (32; with iOS16: 0)"},
    {"palette", 0, NULL, OPTION_CHOICE, "kmeans|uniform", AT(palette), 0, 0, false,
     "Entries of palettes: for the least error, or evenly between the least and the largest weight (kmeans)"},
    {"granularity", 0, NULL, OPTION_CHOICE, "per-tensor|per-grouped-channel", AT(granularity), 0, 0, false,
     "Weights that share a palette: all of a tensor, or --group-size rows (per-tensor)"},
    {"group-size", 0, NULL, OPTION_INT, "N", AT(group), 1, 1048576, false,
     "Rows that share a palette, with --granularity per-grouped-channel (32)"},
    {"context", 0, NULL, OPTION_INT, "N", AT(context), 2, 1048576, false, "Tokens that the cache holds (2048; llm-cli chunks: 512)"},
    {"keep", 0, NULL, OPTION_LIST, "KIND=TYPE", AT(keep), 0, 0, false,
     "Another type (fp16, int8, lut4, ...) for some weights (embedding, head, attention, mlp): embedding,head=int8"},
    {"quantize-search", 0, NULL, OPTION_CHOICE, "rule|mse", AT(search), 0, 0, false,
     "How scales are chosen: from the largest weight, as coremltools does, or for the least error (rule)"},
    {"target", 0, NULL, OPTION_CHOICE, "iOS18|iOS16", AT(target), 0, 0, false,
     "System that the package is for: with iOS16 there is no cache, weights are fp16 or int8 (iOS18)"},
    {"precision", 0, NULL, OPTION_CHOICE, "fp16|fp32", AT(precision), 0, 0, false,
     "Constants, arithmetic and logits; fp32 has no cache and no quantized weights (fp16)"},
    {"states", 0, NULL, OPTION_CHOICE, "stacked|per-layer", AT(states), 0, 0, false,
     "The cache: keyCache and valueCache of all layers, or keyCache_0, valueCache_0, ... (stacked)"},
    {"chunks", 0, NULL, OPTION_INT, "N", AT(chunks), 1, 4096, false,
     "Write a set: OUT is a folder of packages, N of them with layers, one before and one after them"},
    {"chunk-style", 0, NULL, OPTION_CHOICE, "stateful|llm-cli", AT(chunk_style), 0, 0, false,
     "With --chunks: states in each package, or windows of 64 ids with keys and values as inputs and outputs, as "
     "coreml-llm-cli runs them (stateful)"},
    {"model-name", 0, NULL, OPTION_TEXT, "OWNER/MODEL", AT(name), 0, 0, false,
     "Repository of the model, for the package's metadata (what the source says)"},
    {"names", 0, NULL, OPTION_CHOICE, "apple|snake", AT(names), 0, 0, false,
     "Names of inputs and states: inputIds, causalMask, ... or input_ids, causal_mask, ... (apple)"},
    {"resume", 0, NULL, OPTION_FLAG, NULL, AT(resume), 0, 0, false, "Go on with what an interrupted conversion left"},
    {"force", 'f', NULL, OPTION_FLAG, NULL, AT(force), 0, 0, false, "Replace what is at OUT"},
    {"dry-run", 0, NULL, OPTION_FLAG, NULL, AT(dry_run), 0, 0, false, "Say what would be written, write nothing"},
    {"no-check", 0, NULL, OPTION_FLAG, NULL, AT(no_check), 0, 0, false,
     "Do not run the package once after writing it"},
    OPTIONS_OUTPUT(convert_args),
    {0},
};

static const char *const examples[] = {
    "pome convert SmolLM2-135M-Instruct/ smollm2.mlpackage", "a folder with config.json and safetensors to int4",
    "pome convert model-Q4_0.gguf model.mlpackage", "a GGUF file, its codes and scales kept",
    "pome convert folder/ out.mlpackage --quantize int4 --keep embedding,head=int8",
    "int4 with an int8 embedding and head",
    "pome convert folder/ llama/ --chunks 4", "llama/llama_chunk1.mlpackage to llama_chunk6.mlpackage", NULL,
};

/* ---- options ---- */

/* "embedding,head=int8" */
static bool read_keep(pome_convert_opts *opts, char *text)
{
    char *type = strchr(text, '=');
    if (!type)
        return false;
    *type++ = '\0';
    for (char *kind = strtok(text, ","); kind; kind = strtok(NULL, ",")) {
        if (strcmp(kind, "embedding") == 0)
            opts->embedding = type;
        else if (strcmp(kind, "head") == 0)
            opts->head = type;
        else if (strcmp(kind, "attention") == 0)
            opts->attention = type;
        else if (strcmp(kind, "mlp") == 0)
            opts->mlp = type;
        else
            return false;
    }
    return true;
}

/* Fills opts; `texts` are copies that it points into. */
static bool read_options(pome_convert_opts *opts, const convert_args *args, char **texts)
{
    static const pome_quantize quantize[] = {POME_QUANTIZE_DEFAULT, POME_QUANTIZE_NONE, POME_QUANTIZE_INT8,
                                             POME_QUANTIZE_INT4,    POME_QUANTIZE_KEEP, POME_QUANTIZE_UINT8,
                                             POME_QUANTIZE_UINT4,   POME_QUANTIZE_LUT1, POME_QUANTIZE_LUT2,
                                             POME_QUANTIZE_LUT3,    POME_QUANTIZE_LUT4, POME_QUANTIZE_LUT6,
                                             POME_QUANTIZE_LUT8};
    pome_convert_opts_default(opts);
    opts->quantize = quantize[args->quantize];
    opts->block = args->block;
    opts->palette = args->palette < 0    ? POME_PALETTE_DEFAULT
                    : args->palette == 1 ? POME_PALETTE_UNIFORM
                                         : POME_PALETTE_KMEANS;
    opts->group_rows = args->granularity == 1 ? (args->group ? args->group : 32) : args->granularity;
    opts->context = args->context;
    opts->target = args->target == 1 ? POME_TARGET_IOS16 : POME_TARGET_IOS18;
    opts->precision = args->precision == 1 ? POME_PRECISION_FP32 : POME_PRECISION_FP16;
    opts->states = args->states == 1 ? POME_STATES_PER_LAYER : POME_STATES_STACKED;
    opts->n_chunks = args->chunks;
    opts->chunk_style = args->chunk_style == 1 ? POME_CHUNKS_LLM_CLI : POME_CHUNKS_STATEFUL;
    opts->name = args->name;
    opts->snake_names = args->names == 1;
    opts->search = args->search == 1;
    opts->force = args->force;
    opts->resume = args->resume;
    opts->dry_run = args->dry_run;
    if (args->group && args->granularity != 1) {
        fprintf(stderr, "pome convert: --group-size belongs to --granularity per-grouped-channel, with --quantize lut1, lut2, "
                        "lut3, lut4, lut6 or lut8\n");
        return false;
    }
    for (size_t i = 0; i < args->keep.n; i++) {
        texts[i] = strdup(args->keep.items[i]);
        if (!texts[i] || !read_keep(opts, texts[i])) {
            fprintf(stderr, "pome convert: --keep %s: wanted KIND=TYPE, as embedding=int8 or embedding,head=fp16\n",
                    args->keep.items[i]);
            return false;
        }
    }
    return true;
}

/* ---- progress ---- */

typedef struct progress {
    const common_args *common;
    double start, shown;
    bool is_shown;
} progress;

static bool show_progress(void *arg, const char *tensor, uint64_t done, uint64_t total)
{
    progress *p = arg;
    double now = now_s(), spent = now - p->start;
    if (!p->common->quiet && isatty(STDERR_FILENO) && now - p->shown > 0.2 && spent > 0.3) {
        double rate = (double)done / spent;
        fprintf(stderr, "\r%3.0f %%  %.0f of %.0f MB, %.0f MB/s, %.0f s left  %.40s\033[K",
                100.0 * (double)done / (double)(total ? total : 1), (double)done / 1e6, (double)total / 1e6, rate / 1e6,
                (double)(total - done) / (rate > 0 ? rate : 1), tensor);
        p->shown = now;
        p->is_shown = true;
    }
    return !interrupt_happened();
}

/* ---- the verb ---- */

static int print_report(const convert_args *args, const char *out, const pome_convert_report *r, double seconds)
{
    if (args->common.json)
        return print_json(json_pack(
            "{s:o, s:s, s:s, s:s, s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f}", "package",
            json_text(out),
            "architecture", r->architecture, "quantize", r->quantize, "tokenizer", r->tokenizer, "tied_head", r->is_tied,
            "dry_run", args->dry_run, "parameters", (json_int_t)r->n_parameters, "tensors", (json_int_t)r->n_tensors,
            "packages", (json_int_t)r->n_packages, "layers", (json_int_t)r->n_layers, "context", (json_int_t)r->context,
            "vocabulary", (json_int_t)r->n_vocab,
            "source_bytes", (json_int_t)r->source_bytes, "weights_bytes", (json_int_t)r->weights_bytes, "worst_steps",
            r->worst_steps, "beyond_steps", r->beyond_steps, "seconds", seconds));
    printf("%s%s\n", out, args->dry_run ? " (not written)" : "");
    if (r->n_packages > 1)
        printf("  packages      %u\n", (unsigned)r->n_packages);
    printf("  architecture  %s, %lld layers, %llu parameters in %u tensors\n", r->architecture, (long long)r->n_layers,
           (unsigned long long)r->n_parameters, (unsigned)r->n_tensors);
    printf("  weights       %s, %.1f MB (source %.1f MB)%s\n", r->quantize, (double)r->weights_bytes / 1e6,
           (double)r->source_bytes / 1e6, r->is_tied ? ", the embedding is the head" : "");
    if (r->worst_steps > 0)
        printf("  difference    at most %.4f of a step from the source's values, %.4f where it is more than rounding to fp16\n",
               r->worst_steps, r->beyond_steps);
    printf("  context       %lld tokens, vocabulary of %lld\n", (long long)r->context, (long long)r->n_vocab);
    if (!args->dry_run)
        printf("  tokenizer     %s\n", r->tokenizer[0] ? r->tokenizer : "none");
    if (!args->dry_run)
        printf("  time          %.1f s, %.0f MB/s\n", seconds, (double)r->source_bytes / 1e6 / (seconds > 0 ? seconds : 1));
    return finish_output(0);
}

static pome_status check(const convert_args *args, const char *out, const pome_convert_report *r, pome_error *err)
{
    if (args->chunks)
        return check_set(out, (uint32_t)args->chunks + 2, r->n_vocab, &args->common, err);
    return check_package(out, &args->common, err);
}

static int convert(const convert_args *args, const pome_convert_opts *opts, const char *source, const char *out)
{
    pome_error err = {0};
    pome_convert_report report;
    progress shown = {.common = &args->common, .start = now_s()};
    pome_convert_opts with_progress = *opts;
    with_progress.progress = show_progress;
    with_progress.progress_arg = &shown;
    listen_to_log(&args->common);
    interrupt_catch(NULL, NULL);
    pome_status status = pome_convert(source, out, &with_progress, &report, &err);
    interrupt_release();
    if (shown.is_shown)
        fputs("\r\033[K", stderr);
    if (status == POME_ERR_CANCELLED) {
        note(&args->common, "stopped; --resume goes on from here");
        return EXIT_INTERRUPTED;
    }
    if (status != POME_OK)
        return fail_with(&err);
    double seconds = now_s() - shown.start;
    if (!args->dry_run && !args->no_check && check(args, out, &report, &err) != POME_OK)
        return fail_text("%s was written, but does not pass the check: %s", out, err.message);
    return print_report(args, out, &report, seconds);
}

static int run(void *opaque, const char **operands, int n_operands)
{
    const convert_args *args = opaque;
    pome_convert_opts opts;
    (void)n_operands;
    char **texts = calloc(args->keep.n + 1, sizeof *texts);
    if (!texts)
        return fail_text("out of memory");
    int status = read_options(&opts, args, texts) ? convert(args, &opts, operands[0], operands[1]) : EXIT_USAGE;
    for (size_t i = 0; i < args->keep.n; i++)
        free(texts[i]);
    free(texts);
    return status;
}

const verb verb_convert = {
    .name = "convert",
    .summary = "checkpoint (safetensors, GGUF) to package",
    .operands = "SOURCE OUT",
    .description = "Makes a Core ML package of a language model's checkpoint: a Hugging Face folder (config.json, "
                   "safetensors, tokenizer) or a GGUF file. The package keeps its cache as a state (iOS 18, macOS 15) and "
                   "carries the tokenizer. Memory stays small, whatever the size of the model. Architectures: Llama "
                   "(also SmolLM2), Mistral, Qwen2, Qwen3, Gemma 2 and 3 (text), Phi-3, OpenELM, GPT-2.",
    .options = options,
    .examples = examples,
    .n_operands_min = 2,
    .n_operands_max = 2,
    .args_size = sizeof(convert_args),
    .set_defaults = set_defaults,
    .run = run,
};

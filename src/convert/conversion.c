#include "pome/convert.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "convert/carry.h"
#include "convert/chunks.h"
#include "convert/lm_window.h"

/* What the package takes beyond the weights: model file, tokenizer, room for the file system. */
#define OTHER_BYTES ((uint64_t)32 << 20)
enum { CONTEXT_DEFAULT = 2048 };

void pome_convert_opts_default(pome_convert_opts *opts)
{
    *opts = (pome_convert_opts){.size = sizeof *opts, .block = -1, .group_rows = -1};
}

/* ---- options ---- */

static bool is_before_ios18(const pome_convert_opts *o)
{
    return o->target == POME_TARGET_IOS16;
}

/* What a quantized GGUF file or a checkpoint becomes if nothing is said. */
static pome_quantize default_quantize(const pome_checkpoint *c, const pome_convert_opts *o)
{
    if (o->precision == POME_PRECISION_FP32)
        return POME_QUANTIZE_NONE;
    if (is_before_ios18(o))
        return POME_QUANTIZE_INT8;
    return c->is_quantized ? POME_QUANTIZE_KEEP : POME_QUANTIZE_INT4;
}

/* What is said and would change nothing is more likely a mistake about what the weights become. */
static pome_status check_details(const pome_lm_graph *b, const pome_convert_opts *o, pome_error *err)
{
    const pome_encoding_wish *all[] = {&b->wish, &b->embedding_wish, &b->head_wish, &b->attention_wish, &b->mlp_wish};
    bool has_blocks = false, has_palettes = false;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        has_blocks |= all[i]->form == POME_FORM_SYMMETRIC || all[i]->form == POME_FORM_ASYMMETRIC;
        has_palettes |= all[i]->form == POME_FORM_PALETTE;
    }
    const char *blocks = !has_blocks && o->block >= 0 ? "--block-size" : NULL;
    const char *palettes = has_palettes                          ? NULL
                           : o->palette != POME_PALETTE_DEFAULT ? "--palette"
                           : o->group_rows >= 0                 ? "--granularity"
                                                                : NULL;
    if (!blocks && !palettes)
        return POME_OK;
    char text[96];
    pome_encoding_wish_describe(text, sizeof text, &b->wish, b->real);
    return pome_fail(err, POME_ERR_ARG, "%s does not apply to weights of this form: %s; it belongs to --quantize %s",
                     blocks ? blocks : palettes, text,
                     blocks ? "int8, int4, uint8 and uint4" : "lut1, lut2, lut3, lut4, lut6 and lut8");
}

static pome_status check_wishes(const pome_lm_graph *b, const pome_convert_opts *o, pome_error *err)
{
    POME_TRY(pome_encoding_wish_check("weights", &b->wish, o, err));
    POME_TRY(pome_encoding_wish_check("embedding", &b->embedding_wish, o, err));
    POME_TRY(pome_encoding_wish_check("head", &b->head_wish, o, err));
    POME_TRY(pome_encoding_wish_check("attention", &b->attention_wish, o, err));
    POME_TRY(pome_encoding_wish_check("mlp", &b->mlp_wish, o, err));
    return check_details(b, o, err);
}

static pome_status set_wishes(pome_lm_graph *b, const pome_convert_opts *o, pome_error *err)
{
    const pome_checkpoint *c = b->checkpoint;
    pome_quantize q = o->quantize;
    if (q == POME_QUANTIZE_DEFAULT)
        q = default_quantize(c, o);
    if (q == POME_QUANTIZE_KEEP && !c->is_gguf)
        return pome_fail(err, POME_ERR_ARG, "only the quantization of a GGUF file can be kept");
    POME_TRY(pome_encoding_wish_set(&b->wish, q, o, err));
    b->embedding_wish = b->head_wish = b->attention_wish = b->mlp_wish = b->wish;
    POME_TRY(pome_encoding_wish_named(&b->embedding_wish, o->embedding, o, err));
    POME_TRY(pome_encoding_wish_named(&b->attention_wish, o->attention, o, err));
    POME_TRY(pome_encoding_wish_named(&b->mlp_wish, o->mlp, o, err));
    POME_TRY(pome_encoding_wish_named(&b->head_wish, o->head, o, err));
    return check_wishes(b, o, err);
}

static bool has_window(const pome_convert_opts *o)
{
    return o->n_chunks > 0 && o->chunk_style == POME_CHUNKS_LLM_CLI;
}

static pome_lm_cache cache_of(const pome_convert_opts *o)
{
    if (is_before_ios18(o) || o->precision == POME_PRECISION_FP32 || has_window(o))
        return POME_LM_CACHE_NONE;
    return o->states == POME_STATES_PER_LAYER ? POME_LM_CACHE_PER_LAYER : POME_LM_CACHE_STACKED;
}

static pome_status check_chunks(const pome_convert_opts *o, pome_error *err)
{
    if (o->n_chunks < 0)
        return pome_fail(err, POME_ERR_ARG, "%" PRId64 " chunks", o->n_chunks);
    if (o->n_chunks == 0)
        return POME_OK;
    if (o->precision == POME_PRECISION_FP32)
        return pome_fail(err, POME_ERR_ARG, "a set of chunks is fp16: it keeps keys and values");
    if (!has_window(o) && is_before_ios18(o))
        return pome_fail(err, POME_ERR_ARG, "iOS 16 has no states: for it, --chunk-style llm-cli is possible");
    if (has_window(o) && o->context != 0 && o->context != POME_LM_WINDOW_CONTEXT)
        return pome_fail(err, POME_ERR_ARG, "--chunk-style llm-cli has a context of %d, not of %" PRId64,
                         POME_LM_WINDOW_CONTEXT, o->context);
    if (has_window(o) && o->snake_names)
        return pome_fail(err, POME_ERR_ARG, "--chunk-style llm-cli has names of its own");
    return POME_OK;
}

static pome_status check_options(const pome_convert_opts *o, const char *out, pome_error *err)
{
    size_t len = strlen(out);
    while (len > 1 && out[len - 1] == '/')
        len--;
    bool is_package = len > 10 && memcmp(out + len - 10, ".mlpackage", 10) == 0;
    if (o->size != sizeof *o)
        return pome_fail(err, POME_ERR_ARG, "pome_convert_opts has %zu bytes, wanted %zu", o->size, sizeof *o);
    if (o->n_chunks > 0 && is_package)
        return pome_fail(err, POME_ERR_ARG, "%s: a set of chunks is a folder of packages, its name does not end in .mlpackage",
                         out);
    if (o->n_chunks <= 0 && !is_package)
        return pome_fail(err, POME_ERR_ARG, "%s: a package's name ends in .mlpackage", out);
    if (o->context < 0 || o->context == 1 || o->context > 1 << 20)
        return pome_fail(err, POME_ERR_ARG, "a context of %" PRId64 ", wanted 2 to %d", o->context, 1 << 20);
    if (o->block < -1 || (o->block > 0 && o->block % 16 != 0))
        return pome_fail(err, POME_ERR_ARG, "blocks of %" PRId64 ", wanted a multiple of 16, or 0 for a scale per row",
                         o->block);
    if (o->states != POME_STATES_STACKED && cache_of(o) == POME_LM_CACHE_NONE)
        return pome_fail(err, POME_ERR_ARG, "%s has no states",
                         has_window(o) ? "--chunk-style llm-cli" : is_before_ios18(o) ? "an iOS 16 package" : "an fp32 package");
    if (o->group_rows < -1)
        return pome_fail(err, POME_ERR_ARG, "groups of %" PRId64 " rows", o->group_rows);
    return check_chunks(o, err);
}

/* Replacing a folder that the source is in would remove the source. */
static pome_status check_source_outside(const char *source, const char *out, const char *suffix, pome_error *err)
{
    char name[4096];
    size_t len = strlen(out);
    while (len > 1 && out[len - 1] == '/')
        len--;
    snprintf(name, sizeof name, "%.*s%s", (int)len, out, suffix);
    char *inner = realpath(source, NULL), *outer = realpath(name, NULL);
    size_t n = outer ? strlen(outer) : 0;
    bool is_inside = inner && outer && strncmp(inner, outer, n) == 0 && (inner[n] == '\0' || inner[n] == '/');
    free(inner);
    free(outer);
    if (is_inside)
        return pome_fail(err, POME_ERR_ARG, "%s: writing it would remove the source, %s: choose another name", name, source);
    return POME_OK;
}

/* ---- one conversion ---- */

typedef struct conversion {
    const pome_convert_opts *o;
    const char *source;
    pome_checkpoint *checkpoint;
    pome_lm_graph graph;         /* what all parts have in common */
    pome_convert_part *parts;    /* [n_parts] */
    uint32_t n_parts, n_planned;
    pome_mlpackage_writer output; /* of the package, or of the set's folder */
    bool has_output;
    pome_convert_report report;
} conversion;

/* Scaled rotary positions reach beyond those that the configuration counts. */
static int64_t context_of(const conversion *v)
{
    const pome_rope *rope = &v->checkpoint->config.rope;
    int64_t limit = v->checkpoint->config.n_positions, wanted = v->o->context ? v->o->context : CONTEXT_DEFAULT;
    double scaled = rope->factor > 1 ? (double)rope->original * rope->factor : 0;
    if (has_window(v->o))
        return POME_LM_WINDOW_CONTEXT;
    if (limit > 0 && scaled > (double)limit && scaled < 1e12)
        limit = (int64_t)scaled;
    if (limit > 0 && wanted > limit) {
        pome_log(POME_LOG_INFO, "the model is made for %" PRId64 " positions: that is the context", limit);
        return limit;
    }
    return wanted;
}

/* ---- planning ---- */

static pome_status list_parts(conversion *v, const char *out, pome_error *err)
{
    const pome_lm_graph *g = &v->graph;
    int64_t n = v->o->n_chunks;
    if (n > g->config->n_layers)
        return pome_fail(err, POME_ERR_ARG, "%" PRId64 " layers cannot make %" PRId64 " chunks", g->config->n_layers, n);
    v->n_parts = n == 0 ? 1 : (uint32_t)n + 2 + (has_window(v->o) ? 2 : 0);
    v->parts = POME_NEW_ARRAY(v->checkpoint->arena, pome_convert_part, v->n_parts);
    if (!v->parts)
        return pome_fail_nomem(err, 0, "the parts");
    memset(v->parts, 0, v->n_parts * sizeof *v->parts);
    for (uint32_t i = 0; i < v->n_parts; i++)
        v->parts[i].graph = *g;
    return n == 0 ? POME_OK : pome_chunks_list(v->parts, n, out, v->checkpoint->arena, err);
}

static void fill_report(conversion *v)
{
    const pome_checkpoint *c = v->checkpoint;
    pome_convert_report *r = &v->report;
    snprintf(r->architecture, sizeof r->architecture, "%s", c->config.architecture);
    r->source_bytes = c->source_bytes;
    r->n_layers = c->config.n_layers;
    r->context = v->graph.context;
    r->n_vocab = c->n_vocab;
    r->is_tied = !c->has_head;
    r->n_packages = v->n_parts;
    for (uint32_t k = 0; k < v->n_parts; k++) {
        const pome_weight_plan *plan = &v->parts[k].plan;
        r->weights_bytes += plan->n_jobs ? plan->layout.end : 0;
        for (uint32_t i = 0; i < plan->n_jobs; i++) {
            const pome_weight_job *job = &plan->jobs[i];
            r->n_tensors += job->table == NULL;
            r->n_parameters += job->table ? 0 : (uint64_t)job->weight.n_rows * (uint64_t)job->weight.n_cols;
        }
    }
}

static pome_status plan_all(conversion *v, const char *out, pome_error *err)
{
    POME_TRY(pome_checkpoint_open(&v->checkpoint, v->source, err));
    v->graph = (pome_lm_graph){.checkpoint = v->checkpoint, .config = &v->checkpoint->config, .context = context_of(v),
                               .opset = is_before_ios18(v->o) ? POME_OPSET_IOS16 : POME_OPSET_IOS18,
                               .real = v->o->precision == POME_PRECISION_FP32 ? POME_DTYPE_F32 : POME_DTYPE_F16,
                               .cache = cache_of(v->o), .has_window = has_window(v->o), .name = v->o->name,
                               .n_layers = v->checkpoint->config.n_layers, .snake_names = v->o->snake_names};
    if (has_window(v->o))
        POME_TRY(pome_lm_window_check(v->graph.config, err));
    POME_TRY(set_wishes(&v->graph, v->o, err));
    POME_TRY(list_parts(v, out, err));
    pome_encoding_wish_describe(v->report.quantize, sizeof v->report.quantize, &v->graph.wish, v->graph.real);
    for (; v->n_planned < v->n_parts; v->n_planned++)
        POME_TRY(pome_convert_part_plan(&v->parts[v->n_planned], v->report.quantize, err));
    fill_report(v);
    return POME_OK;
}

/* ---- writing ---- */

/* Equal for equal results: the model files say what goes where, the source what is in it. */
static uint64_t fingerprint_of(const conversion *v)
{
    const pome_checkpoint *c = v->checkpoint;
    uint64_t h = POME_HASH_START;
    for (uint32_t i = 0; i < v->n_parts; i++)
        h = pome_hash_bytes(h, v->parts[i].model, v->parts[i].model_len);
    h = pome_hash_bytes(h, &c->source_bytes, sizeof c->source_bytes);
    if (c->gguf.mapping)
        h = pome_hash_file_time(h, pome_mapping_path(c->gguf.mapping));
    for (uint32_t i = 0; i < c->tensors.n_mappings; i++)
        h = pome_hash_file_time(h, pome_mapping_path(c->tensors.mappings[i]));
    const int32_t how[2] = {v->o->search, (int32_t)v->graph.wish.palette};
    return pome_hash_bytes(h, how, sizeof how);
}

static uint64_t bytes_needed(const conversion *v)
{
    uint64_t sum = OTHER_BYTES;
    for (uint32_t i = 0; i < v->n_parts; i++)
        sum += v->parts[i].plan.layout.end + v->parts[i].model_len;
    return sum;
}

static pome_status carry_tokenizer(conversion *v, pome_error *err)
{
    v->has_output = true;
    POME_TRY(pome_carry_tokenizer(&v->output, v->checkpoint, v->report.tokenizer, sizeof v->report.tokenizer, err));
    if (!v->report.tokenizer[0])
        pome_log(POME_LOG_WARN, "%s has no tokenizer: the package runs with token ids only", v->source);
    return POME_OK;
}

static pome_status write_package(conversion *v, const char *out, pome_weight_writing *to, pome_error *err)
{
    POME_TRY(pome_mlpackage_writer_open(&v->output, out, bytes_needed(v), v->o->force, v->o->resume, v->checkpoint->arena,
                                        err));
    POME_TRY(carry_tokenizer(v, err));
    return pome_convert_part_write(&v->parts[0], &v->output, fingerprint_of(v), v->o->resume, to, err);
}

/* One package of a set, made in the set's work folder as it would be elsewhere. */
static pome_status write_part(const conversion *v, const pome_convert_part *part, uint64_t fingerprint,
                              pome_weight_writing *to, pome_error *err)
{
    pome_arena *arena = v->checkpoint->arena;
    pome_mlpackage_writer package;
    const char *path = pome_arena_printf(arena, "%s/%s.mlpackage", v->output.work_path, part->name);
    if (!path)
        return pome_fail_nomem(err, 0, "a path");
    POME_TRY(pome_mlpackage_writer_open(&package, path, 0, true, true, arena, err));
    pome_status status = pome_convert_part_write(part, &package, fingerprint, true, to, err);
    if (status == POME_OK)
        status = pome_mlpackage_writer_commit(&package, err);
    pome_mlpackage_writer_close(&package);
    return status;
}

static pome_status write_set(conversion *v, const char *out, pome_weight_writing *to, pome_error *err)
{
    pome_journal journal = {.fd = -1};
    uint64_t fingerprint = fingerprint_of(v);
    pome_status status = pome_chunks_open(&v->output, &journal, out, bytes_needed(v), fingerprint, v->n_parts, v->o,
                                          v->checkpoint->arena, err);
    if (status == POME_OK)
        status = carry_tokenizer(v, err);
    to->worst.steps = journal.worst_steps;
    for (uint32_t i = 0; i < v->n_parts && status == POME_OK; i++) {
        if (i < journal.n_done) {
            pome_convert_part_skip(&v->parts[i], to);
            continue;
        }
        status = write_part(v, &v->parts[i], fingerprint, to, err);
        if (status == POME_OK)
            status = pome_journal_note(&journal, i + 1, to->worst.steps, err);
    }
    pome_journal_close(&journal);
    return status;
}

static pome_status write_all(conversion *v, const char *out, pome_error *err)
{
    pome_weight_writing to = {.progress = v->o->progress, .progress_arg = v->o->progress_arg};
    for (uint32_t i = 0; i < v->n_parts; i++)
        to.total_bytes += v->parts[i].plan.source_bytes;
    POME_TRY(pome_pool_create(&to.pool, 0, err));
    pome_status status = v->o->n_chunks ? write_set(v, out, &to, err) : write_package(v, out, &to, err);
    pome_pool_destroy(&to.pool);
    v->report.worst_steps = to.worst.steps;
    v->report.beyond_steps = to.worst.beyond;
    return status == POME_OK ? pome_mlpackage_writer_commit(&v->output, err) : status;
}

pome_status pome_convert(const char *source, const char *out, const pome_convert_opts *opts, pome_convert_report *report,
                         pome_error *err)
{
    pome_convert_opts defaults;
    pome_convert_opts_default(&defaults);
    conversion v = {.o = opts ? opts : &defaults, .source = source, .output = {.lock_fd = -1}};
    POME_TRY(check_options(v.o, out, err));
    if (!v.o->dry_run && !v.o->force && pome_path_exists(out))
        return pome_fail(err, POME_ERR_ARG, "%s exists: choose another name, or --force replaces it", out);
    POME_TRY(check_source_outside(source, out, "", err));
    POME_TRY(check_source_outside(source, out, ".partial", err));
    pome_status status = plan_all(&v, out, err);
    if (status == POME_OK && !v.o->dry_run)
        status = write_all(&v, out, err);
    /* What was stopped on request may be resumed, and what was once resumed is worth keeping. */
    if (status != POME_OK && status != POME_ERR_CANCELLED && v.has_output && !v.o->resume)
        pome_mlpackage_writer_discard(&v.output);
    pome_mlpackage_writer_close(&v.output);
    if (status == POME_OK && report)
        *report = v.report;
    for (uint32_t i = 0; i < v.n_parts && v.parts; i++)
        pome_convert_part_destroy(&v.parts[i]);
    pome_checkpoint_close(&v.checkpoint);
    return status;
}

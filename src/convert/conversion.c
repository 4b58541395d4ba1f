#include "pome/convert.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "convert/carry.h"
#include "convert/journal.h"
#include "convert/lm_graph.h"
#include "mil/save.h"

/* What the package takes beyond the weights: model file, tokenizer, room for the file system. */
#define OTHER_BYTES ((uint64_t)32 << 20)

void pome_convert_opts_default(pome_convert_opts *opts)
{
    *opts = (pome_convert_opts){.size = sizeof *opts, .block = -1, .context = 2048};
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

static pome_status check_wishes(const pome_lm_graph *b, const pome_convert_opts *o, pome_error *err)
{
    POME_TRY(pome_encoding_wish_check("weights", &b->wish, o, err));
    POME_TRY(pome_encoding_wish_check("embedding", &b->embedding_wish, o, err));
    POME_TRY(pome_encoding_wish_check("head", &b->head_wish, o, err));
    POME_TRY(pome_encoding_wish_check("attention", &b->attention_wish, o, err));
    return pome_encoding_wish_check("mlp", &b->mlp_wish, o, err);
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

static pome_lm_cache cache_of(const pome_convert_opts *o)
{
    if (is_before_ios18(o) || o->precision == POME_PRECISION_FP32)
        return POME_LM_CACHE_NONE;
    return o->states == POME_STATES_PER_LAYER ? POME_LM_CACHE_PER_LAYER : POME_LM_CACHE_STACKED;
}

static pome_status check_options(const pome_convert_opts *o, const char *out, pome_error *err)
{
    size_t len = strlen(out);
    while (len > 1 && out[len - 1] == '/')
        len--;
    if (o->size != sizeof *o)
        return pome_fail(err, POME_ERR_ARG, "pome_convert_opts has %zu bytes, wanted %zu", o->size, sizeof *o);
    if (len <= 10 || memcmp(out + len - 10, ".mlpackage", 10) != 0)
        return pome_fail(err, POME_ERR_ARG, "%s: a package's name ends in .mlpackage", out);
    if (o->context < 1 || o->context > 1 << 20)
        return pome_fail(err, POME_ERR_ARG, "a context of %" PRId64 ", wanted 1 to %d", o->context, 1 << 20);
    if (o->block < -1 || (o->block > 0 && o->block % 16 != 0))
        return pome_fail(err, POME_ERR_ARG, "blocks of %" PRId64 ", wanted a multiple of 16, or 0 for a scale per row",
                         o->block);
    if (o->states != POME_STATES_STACKED && cache_of(o) == POME_LM_CACHE_NONE)
        return pome_fail(err, POME_ERR_ARG, "%s package has no states", is_before_ios18(o) ? "an iOS 16" : "an fp32");
    if (o->group_rows < 0)
        return pome_fail(err, POME_ERR_ARG, "groups of %" PRId64 " rows", o->group_rows);
    return POME_OK;
}

/* ---- one conversion ---- */

typedef struct conversion {
    const pome_convert_opts *o;
    pome_checkpoint *checkpoint;
    pome_program *program;
    pome_weight_plan plan;
    pome_lm_graph graph;
    pome_mlpackage_writer package;
    uint8_t *model; /* malloc'ed */
    size_t model_len;
    bool has_package;
    pome_convert_report report;
} conversion;

/* Scaled rotary positions reach beyond those that the configuration counts. */
static int64_t context_of(const conversion *v)
{
    const pome_rope *rope = &v->checkpoint->config.rope;
    int64_t limit = v->checkpoint->config.n_positions;
    double scaled = rope->factor > 1 ? (double)rope->original * rope->factor : 0;
    if (limit > 0 && scaled > (double)limit && scaled < 1e12)
        limit = (int64_t)scaled;
    if (limit > 0 && v->o->context > limit) {
        pome_log(POME_LOG_INFO, "the model is made for %" PRId64 " positions: that is the context", limit);
        return limit;
    }
    return v->o->context;
}

static void fill_report(conversion *v)
{
    const pome_checkpoint *c = v->checkpoint;
    pome_convert_report *r = &v->report;
    snprintf(r->architecture, sizeof r->architecture, "%s", c->config.architecture);
    r->weights_bytes = v->plan.layout.end;
    r->source_bytes = c->source_bytes;
    r->n_layers = c->config.n_layers;
    r->context = v->graph.context;
    r->n_vocab = c->n_vocab;
    r->is_tied = !c->has_head;
    for (uint32_t i = 0; i < v->plan.n_jobs; i++) {
        const pome_weight_job *job = &v->plan.jobs[i];
        r->n_tensors += job->table == NULL;
        r->n_parameters += job->table ? 0 : (uint64_t)job->weight.n_rows * (uint64_t)job->weight.n_cols;
    }
}

static pome_status plan_all(conversion *v, const char *source, pome_error *err)
{
    pome_model_info info;
    POME_TRY(pome_checkpoint_open(&v->checkpoint, source, err));
    v->program = pome_program_create(0);
    if (!v->program)
        return pome_fail_nomem(err, 0, "the program");
    v->plan.arena = v->program->arena;
    v->graph = (pome_lm_graph){.checkpoint = v->checkpoint, .config = &v->checkpoint->config, .context = context_of(v),
                               .opset = is_before_ios18(v->o) ? POME_OPSET_IOS16 : POME_OPSET_IOS18,
                               .real = v->o->precision == POME_PRECISION_FP32 ? POME_DTYPE_F32 : POME_DTYPE_F16,
                               .cache = cache_of(v->o), .n_layers = v->checkpoint->config.n_layers,
                               .snake_names = v->o->snake_names, .plan = &v->plan, .program = v->program};
    POME_TRY(set_wishes(&v->graph, v->o, err));
    POME_TRY(pome_lm_graph_build(&v->graph, err));
    pome_encoding_wish_describe(v->report.quantize, sizeof v->report.quantize, &v->graph.wish,
                                v->graph.real);
    POME_TRY(pome_lm_graph_describe(&v->graph, v->report.quantize, &info, err));
    fill_report(v);
    return pome_program_save(&v->model, &v->model_len, v->program, &info, err);
}

/* Equal for equal results: the model file says what goes where, the source what is in it. */
static uint64_t fingerprint_of(const conversion *v)
{
    const pome_checkpoint *c = v->checkpoint;
    uint64_t h = pome_hash_bytes(POME_HASH_START, v->model, v->model_len);
    h = pome_hash_bytes(h, &c->source_bytes, sizeof c->source_bytes);
    if (c->gguf.mapping)
        h = pome_hash_file_time(h, pome_mapping_path(c->gguf.mapping));
    for (uint32_t i = 0; i < c->tensors.n_mappings; i++)
        h = pome_hash_file_time(h, pome_mapping_path(c->tensors.mappings[i]));
    const int32_t how[2] = {v->o->search, (int32_t)v->o->palette};
    return pome_hash_bytes(h, how, sizeof how);
}

/* ---- writing ---- */

static pome_status write_jobs(conversion *v, const pome_blob_writer *w, pome_journal *journal, pome_error *err)
{
    pome_weight_writing to = {.writer = w, .progress = v->o->progress, .progress_arg = v->o->progress_arg,
                              .total_bytes = v->plan.source_bytes, .worst = {.steps = journal->worst_steps}};
    pome_status status = POME_OK;
    for (uint32_t i = 0; i < journal->n_done; i++)
        if (!v->plan.jobs[i].table)
            to.done_bytes += (uint64_t)v->plan.jobs[i].weight.n_rows * v->plan.jobs[i].weight.row_bytes;
    POME_TRY(pome_pool_create(&to.pool, 0, err));
    for (uint32_t i = journal->n_done; i < v->plan.n_jobs && status == POME_OK; i++) {
        status = pome_weight_job_write(&v->plan.jobs[i], &to, err);
        if (status == POME_OK)
            status = pome_journal_note(journal, i + 1, to.worst.steps, err);
    }
    pome_pool_destroy(&to.pool);
    v->report.worst_steps = to.worst.steps;
    v->report.beyond_steps = to.worst.beyond;
    return status;
}

static pome_status write_weights(conversion *v, pome_error *err)
{
    pome_blob_writer w = {.fd = -1};
    pome_journal journal = {.fd = -1};
    POME_TRY(pome_journal_open(&journal, v->package.journal_path, fingerprint_of(v), v->plan.n_jobs, v->o->resume, err));
    bool goes_on = journal.n_done > 0;
    pome_status status = POME_OK;
    if (!goes_on) /* before the weight file is emptied */
        status = pome_journal_note(&journal, 0, 0, err);
    if (status == POME_OK)
        status = pome_blob_writer_open(&w, v->package.weights_path, &v->plan.layout, goes_on, err);
    if (status == POME_OK)
        status = write_jobs(v, &w, &journal, err);
    if (status == POME_OK)
        status = pome_blob_writer_close(&w, err);
    pome_blob_writer_abandon(&w);
    pome_journal_close(&journal);
    return status;
}

static pome_status write_all(conversion *v, const char *source, const char *out, pome_error *err)
{
    uint64_t needed = v->plan.layout.end + v->model_len + OTHER_BYTES;
    POME_TRY(pome_mlpackage_writer_open(&v->package, out, needed, v->o->force, v->o->resume, v->checkpoint->arena, err));
    v->has_package = true;
    POME_TRY(pome_carry_tokenizer(&v->package, v->checkpoint, v->report.tokenizer, sizeof v->report.tokenizer, err));
    if (!v->report.tokenizer[0])
        pome_log(POME_LOG_WARN, "%s has no tokenizer: the package runs with token ids only", source);
    POME_TRY(write_weights(v, err));
    POME_TRY(pome_mlpackage_writer_finish_model(&v->package, (pome_bytes){v->model, v->model_len}, true, err));
    return pome_mlpackage_writer_commit(&v->package, err);
}

pome_status pome_convert(const char *source, const char *out, const pome_convert_opts *opts, pome_convert_report *report,
                         pome_error *err)
{
    pome_convert_opts defaults;
    pome_convert_opts_default(&defaults);
    conversion v = {.o = opts ? opts : &defaults};
    POME_TRY(check_options(v.o, out, err));
    if (!v.o->dry_run && !v.o->force && pome_path_exists(out))
        return pome_fail(err, POME_ERR_ARG, "%s exists: choose another name, or --force replaces it", out);
    pome_status status = plan_all(&v, source, err);
    if (status == POME_OK && !v.o->dry_run)
        status = write_all(&v, source, out, err);
    /* What was stopped on request may be resumed, and what was once resumed is worth keeping. */
    if (status != POME_OK && status != POME_ERR_CANCELLED && v.has_package && !v.o->resume)
        pome_mlpackage_writer_discard(&v.package);
    if (status == POME_OK && report)
        *report = v.report;
    free(v.model);
    pome_program_destroy(&v.program);
    pome_checkpoint_close(&v.checkpoint);
    return status;
}

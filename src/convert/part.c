#include "convert/part.h"

#include <stdlib.h>

#include "convert/journal.h"
#include "mil/save.h"

pome_status pome_convert_part_plan(pome_convert_part *part, const char *quantize, pome_error *err)
{
    pome_model_info info;
    part->program = pome_program_create(0);
    if (!part->program)
        return pome_fail_nomem(err, 0, "the program");
    part->plan.arena = part->program->arena;
    part->graph.plan = &part->plan;
    part->graph.program = part->program;
    POME_TRY(pome_lm_graph_build(&part->graph, err));
    POME_TRY(pome_lm_graph_describe(&part->graph, quantize, &info, err));
    return pome_program_save(&part->model, &part->model_len, part->program, &info, err);
}

void pome_convert_part_destroy(pome_convert_part *part)
{
    free(part->model);
    pome_program_destroy(&part->program);
}

static void skip_jobs(const pome_weight_plan *plan, uint32_t n, pome_weight_writing *to)
{
    for (uint32_t i = 0; i < n; i++)
        if (!plan->jobs[i].table)
            to->done_bytes += (uint64_t)plan->jobs[i].weight.n_rows * plan->jobs[i].weight.row_bytes;
}

void pome_convert_part_skip(const pome_convert_part *part, pome_weight_writing *to)
{
    skip_jobs(&part->plan, part->plan.n_jobs, to);
}

static pome_status write_jobs(const pome_weight_plan *plan, pome_journal *journal, pome_weight_writing *to, pome_error *err)
{
    skip_jobs(plan, journal->n_done, to);
    to->worst.steps = journal->worst_steps > to->worst.steps ? journal->worst_steps : to->worst.steps;
    for (uint32_t i = journal->n_done; i < plan->n_jobs; i++) {
        POME_TRY(pome_weight_job_write(&plan->jobs[i], to, err));
        POME_TRY(pome_journal_note(journal, i + 1, to->worst.steps, err));
    }
    return POME_OK;
}

static pome_status write_weights(const pome_convert_part *part, const pome_mlpackage_writer *package, uint64_t fingerprint,
                                 bool resume, pome_weight_writing *to, pome_error *err)
{
    pome_blob_writer w = {.fd = -1};
    pome_journal journal = {.fd = -1};
    POME_TRY(pome_journal_open(&journal, package->journal_path, fingerprint, part->plan.n_jobs, resume, err));
    bool goes_on = journal.n_done > 0;
    pome_status status = POME_OK;
    to->writer = &w;
    if (!goes_on) /* before the weight file is emptied */
        status = pome_journal_note(&journal, 0, 0, err);
    if (status == POME_OK)
        status = pome_blob_writer_open(&w, package->weights_path, &part->plan.layout, goes_on, err);
    if (status == POME_OK)
        status = write_jobs(&part->plan, &journal, to, err);
    if (status == POME_OK)
        status = pome_blob_writer_close(&w, err);
    pome_blob_writer_abandon(&w);
    pome_journal_close(&journal);
    return status;
}

pome_status pome_convert_part_write(const pome_convert_part *part, const pome_mlpackage_writer *package,
                                    uint64_t fingerprint, bool resume, pome_weight_writing *to, pome_error *err)
{
    bool has_weights = part->plan.n_jobs > 0;
    if (has_weights)
        POME_TRY(write_weights(part, package, fingerprint, resume, to, err));
    return pome_mlpackage_writer_finish_model(package, (pome_bytes){part->model, part->model_len}, has_weights, err);
}

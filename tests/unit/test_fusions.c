/* Every fusion against the same model without it, value by value: what both plans compute under one name must agree, to
 * the bit where the fusion keeps the arithmetic. Traced graphs come from tests/golden, converted ones from a checkpoint
 * that is converted here. */
#include <ftw.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/f16.h"
#include "passes/fusion.h"
#include "pome/convert.h"
#include "pome/inspect.h"
#include "pome/predictor.h"

#define GOLDEN POME_SOURCE_DIR "/tests/golden/"

enum { MAX_VALUES = 4000, TOKENS = 5 };

typedef struct seen {
    char *name;
    pome_tensor value; /* fp32 for floats */
} seen;

typedef struct record {
    seen values[MAX_VALUES];
    int n, n_compared;
    const struct record *reference; /* compare with this one, which has all names */
    double tolerance;               /* of the largest magnitude, through all layers; 0: bit for bit */
    bool was_rounded_apart;         /* a value held in halves came out as the neighbour of what was wanted */
    const char *what;
} record;

static const seen *find(const record *r, const char *name)
{
    for (int i = 0; i < r->n; i++)
        if (strcmp(r->values[i].name, name) == 0)
            return &r->values[i];
    return NULL;
}

/* A cache's new rows are fp32 in memory where they are rounded for a cache that is an output. */
static bool holds_halves(const float *v, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isnan(v[i]) && pome_f16_round(v[i]) != v[i])
            return false;
    return true;
}

/* Where an inexact fusion moves a value across the middle between two halves, a cache holds the neighbour. What is computed
 * from the cache afterwards differs by a few of those places (2^-11). A fusion that is wrong differs by far more. */
static void compare(record *r, const char *name, const pome_tensor *got, const pome_tensor *want, bool is_half)
{
    int64_t n = pome_tensor_count(want);
    if (pome_tensor_count(got) != n || got->dtype != POME_DTYPE_F32)
        fail_msg("%s: %s has %lld elements, wanted %lld", r->what, name, (long long)pome_tensor_count(got), (long long)n);
    const float *a = got->data, *b = want->data;
    double largest = 0;
    for (int64_t i = 0; i < n; i++)
        largest = fabs((double)b[i]) > largest ? fabs((double)b[i]) : largest; /* gcc 12 for AArch64 fails on fmax here */
    double allowed = r->tolerance > 0 && r->was_rounded_apart ? 2e-3 * largest : r->tolerance * largest;
    for (int64_t i = 0; i < n; i++) {
        double difference = fabs((double)a[i] - (double)b[i]);
        if (difference <= allowed || (isnan(a[i]) && isnan(b[i])))
            continue;
        if (r->tolerance > 0 && (is_half || (holds_halves(a, n) && holds_halves(b, n))) &&
            difference <= allowed + 0x1p-10 * fabs((double)b[i])) {
            r->was_rounded_apart = true;
            continue;
        }
        fail_msg("%s: %s at %lld is %.9g, was %.9g", r->what, name, (long long)i, (double)a[i], (double)b[i]);
    }
    r->n_compared++;
}

static void observe(void *arg, const pome_observed *o)
{
    record *r = arg;
    pome_tensor copy;
    if (!pome_dtype_is_float(o->value->dtype))
        return;
    assert_int_equal(pome_tensor_init(&copy, POME_DTYPE_F32, o->value->rank, o->value->shape, NULL), POME_OK);
    assert_int_equal(pome_tensor_copy(&copy, o->value, NULL), POME_OK);
    if (r->reference) {
        const seen *want = find(r->reference, o->name);
        if (want)
            compare(r, o->name, &copy, &want->value, o->value->dtype == POME_DTYPE_F16);
        pome_tensor_reset(&copy);
        return;
    }
    assert_true(r->n < MAX_VALUES);
    r->values[r->n++] = (seen){strdup(o->name), copy};
}

static void release(record *r)
{
    for (int i = 0; i < r->n; i++) {
        free(r->values[i].name);
        pome_tensor_reset(&r->values[i].value);
    }
    r->n = 0;
}

static void count_line(void *arg, const char *text, size_t len) /* the line that begins with "fused:" */
{
    char *line = arg;
    if (strlen(line) + len < 1000 && (line[0] || (len >= 6 && memcmp(text, "fused:", 6) == 0)) && !strchr(line, '\n'))
        strncat(line, text, len);
}

/* One prediction; `counts` gets how often each fusion was found. */
static void run_once(const char *path, const char *no_fuse, pome_numerics numerics, record *r, char *counts)
{
    pome_error err = {0};
    pome_model *model;
    pome_predictor *p;
    pome_state *state;
    pome_model_opts opts;
    pome_model_opts_default(&opts);
    opts.no_fuse = no_fuse;
    opts.n_threads = 2;
    opts.numerics = numerics;
    if (pome_model_open(&model, path, &opts, &err) != POME_OK || pome_predictor_create(&p, model, NULL, NULL, &err) ||
        pome_state_create(&state, model, NULL, &err))
        fail_msg("%s: %s", path, err.message);
    const pome_model_info *info = pome_model_describe(model);
    const pome_function_info *f = &info->functions[info->default_function];
    pome_tensor in[16];
    for (uint32_t i = 0; i < f->n_inputs; i++) {
        int64_t shape[POME_MAX_RANK];
        for (int32_t d = 0; d < f->inputs[i].rank; d++)
            shape[d] = f->inputs[i].is_ranged && f->inputs[i].range[d].max != f->inputs[i].range[d].min ? TOKENS
                                                                                                       : f->inputs[i].shape[d];
        bool is_float = pome_dtype_is_float(f->inputs[i].dtype);
        pome_dtype dtype = is_float ? POME_DTYPE_F32 : POME_DTYPE_I32;
        assert_int_equal(pome_tensor_init(&in[i], dtype, f->inputs[i].rank, shape, NULL), POME_OK);
        for (int64_t k = 0; k < pome_tensor_count(&in[i]); k++)
            if (is_float)
                ((float *)in[i].data)[k] = (float)(k * 37 % 19) * 0.1f - 1;
            else
                ((int32_t *)in[i].data)[k] = (int32_t)(k * 5 % 7);
        assert_int_equal(pome_predictor_set_input(p, i, &in[i], &err), POME_OK);
    }
    pome_predictor_observe(p, observe, r);
    if (pome_predictor_run(p, state, &err) != POME_OK)
        fail_msg("%s: %s", path, err.message);
    if (counts)
        assert_int_equal(pome_model_print_plan(model, info->default_function, count_line, counts, NULL), POME_OK);
    for (uint32_t i = 0; i < f->n_inputs; i++)
        pome_tensor_reset(&in[i]);
    pome_state_destroy(&state);
    pome_predictor_destroy(&p);
    pome_model_close(&model);
}

/* How many of a fusion the line "fused: cse 1, rms-norm 9, ..." tells of. */
static int count_of(const char *line, const char *name)
{
    char text[40];
    snprintf(text, sizeof text, " %s ", name);
    const char *at = strstr(line, text);
    return at ? atoi(at + strlen(text)) : -1;
}

/* All fusions but `name` as a list. */
static void others(char *list, size_t size, int fusion)
{
    list[0] = 0;
    for (int i = 0; i < POME_FUSION_COUNT; i++)
        if (i != fusion) {
            strncat(list, list[0] ? "," : "", size - strlen(list) - 1);
            strncat(list, pome_fusion_name((pome_fusion)i), size - strlen(list) - 1);
        }
}

static bool keeps_arithmetic(int fusion)
{
    return fusion != POME_FUSION_RMS_NORM && fusion != POME_FUSION_RESIDUAL && fusion != POME_FUSION_ATTENTION;
}

static record plain, fused; /* large */

static void check_model(const char *path)
{
    plain = (record){.what = path};
    run_once(path, "all", POME_NUMERICS_EXACT, &plain, NULL);
    for (int i = 0; i < POME_FUSION_COUNT; i++) {
        char list[400], what[600];
        others(list, sizeof list, i);
        snprintf(what, sizeof what, "%s, %s", path, pome_fusion_name((pome_fusion)i));
        fused = (record){.reference = &plain, .what = what, .tolerance = keeps_arithmetic(i) ? 0 : 1e-5};
        run_once(path, list, POME_NUMERICS_EXACT, &fused, NULL);
        assert_true(fused.n_compared > 0);
    }
    fused = (record){.reference = &plain, .what = path, .tolerance = 2e-5};
    run_once(path, NULL, POME_NUMERICS_EXACT, &fused, NULL);
    assert_true(fused.n_compared > 0);
    release(&plain);
    /* Activations in int8 are the same for layers that share them. */
    run_once(path, "all", POME_NUMERICS_FAST, &plain, NULL);
    fused = (record){.reference = &plain, .what = path};
    run_once(path, "rms-norm,residual,attention", POME_NUMERICS_FAST, &fused, NULL);
    release(&plain);
    /* Every operator's rounding counts: fusions that are left on change no bit. */
    run_once(path, "all", POME_NUMERICS_FP16, &plain, NULL);
    fused = (record){.reference = &plain, .what = path};
    run_once(path, NULL, POME_NUMERICS_FP16, &fused, NULL);
    release(&plain);
}

static void test_traced_graphs(void **unused)
{
    (void)unused;
    static const char *const paths[] = {GOLDEN "apple/int4-block32.mlpackage", GOLDEN "explicit-kv/static-int4.mlpackage",
                                        GOLDEN "snake/shift-fp16.mlpackage",
                                        GOLDEN "nocache/layer1-logits-fixed64-lut6.mlpackage",
                                        GOLDEN "chunks-lut4-split/tiny-llama_chunk2.mlpackage",
                                        GOLDEN "chunks-lut4-split/tiny-llama_chunk4.mlpackage"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        check_model(paths[i]);
}

/* Four layers: two norms each and one at the end, and so on. */
static void check_counts(const char *path, int n_layers)
{
    char line[1001] = "";
    fused = (record){.reference = &fused};
    run_once(path, NULL, POME_NUMERICS_EXACT, &fused, line);
    assert_int_equal(count_of(line, "rms-norm"), 2 * n_layers + 1);
    assert_int_equal(count_of(line, "rotary"), 2 * n_layers);
    assert_int_equal(count_of(line, "gated"), n_layers);
    assert_int_equal(count_of(line, "attention-rows"), n_layers);
    assert_int_equal(count_of(line, "residual"), 2 * n_layers);
    assert_int_equal(count_of(line, "gated-linear"), n_layers);
    assert_int_equal(count_of(line, "linears"), n_layers);
}

static void test_everything_is_found(void **unused)
{
    (void)unused;
    check_counts(GOLDEN "apple/int4-block32.mlpackage", 4);
    check_counts(GOLDEN "snake/shift-fp16.mlpackage", 4);
    check_counts(GOLDEN "explicit-kv/static-int4.mlpackage", 4);
}

/* Layers in channel-first order, heads repeated by tile, attention written out. */
static void test_channel_first_graph(void **unused)
{
    (void)unused;
    static const struct {
        const char *name;
        int n;
    } wanted[] = {{"rms-norm", 4},    {"rotary", 4},       {"gated", 2},   {"attention", 2},
                  {"conv-linear", 14}, {"gated-linear", 2}, {"linears", 2}, {"residual", 3}};
    char line[1001] = "";
    fused = (record){.reference = &fused};
    run_once(GOLDEN "chunks-lut4-split/tiny-llama_chunk2.mlpackage", NULL, POME_NUMERICS_EXACT, &fused, line);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        assert_int_equal(count_of(line, wanted[i].name), wanted[i].n);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path);
}

static void test_converted_graph(void **unused)
{
    (void)unused;
    char folder[] = "/tmp/pome_fusions_XXXXXX", path[64];
    pome_error err = {0};
    pome_convert_opts opts;
    pome_convert_report report;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/model.mlpackage", folder);
    pome_convert_opts_default(&opts);
    opts.context = 64;
    memset(&report, 0, sizeof report);
    if (pome_convert(GOLDEN "checkpoint", path, &opts, &report, &err) != POME_OK)
        fail_msg("%s", err.message);
    check_model(path);
    char line[1001] = "";
    fused = (record){.reference = &fused};
    run_once(path, NULL, POME_NUMERICS_EXACT, &fused, line);
    assert_true(count_of(line, "cse") > 0);
    assert_true(count_of(line, "rms-norm") >= 3 && count_of(line, "rms-norm") % 2 == 1);
    assert_int_equal(count_of(line, "rotary"), count_of(line, "residual"));
    assert_int_equal(2 * count_of(line, "gated"), count_of(line, "residual"));
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* The same weights as a set of windows. */
static void test_converted_windows(void **unused)
{
    (void)unused;
    char folder[] = "/tmp/pome_fusions_XXXXXX", path[96], set[64], line[1001] = "";
    pome_error err = {0};
    pome_convert_opts opts;
    pome_convert_report report;
    assert_non_null(mkdtemp(folder));
    snprintf(set, sizeof set, "%s/set", folder);
    pome_convert_opts_default(&opts);
    opts.n_chunks = 1;
    opts.chunk_style = POME_CHUNKS_LLM_CLI;
    memset(&report, 0, sizeof report);
    if (pome_convert(GOLDEN "checkpoint", set, &opts, &report, &err) != POME_OK)
        fail_msg("%s", err.message);
    snprintf(path, sizeof path, "%s/set_chunk2.mlpackage", set);
    check_model(path);
    fused = (record){.reference = &fused};
    run_once(path, NULL, POME_NUMERICS_EXACT, &fused, line);
    int n_layers = count_of(line, "attention");
    assert_true(n_layers > 0);
    assert_int_equal(count_of(line, "conv-linear"), 7 * n_layers);
    assert_int_equal(count_of(line, "gated-linear"), n_layers);
    assert_int_equal(count_of(line, "linears"), n_layers);
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void test_names(void **unused)
{
    (void)unused;
    uint32_t set = 7;
    pome_error err = {0};
    assert_int_equal(pome_fusions_parse(NULL, &set, &err), POME_OK);
    assert_int_equal(set, 0);
    assert_int_equal(pome_fusions_parse("rotary,cse", &set, &err), POME_OK);
    assert_int_equal(set, 1u << POME_FUSION_ROTARY | 1u << POME_FUSION_CSE);
    assert_int_equal(pome_fusions_parse("all", &set, &err), POME_OK);
    assert_int_equal(set, (1u << POME_FUSION_COUNT) - 1);
    assert_int_equal(pome_fusions_parse("rotary,rot", &set, &err), POME_ERR_ARG);
    assert_non_null(strstr(err.message, "'rot'"));
    assert_non_null(strstr(err.message, "rms-norm"));
    assert_int_equal(set, (1u << POME_FUSION_COUNT) - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_traced_graphs),
        cmocka_unit_test(test_everything_is_found),
        cmocka_unit_test(test_channel_first_graph),
        cmocka_unit_test(test_converted_graph),
        cmocka_unit_test(test_converted_windows),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

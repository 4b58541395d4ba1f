/* Windows narrowed to new columns: the same values as the whole program gives, column by column, with the columns before
 * them kept in states. And outputs bound to the caller's memory. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/f16.h"
#include "pome/predictor.h"
#include "runtime/model_columns.h"

#define CHUNK POME_SOURCE_DIR "/tests/golden/chunks-lut4-split/tiny-llama_chunk2.mlpackage"
enum { WINDOW = 64, CACHED = 448, CONTEXT = 512, HIDDEN = 64, HEAD = 16, KV = 32, N_NEW = 6 };

static uint16_t x[HIDDEN * WINDOW], cosines[HEAD * WINDOW], sines[HEAD * WINDOW], mask[WINDOW * CONTEXT],
    cache[4][KV * CACHED];

static void fill(uint16_t *v, size_t n, unsigned seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        v[i] = pome_f32_to_f16((float)(seed >> 9) / 4194304.0f - 1.0f);
    }
}

static void make_inputs(void)
{
    fill(x, HIDDEN * WINDOW, 1);
    fill(cosines, HEAD * WINDOW, 2);
    fill(sines, HEAD * WINDOW, 3);
    for (unsigned i = 0; i < 4; i++)
        fill(cache[i], KV * CACHED, 4 + i);
    for (size_t row = 0; row < WINDOW; row++)
        for (size_t c = 0; c < CONTEXT; c++)
            mask[row * CONTEXT + c] = pome_f32_to_f16(c > CACHED + row || c < 100 ? -1e4f : 0.0f);
}

static const pome_function_info *function_of(const pome_model *m)
{
    return &pome_model_describe(m)->functions[0];
}

static uint32_t input_at(const pome_model *m, const char *name)
{
    for (uint32_t i = 0; i < function_of(m)->n_inputs; i++)
        if (strcmp(function_of(m)->inputs[i].name, name) == 0)
            return i;
    fail_msg("no input %s", name);
    return 0;
}

static uint32_t output_at(const pome_model *m, const char *name)
{
    for (uint32_t i = 0; i < function_of(m)->n_outputs; i++)
        if (strcmp(function_of(m)->outputs[i].name, name) == 0)
            return i;
    fail_msg("no output %s", name);
    return 0;
}

static void set(pome_predictor *p, const pome_model *m, const char *name, const void *data, int32_t rank, const int64_t *shape)
{
    pome_tensor t = pome_tensor_borrow((void *)(uintptr_t)data, POME_DTYPE_F16, rank, shape);
    assert_int_equal(pome_predictor_set_input(p, input_at(m, name), &t, NULL), POME_OK);
}

static const char *const cache_names[] = {"k_cache_0", "v_cache_0", "k_cache_1", "v_cache_1"};

static void set_whole(pome_predictor *p, const pome_model *m)
{
    set(p, m, "x", x, 4, (const int64_t[]){1, HIDDEN, 8, 8});
    set(p, m, "cos", cosines, 2, (const int64_t[]){HEAD, WINDOW});
    set(p, m, "sin", sines, 2, (const int64_t[]){HEAD, WINDOW});
    set(p, m, "mask", mask, 4, (const int64_t[]){1, 1, WINDOW, CONTEXT});
    for (int i = 0; i < 4; i++)
        set(p, m, cache_names[i], cache[i], 4, (const int64_t[]){1, KV, 1, CACHED});
}

static pome_columns columns_of(const pome_model *m, pome_columns_input *inputs, pome_columns_cache *caches)
{
    static const char *const outputs[] = {"new_k_cache_0", "new_v_cache_0", "new_k_cache_1", "new_v_cache_1"};
    uint32_t n = 0;
    for (uint32_t i = 0; i < function_of(m)->n_inputs; i++) {
        const char *name = function_of(m)->inputs[i].name;
        if (!strstr(name, "cache"))
            inputs[n++] = (pome_columns_input){i, strcmp(name, "x") == 0 || strcmp(name, "mask") == 0 ? 2 : 1,
                                               strcmp(name, "x") == 0};
    }
    for (int i = 0; i < 4; i++)
        caches[i] = (pome_columns_cache){input_at(m, cache_names[i]), output_at(m, outputs[i])};
    return (pome_columns){.n_window = WINDOW, .inputs = inputs, .n_inputs = n, .caches = caches, .n_caches = 4,
                          .cache_dtype = POME_DTYPE_F32};
}

/* Columns [from, from + n) of every input, contiguous. */
static void take(uint16_t *to, const uint16_t *of, size_t rows, size_t from, size_t n)
{
    for (size_t r = 0; r < rows; r++)
        memcpy(to + r * n, of + r * WINDOW + from, n * sizeof *to);
}

static void check_column(const pome_tensor *whole, const pome_tensor *narrow, size_t from, size_t n)
{
    const uint16_t *a = whole->data, *b = narrow->data;
    for (size_t c = 0; c < HIDDEN; c++)
        for (size_t j = 0; j < n; j++) {
            float want = pome_f16_to_f32(a[c * WINDOW + from + j]), got = pome_f16_to_f32(b[c * n + j]);
            assert_true(fabsf(want - got) <= 2e-3f * (1 + fabsf(want)));
        }
}

static void run_columns(pome_model *m, pome_state *state, size_t from, size_t n, const pome_tensor *whole)
{
    static uint16_t some_x[HIDDEN * WINDOW], some_cos[HEAD * WINDOW], some_sin[HEAD * WINDOW];
    int32_t first = (int32_t)(CACHED + from);
    const int64_t k = (int64_t)n;
    pome_predictor *p;
    assert_int_equal(pome_predictor_create(&p, m, NULL, NULL, NULL), POME_OK);
    take(some_x, x, HIDDEN, from, n);
    take(some_cos, cosines, HEAD, from, n);
    take(some_sin, sines, HEAD, from, n);
    set(p, m, "x", some_x, 4, (const int64_t[]){1, HIDDEN, 1, k});
    set(p, m, "cos", some_cos, 2, (const int64_t[]){HEAD, k});
    set(p, m, "sin", some_sin, 2, (const int64_t[]){HEAD, k});
    set(p, m, "mask", mask + from * CONTEXT, 4, (const int64_t[]){1, 1, k, CONTEXT});
    pome_tensor t = pome_tensor_borrow(&first, POME_DTYPE_I32, 1, (const int64_t[]){1});
    assert_int_equal(pome_predictor_set_input(p, input_at(m, "first_column"), &t, NULL), POME_OK);
    assert_int_equal(pome_predictor_run(p, state, NULL), POME_OK);
    check_column(whole, pome_predictor_output(p, output_at(m, "new_x")), from, n);
    pome_predictor_destroy(&p);
}

static void columns_are_those_of_the_window(void **unused)
{
    (void)unused;
    pome_model *model, *one, *some;
    pome_predictor *p;
    pome_state *state;
    pome_columns_input inputs[4];
    pome_columns_cache caches[4];
    make_inputs();
    assert_int_equal(pome_model_open(&model, CHUNK, NULL, NULL), POME_OK);
    assert_int_equal(pome_predictor_create(&p, model, NULL, NULL, NULL), POME_OK);
    set_whole(p, model);
    assert_int_equal(pome_predictor_run(p, NULL, NULL), POME_OK);
    const pome_tensor *whole = pome_predictor_output(p, output_at(model, "new_x"));
    pome_columns c = columns_of(model, inputs, caches);
    assert_int_equal(pome_model_narrow(&some, model, 0, &c, NULL), POME_OK);
    c.n_columns = 1;
    assert_int_equal(pome_model_narrow(&one, model, 0, &c, NULL), POME_OK);
    assert_int_equal(pome_state_create(&state, one, NULL, NULL), POME_OK);
    for (uint32_t i = 0; i < 4; i++) {
        pome_tensor *t = pome_state_tensor(state, i);
        float *rows = t->data;
        assert_int_equal(t->shape[3], CONTEXT);
        for (size_t r = 0; r < KV; r++)
            for (size_t j = 0; j < CACHED; j++)
                rows[r * CONTEXT + j] = pome_f16_to_f32(cache[i][r * CACHED + j]);
    }
    for (size_t from = 0; from < N_NEW; from++)
        run_columns(one, state, from, 1, whole);
    run_columns(some, state, N_NEW, 3, whole); /* the same states */
    run_columns(one, state, N_NEW + 3, 1, whole);
    pome_state_destroy(&state);
    pome_predictor_destroy(&p);
    pome_model_close(&some);
    pome_model_close(&one);
    pome_model_close(&model);
}

static void what_mixes_columns_is_refused(void **unused)
{
    (void)unused;
    pome_model *model, *narrow = NULL;
    pome_columns_input inputs[4];
    pome_columns_cache caches[4];
    pome_error err = {0};
    assert_int_equal(pome_model_open(&model, CHUNK, NULL, NULL), POME_OK);
    pome_columns c = columns_of(model, inputs, caches);
    for (uint32_t i = 0; i < c.n_inputs; i++)
        if (inputs[i].is_pair)
            inputs[i] = (pome_columns_input){inputs[i].input, 1, false}; /* channels: as many, but convolutions sum them */
    assert_int_equal(pome_model_narrow(&narrow, model, 0, &c, &err), POME_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "mixes the columns"));
    assert_null(narrow);
    pome_model_close(&model);
}

/* new_x over x itself, and into strided memory of a wider type. */
static void outputs_go_where_they_are_bound(void **unused)
{
    (void)unused;
    pome_model *model;
    pome_predictor *p;
    pome_error err = {0};
    static uint16_t want[HIDDEN * WINDOW];
    static float wide[HIDDEN * WINDOW * 2];
    const int64_t shape[] = {1, HIDDEN, 8, 8};
    make_inputs();
    assert_int_equal(pome_model_open(&model, CHUNK, NULL, NULL), POME_OK);
    assert_int_equal(pome_predictor_create(&p, model, NULL, NULL, NULL), POME_OK);
    set_whole(p, model);
    assert_int_equal(pome_predictor_run(p, NULL, NULL), POME_OK);
    uint32_t at = output_at(model, "new_x");
    memcpy(want, pome_predictor_output(p, at)->data, sizeof want);
    pome_tensor to = pome_tensor_borrow(wide, POME_DTYPE_F32, 4, shape);
    for (int i = 0; i < 4; i++)
        to.stride[i] *= 2;
    assert_int_equal(pome_predictor_bind_output(p, at, &to, NULL), POME_OK);
    assert_int_equal(pome_predictor_run(p, NULL, NULL), POME_OK);
    assert_ptr_equal(pome_predictor_output(p, at)->data, wide);
    for (size_t i = 0; i < HIDDEN * WINDOW; i++)
        assert_true(wide[2 * i] == pome_f16_to_f32(want[i]) && wide[2 * i + 1] == 0);
    to = pome_tensor_borrow(x, POME_DTYPE_F16, 4, shape);
    assert_int_equal(pome_predictor_bind_output(p, at, &to, NULL), POME_OK);
    assert_int_equal(pome_predictor_run(p, NULL, NULL), POME_OK);
    assert_memory_equal(x, want, sizeof want);
    to = pome_tensor_borrow(x, POME_DTYPE_F16, 4, (const int64_t[]){1, HIDDEN, 1, WINDOW});
    assert_int_equal(pome_predictor_bind_output(p, at, &to, NULL), POME_OK);
    assert_int_equal(pome_predictor_run(p, NULL, &err), POME_ERR_ARG);
    assert_non_null(strstr(err.message, "new_x"));
    to = pome_tensor_borrow(x, POME_DTYPE_I32, 4, shape);
    assert_int_equal(pome_predictor_bind_output(p, at, &to, NULL), POME_ERR_ARG);
    pome_predictor_destroy(&p);
    pome_model_close(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_are_those_of_the_window),
        cmocka_unit_test(what_mixes_columns_is_refused),
        cmocka_unit_test(outputs_go_where_they_are_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

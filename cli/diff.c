/* `pome diff`: where two models, or two numerics modes of one, drift apart. Both run without fusions on the same inputs; the
 * second's results are compared with the first's by name. */
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "feeds.h"
#include "pome/predictor.h"
#include "verbs.h"

typedef struct diff_args {
    common_args common;
    option_list inputs;
    const char *function;
    int numerics_b;
    double snr;
    bool all;
} diff_args;

typedef struct kept {
    char *name, *op;
    pome_tensor value;
} kept;

/* What became of a result: b against a. */
typedef struct difference {
    const char *name, *op;
    double max_error, snr; /* decibels; infinite: equal */
    bool fits;             /* shapes are equal */
    bool is_finite_alike;  /* NaN and infinities are in the same places */
} difference;

typedef struct side {
    const char *path;
    pome_model *model;
    const pome_function_info *function;
    pome_predictor *predictor;
    pome_state *state;
    feeds inputs;
    kept *results; /* [n] in the order they were computed */
    size_t n, n_room;
    bool is_short;
} side;

static void set_defaults(void *args)
{
    diff_args *a = args;
    a->common.numerics = POME_NUMERICS_EXACT;
    a->numerics_b = -1;
    a->snr = 40;
}

#define AT(member) offsetof(diff_args, member)
static const option options[] = {
    {"input", 'i', "inputs", OPTION_LIST, "NAME=FILE", AT(inputs), 0, 0, false,
     "Take input NAME from a .npy, .npz, .png or .jpg file, as pome predict does; may be repeated"},
    {"numerics-b", 0, NULL, OPTION_CHOICE, "exact|fast|fp16", AT(numerics_b), 0, 0, false,
     "Arithmetic of B (that of A, or fp16 when there is no B)"},
    {"snr", 0, NULL, OPTION_REAL, "DB", AT(snr), 0, 400, false,
     "Signal-to-noise ratio below which a result counts as another (40)"},
    {"all", 0, NULL, OPTION_FLAG, NULL, AT(all), 0, 0, false, "List every result that both computed, in order"},
    {"function", 0, NULL, OPTION_TEXT, "NAME", AT(function), 0, 0, false, "Function of the packages (their default)"},
    OPTIONS_ENGINE(diff_args, "exact"),
    OPTIONS_OUTPUT(diff_args),
    {0},
};

static const char *const examples[] = {
    "pome diff model.mlpackage --input x=x.npy", "what half precision changes, and where it begins",
    "pome diff fp16.mlpackage int4.mlpackage --input inputs.npz", "what quantization costs",
    "pome diff a.mlpackage b.mlpackage --input x=x.npy --all --json", "every result of both",
    NULL,
};

static pome_status fail(pome_error *err, pome_status code, const char *fmt, ...) POME_PRINTF(3, 4);
static pome_status fail(pome_error *err, pome_status code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    *err = (pome_error){.code = code};
    vsnprintf(err->message, sizeof err->message, fmt, ap);
    va_end(ap);
    return code;
}

/* ---- running ---- */

static void see(void *arg, const pome_observed *r)
{
    side *s = arg;
    if (!pome_dtype_is_float(r->value->dtype) && !pome_dtype_is_int(r->value->dtype))
        return;
    if (s->n == s->n_room) {
        size_t room = s->n_room ? 2 * s->n_room : 64;
        kept *bigger = realloc(s->results, room * sizeof *bigger);
        s->is_short = s->is_short || !bigger;
        if (!bigger)
            return;
        s->results = bigger;
        s->n_room = room;
    }
    kept k = {strdup(r->name), strdup(r->op), {0}};
    if (!k.name || !k.op || pome_tensor_cast(&k.value, r->value, POME_DTYPE_F32, NULL) != POME_OK) {
        free(k.name);
        free(k.op);
        s->is_short = true;
        return;
    }
    s->results[s->n++] = k;
}

static pome_status run_side(side *s, const diff_args *args, pome_error *err)
{
    common_args common = args->common;
    common.no_fuse = "all";
    pome_status status = open_model(&s->model, s->path, &common, err);
    if (status == POME_OK)
        status = feeds_find_function(&s->function, s->model, args->function, err);
    if (status == POME_OK)
        status = pome_predictor_create(&s->predictor, s->model, s->function->name, NULL, err);
    if (status == POME_OK)
        status = feeds_init(&s->inputs, s->function, s->predictor, err);
    if (status == POME_OK && s->function->n_states > 0)
        status = pome_state_create(&s->state, s->model, s->function->name, err);
    for (size_t i = 0; i < args->inputs.n && status == POME_OK; i++)
        status = feeds_take(&s->inputs, args->inputs.items[i], err);
    if (status == POME_OK)
        status = feeds_check(&s->inputs, err);
    if (status != POME_OK)
        return status;
    pome_predictor_observe(s->predictor, see, s);
    status = pome_predictor_run(s->predictor, s->state, err);
    return status == POME_OK && s->is_short ? fail(err, POME_ERR_NOMEM, "out of memory for intermediate results") : status;
}

static void close_side(side *s)
{
    pome_predictor_destroy(&s->predictor);
    pome_state_destroy(&s->state);
    if (s->function)
        feeds_reset(&s->inputs);
    for (size_t i = 0; i < s->n; i++) {
        free(s->results[i].name);
        free(s->results[i].op);
        pome_tensor_reset(&s->results[i].value);
    }
    free(s->results);
    pome_model_close(&s->model);
}

/* ---- comparing ---- */

static bool same_shape(const pome_tensor *a, const pome_tensor *b)
{
    return a->rank == b->rank && memcmp(a->shape, b->shape, (size_t)a->rank * sizeof a->shape[0]) == 0;
}

/* a and b are contiguous, fp32. */
static void compare(difference *d, const pome_tensor *a, const pome_tensor *b)
{
    const float *x = a->data, *y = b->data;
    double signal = 0, noise = 0;
    d->fits = same_shape(a, b);
    d->is_finite_alike = true;
    d->max_error = 0;
    for (int64_t i = 0, n = d->fits ? pome_tensor_count(a) : 0; i < n; i++) {
        double u = (double)x[i], v = (double)y[i];
        if (!isfinite(u) || !isfinite(v)) {
            d->is_finite_alike = d->is_finite_alike && ((isnan(u) && isnan(v)) || u == v);
            continue;
        }
        signal += u * u;
        noise += (u - v) * (u - v);
        d->max_error = fabs(u - v) > d->max_error ? fabs(u - v) : d->max_error;
    }
    d->snr = noise > 0 ? (signal > 0 ? 10 * log10(signal / noise) : -INFINITY) : INFINITY;
}

static bool is_other(const difference *d, double snr)
{
    return !d->fits || !d->is_finite_alike || d->snr < snr;
}

/* Conversion to half precision appends this to the names of results. */
static size_t name_length(const char *name)
{
    static const char tail[] = "_cast_fp16";
    size_t n = strlen(name), t = sizeof tail - 1;
    return n > t && strcmp(name + n - t, tail) == 0 ? n - t : n;
}

static bool same_name(const char *a, const char *b)
{
    size_t n = name_length(a);
    return n == name_length(b) && memcmp(a, b, n) == 0;
}

/* The nth result of that name: a loop gives one in every turn. Results come in nearly the same order, so the search
 * begins where the last one ended. */
static const kept *find(const side *s, const char *name, size_t nth, size_t *at)
{
    for (size_t i = 0; i < s->n; i++) {
        const kept *k = &s->results[(*at + i) % s->n];
        if (nth == 0 && same_name(k->name, name)) {
            *at = (*at + i + 1) % s->n;
            return k;
        }
    }
    for (size_t i = 0; i < s->n && nth > 0; i++)
        if (same_name(s->results[i].name, name) && nth-- == 0)
            return &s->results[i];
    return NULL;
}

typedef struct comparison {
    difference *results; /* [n] what both computed */
    difference *outputs; /* [n_outputs] */
    size_t n, n_outputs;
} comparison;

static pome_status compare_outputs(comparison *c, const side *a, const side *b, pome_error *err)
{
    c->outputs = calloc(a->function->n_outputs + 1, sizeof *c->outputs);
    for (uint32_t i = 0; c->outputs && i < a->function->n_outputs; i++) {
        const char *name = a->function->outputs[i].name;
        for (uint32_t k = 0; k < b->function->n_outputs; k++) {
            const pome_tensor *x = pome_predictor_output(a->predictor, i), *y = pome_predictor_output(b->predictor, k);
            pome_tensor u = {0}, v = {0};
            if (strcmp(name, b->function->outputs[k].name) != 0 || x->dtype == POME_DTYPE_STRING ||
                y->dtype == POME_DTYPE_STRING)
                continue;
            difference *d = &c->outputs[c->n_outputs];
            *d = (difference){.name = name, .op = "output"};
            pome_status status = pome_tensor_cast(&u, x, POME_DTYPE_F32, err);
            if (status == POME_OK)
                status = pome_tensor_cast(&v, y, POME_DTYPE_F32, err);
            if (status == POME_OK)
                compare(d, &u, &v);
            pome_tensor_reset(&u);
            pome_tensor_reset(&v);
            if (status != POME_OK)
                return status;
            c->n_outputs++;
        }
    }
    if (!c->outputs || c->n_outputs == 0)
        return fail(err, POME_ERR_ARG, "%s and %s have no output of the same name", a->path, b->path);
    return POME_OK;
}

static pome_status compare_results(comparison *c, const side *a, const side *b, pome_error *err)
{
    size_t at = 0;
    c->results = calloc(b->n + 1, sizeof *c->results);
    if (!c->results)
        return fail(err, POME_ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < b->n && a->n; i++) {
        size_t nth = 0;
        bool is_repeated = false;
        for (size_t k = i; k-- > 0 && !is_repeated;) /* seldom far: names repeat in loops alone */
            is_repeated = strcmp(b->results[k].name, b->results[i].name) == 0;
        for (size_t k = 0; k < i && is_repeated; k++)
            nth += strcmp(b->results[k].name, b->results[i].name) == 0;
        const kept *k = find(a, b->results[i].name, nth, &at);
        if (!k)
            continue;
        difference *d = &c->results[c->n++];
        *d = (difference){.name = b->results[i].name, .op = b->results[i].op};
        compare(d, &k->value, &b->results[i].value);
    }
    return POME_OK;
}

/* ---- showing ---- */

static json_t *number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

static json_t *to_json(const difference *d)
{
    return json_pack("{s:o, s:s, s:o, s:o, s:b, s:b}", "name", json_text(d->name), "op", d->op, "max_error",
                     number(d->max_error), "snr_db", number(d->snr), "same_shape", d->fits, "finite_alike",
                     d->is_finite_alike);
}

static void print(const difference *d)
{
    printf("  %-32s %-16s ", d->name, d->op);
    if (!d->fits)
        printf("shapes differ");
    else if (d->snr == INFINITY)
        printf("equal");
    else
        printf("max error %-11.4g SNR %.1f dB", d->max_error, d->snr);
    printf("%s\n", d->fits && !d->is_finite_alike ? "  NaN or infinity in one of them" : "");
}

static const difference *first_other(const comparison *c, double snr)
{
    for (size_t i = 0; i < c->n; i++)
        if (is_other(&c->results[i], snr))
            return &c->results[i];
    return NULL;
}

static int show(const comparison *c, const diff_args *args)
{
    const difference *first = first_other(c, args->snr);
    int status = 0;
    for (size_t i = 0; i < c->n_outputs; i++)
        status |= is_other(&c->outputs[i], args->snr);
    if (args->common.json) {
        json_t *outputs = json_array(), *results = json_array();
        for (size_t i = 0; i < c->n_outputs; i++)
            json_array_append_new(outputs, to_json(&c->outputs[i]));
        for (size_t i = 0; i < c->n && args->all; i++)
            json_array_append_new(results, to_json(&c->results[i]));
        int printed = print_json(json_pack("{s:o, s:o, s:o, s:I, s:b}", "outputs", outputs, "first_diverging",
                                           first ? to_json(first) : json_null(), "results", results, "n_compared",
                                           (json_int_t)c->n, "agree", !status));
        return printed ? printed : status;
    }
    printf("outputs\n");
    for (size_t i = 0; i < c->n_outputs; i++)
        print(&c->outputs[i]);
    printf("%zu results of operators compared%s\n", c->n, args->all && c->n ? ", in order" : "");
    for (size_t i = 0; i < c->n && args->all; i++)
        print(&c->results[i]);
    printf(first ? "first below %g dB\n" : "none below %g dB\n", args->snr);
    if (first)
        print(first);
    return finish_output(status);
}

static int run(void *opaque, const char **operands, int n_operands)
{
    diff_args *args = opaque, args_b;
    pome_error err = {0};
    side a = {.path = operands[0]}, b = {.path = operands[n_operands - 1]};
    comparison c = {0};
    args_b = *args;
    args_b.common.numerics = args->numerics_b >= 0 ? args->numerics_b
                             : n_operands > 1      ? args->common.numerics
                                                   : (int)POME_NUMERICS_FP16;
    pome_status status = run_side(&a, args, &err);
    if (status == POME_OK)
        status = run_side(&b, &args_b, &err);
    if (status == POME_OK)
        status = compare_outputs(&c, &a, &b, &err);
    if (status == POME_OK)
        status = compare_results(&c, &a, &b, &err);
    int code = status == POME_OK ? show(&c, args) : fail_with(&err);
    close_side(&a);
    close_side(&b);
    free(c.outputs);
    free(c.results);
    return code;
}

const verb verb_diff = {
    .name = "diff",
    .summary = "where two models, or two numerics modes of one, drift apart",
    .operands = "A [B]",
    .description = "Runs both on the same inputs, without fusions and from empty states, and compares every result of the same "
                   "name: largest error and signal-to-noise ratio of each output, and the first operator whose result differs. "
                   "With one model its exact arithmetic is compared with fp16. The exit status is 1 if an output differs. All "
                   "results of both are kept in memory.",
    .options = options,
    .examples = examples,
    .n_operands_min = 1,
    .n_operands_max = 2,
    .args_size = sizeof(diff_args),
    .set_defaults = set_defaults,
    .run = run,
};

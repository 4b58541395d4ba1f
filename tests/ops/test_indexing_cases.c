/* Runs every case of indexing_cases.txt: operators that move elements, with results computed by numpy. The format is
 * described in tests/oracle/make_indexing_cases.py, which wrote it. */
#include "op_test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TENSORS = 16 };

typedef struct reader {
    char *word;  /* the rest of the line */
    int line;
} reader;

static char *next_word(reader *r)
{
    char *start = r->word + strspn(r->word, " \n");
    char *end = start + strcspn(start, " \n");
    r->word = *end ? end + 1 : end;
    *end = '\0';
    return start;
}

static pome_dtype dtype_named(const char *name)
{
    for (int d = 1; d < POME_DTYPE_COUNT; d++)
        if (strcmp(pome_dtype_name((pome_dtype)d), name) == 0)
            return (pome_dtype)d;
    fail_msg("no dtype %s", name);
    return POME_DTYPE_NONE;
}

/* "DTYPE RANK DIM.. = VALUES" */
static pome_tensor read_tensor(reader *r)
{
    pome_tensor t;
    int64_t shape[POME_MAX_RANK];
    pome_dtype dtype = dtype_named(next_word(r));
    int32_t rank = atoi(next_word(r));
    assert_in_range(rank, 0, POME_MAX_RANK);
    for (int32_t d = 0; d < rank; d++)
        shape[d] = atoll(next_word(r));
    assert_string_equal(next_word(r), "=");
    assert_int_equal(pome_tensor_init(&t, dtype, rank, shape, NULL), POME_OK);
    bool is_iota = false;
    for (int64_t i = 0; i < pome_tensor_count(&t); i++) {
        const char *word = is_iota ? "" : next_word(r);
        is_iota |= strcmp(word, "iota") == 0;
        if (!is_iota && !*word)
            fail_msg("line %d: too few values", r->line);
        op_test_set(&t, i, is_iota ? (double)i : strtod(word, NULL));
    }
    return t;
}

typedef struct test_case {
    char name[64];
    op_test *t;
    pome_tensor in[MOST_TENSORS], want[MOST_TENSORS];
    char text[MOST_TENSORS][64]; /* names and strings that the operator refers to */
    uint32_t n_in, n_want, n_text;
    char failure[64];
    bool must_fail;
} test_case;

/* What is wrong with output `output`, NULL if nothing. */
static const char *difference(const test_case *c, uint32_t output)
{
    const pome_tensor *got = op_test_out(c->t, output), *want = &c->want[output];
    if (want->dtype != POME_DTYPE_F16 && got->dtype != want->dtype)
        return "another dtype";
    if (got->rank != want->rank)
        return "another rank";
    for (int32_t d = 0; d < got->rank; d++)
        if (got->shape[d] != want->shape[d])
            return "another shape";
    for (int64_t i = 0; i < pome_tensor_count(want); i++)
        if (op_test_at(got, i) != op_test_at(want, i))
            return "other values";
    return NULL;
}

/* All failures are listed, not only the first. */
static int n_failed;

static void report(const test_case *c, const char *what)
{
    print_error("%s: %s\n", c->name, what);
    n_failed++;
}

static void finish_case(test_case *c)
{
    if (!c->t)
        return;
    op_test_outputs(c->t, c->must_fail ? 1 : c->n_want);
    pome_status status = op_test_run(c->t);
    if (c->must_fail && status == POME_OK)
        report(c, "succeeded");
    else if (c->must_fail ? !strstr(op_test_error(c->t)->message, c->failure) : status != POME_OK)
        report(c, op_test_error(c->t)->message);
    for (uint32_t i = 0; status == POME_OK && i < c->n_want; i++)
        if (difference(c, i))
            report(c, difference(c, i));
    op_test_end(c->t);
    for (uint32_t i = 0; i < c->n_in; i++)
        pome_tensor_reset(&c->in[i]);
    for (uint32_t i = 0; i < c->n_want; i++)
        pome_tensor_reset(&c->want[i]);
    memset(c, 0, sizeof *c);
}

static void copy_word(char *dst, size_t size, const char *word)
{
    assert_true(strlen(word) < size);
    strcpy(dst, word);
}

static void read_line(test_case *c, reader *r)
{
    const char *kind = next_word(r);
    if (strcmp(kind, "case") == 0) {
        finish_case(c);
        copy_word(c->name, sizeof c->name, next_word(r));
        const pome_opdef *def = pome_opdef_find(next_word(r));
        assert_non_null(def);
        c->t = op_test_begin(def->id, (pome_opset)atoi(next_word(r)));
    } else if (strcmp(kind, "in") == 0 || strcmp(kind, "const") == 0) {
        assert_true(c->n_in < MOST_TENSORS && c->n_text < MOST_TENSORS);
        char *name = c->text[c->n_text++];
        copy_word(name, sizeof c->text[0], next_word(r));
        pome_tensor *x = &c->in[c->n_in++];
        *x = read_tensor(r);
        if (*kind == 'i')
            op_test_in(c->t, name, x);
        else
            op_test_const(c->t, name, x);
    } else if (strcmp(kind, "str") == 0) {
        assert_true(c->n_text + 1 < MOST_TENSORS);
        char *name = c->text[c->n_text++], *text = c->text[c->n_text++];
        copy_word(name, sizeof c->text[0], next_word(r));
        copy_word(text, sizeof c->text[0], next_word(r));
        op_test_const_str(c->t, name, text);
    } else if (strcmp(kind, "out") == 0) {
        assert_true(c->n_want < MOST_TENSORS);
        c->want[c->n_want++] = read_tensor(r);
    } else if (strcmp(kind, "fail") == 0) {
        c->must_fail = true;
        r->word[strcspn(r->word, "\n")] = '\0';
        copy_word(c->failure, sizeof c->failure, r->word);
    } else {
        fail_msg("line %d: %s", r->line, kind);
    }
}

static void test_cases(void **state)
{
    (void)state;
    const char *path = POME_SOURCE_DIR "/tests/ops/indexing_cases.txt";
    FILE *file = fopen(path, "r");
    if (!file)
        fail_msg("%s: %s", path, strerror(errno));
    char *line = NULL;
    size_t size = 0;
    int n_cases = 0;
    test_case c = {0};
    reader r = {0};
    while (getline(&line, &size, file) >= 0) {
        r.word = line;
        r.line++;
        n_cases += strncmp(line, "case ", 5) == 0;
        read_line(&c, &r);
    }
    finish_case(&c);
    free(line);
    fclose(file);
    print_message("%d cases\n", n_cases);
    assert_true(n_cases > 1000);
    assert_int_equal(n_failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

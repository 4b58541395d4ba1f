/* Runs one operator as the runtime does: infers its outputs, converts what the implementation does not accept, tries
 * view(), else asks scratch() and calls run(). Every run is done with one thread and with three, once with the inputs
 * as given and once, where the implementation takes strides, with strided copies of them; all must agree bit for bit.
 *
 *     op_test *t = op_test_begin(POME_OP_add, POME_OPSET_IOS18);
 *     op_test_in(t, "x", x);                      an input that is not constant; borrowed
 *     op_test_const_f32(t, "y", 2.0f);            a constant
 *     assert_int_equal(op_test_run(t), POME_OK);
 *     op_test_expect(t, 0, want, 1e-6, 0);        output 0 against plain doubles
 *     op_test_end(t);
 */
#ifndef POME_TESTS_OP_TEST_H
#define POME_TESTS_OP_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h wants those before it */
#include <cmocka.h>

#include "ops/op.h"

typedef struct op_test op_test;

op_test *op_test_begin(pome_op_id id, pome_opset opset);
void op_test_end(op_test *t);

/* Inputs, by the parameter's name; a list parameter takes several calls. x is borrowed, contiguous; its dtype is
 * the declared one, and fp16 is how it lies in memory. */
void op_test_in(op_test *t, const char *param, const pome_tensor *x);
/* The same, declared as `declared` (fp16 for a tensor held in fp32). */
void op_test_in_as(op_test *t, const char *param, const pome_tensor *x, pome_dtype declared);
/* A value of another kind (STATE, LIST); list_length as in pome_type. */
void op_test_in_kind(op_test *t, const char *param, const pome_tensor *x, pome_type_kind kind, int64_t list_length);
void op_test_const(op_test *t, const char *param, const pome_tensor *x);
/* A compressed constant (ops/encoded.h); given decoded to an operator that does not accept it. */
void op_test_const_encoded(op_test *t, const char *param, const struct pome_encoded *e);
void op_test_const_f32(op_test *t, const char *param, float value);
void op_test_const_f16(op_test *t, const char *param, float value); /* rounded to half */
void op_test_const_int(op_test *t, const char *param, int32_t value);
void op_test_const_ints(op_test *t, const char *param, const int32_t *values, int64_t n); /* int32 [n] */
void op_test_const_bool(op_test *t, const char *param, bool value);
void op_test_const_bools(op_test *t, const char *param, const bool *values, int64_t n);
void op_test_const_str(op_test *t, const char *param, const char *value);
void op_test_outputs(op_test *t, uint32_t n); /* of operators whose number of outputs varies */
void op_test_numerics(op_test *t, pome_numerics numerics); /* EXACT unless set */
void op_test_keep_strides(op_test *t); /* do not try strided copies of the inputs (states, huge inputs) */

/* Fails the test if the runs disagree; else the status of them all. */
pome_status op_test_run(op_test *t);
/* One run alone, for operators that never do the same twice. */
pome_status op_test_run_once(op_test *t);
const pome_error *op_test_error(const op_test *t);
/* Only inference: its status. */
pome_status op_test_infer(op_test *t);
const pome_type *op_test_type(const op_test *t, uint32_t output); /* as inferred */
/* Output of the last run, contiguous; floats in fp32. */
const pome_tensor *op_test_out(const op_test *t, uint32_t output);
/* True if the last run was answered by view() alone. */
bool op_test_was_view(const op_test *t);
/* Runs must fail with `code` and a message that contains `text`. */
void op_test_expect_failure(op_test *t, pome_status code, const char *text);
/* Each element within rel * |want| + abs; NaN wants NaN, infinities and integers are exact. */
void op_test_expect(const op_test *t, uint32_t output, const double *want, double rel, double abs);
void op_test_expect_shape(const op_test *t, uint32_t output, int32_t rank, const int64_t *shape);

/* ---- material ---- */

/* xorshift64*; the seed is POME_TEST_SEED or a fixed one, printed at first use. */
uint64_t op_test_random(void);
int64_t op_test_random_int(int64_t low, int64_t high); /* both included */
double op_test_random_double(double low, double high);
/* A tensor (owned, release with pome_tensor_reset) of random values: floats in [low, high], integers likewise, within
 * what the dtype holds. */
pome_tensor op_test_tensor(pome_dtype dtype, int32_t rank, const int64_t *shape, double low, double high);
pome_tensor op_test_tensor_of(pome_dtype dtype, int32_t rank, const int64_t *shape, const double *values);
/* Random shape of the given rank with axes of 0 (rarely, if allow_empty), 1 to max. */
void op_test_shape(int64_t *shape, int32_t rank, int64_t max, bool allow_empty);
double op_test_at(const pome_tensor *t, int64_t i);        /* element i in row-major order, of a contiguous tensor */
void op_test_set(const pome_tensor *t, int64_t i, double value);
double op_test_at_index(const pome_tensor *t, const int64_t *index); /* broadcast: index counts from the last axis */
/* Advances a row-major index; false after the last. */
bool op_test_next(int64_t *index, int32_t rank, const int64_t *shape);

#endif

/* classify: the place of the largest probability in the list of classes, and the probabilities. Labels themselves stay
 * with the constant; a model's outputs are put together from both (runtime/predictor.c). */
#include "ops/families.h"

static pome_status classify_run(const pome_run *r, pome_error *err)
{
    const pome_tensor *p = pome_in(r, P_classify_probabilities);
    const float *x = (const float *)p->data;
    int64_t n = pome_tensor_count(p), best = -1;
    if (n != pome_tensor_count(&r->out[1]))
        return pome_op_fail(r->op, err, POME_ERR_ARG, "%lld probabilities for %lld classes", (long long)n,
                            (long long)pome_tensor_count(&r->out[1]));
    for (int64_t i = 0; i < n; i++) /* the first of equals; NaN never wins */
        if (x[i] == x[i] && (best < 0 || x[i] > x[best]))
            best = i;
    if (n == 0)
        return pome_op_fail(r->op, err, POME_ERR_ARG, "there are no classes");
    *(int64_t *)r->out[0].data = best < 0 ? 0 : best;
    memcpy(r->out[1].data, x, (size_t)n * sizeof *x);
    return POME_OK;
}

const pome_op_impl pome_ops_classify[] = {
    {.id = POME_OP_classify, .run = classify_run},
};
POME_FAMILY_COUNT(classify)

/* States: tensors that outlive a run, half precision in memory. */
#include "ops/alias.h"
#include "ops/families.h"

static bool view_read_state(const pome_run *r)
{
    const pome_tensor *state = pome_in(r, P_read_state_input);
    return pome_tensor_count(state) == pome_tensor_count(&r->out[0]) && pome_strided_reshape(&r->out[0], state);
}

static pome_status run_read_state(const pome_run *r, pome_error *err)
{
    return pome_view_run(r, view_read_state, err);
}

static size_t scratch_write_state(const pome_run *r)
{
    return pome_alias_scratch(pome_op_arg(r->op, P_write_state_input), false,
                              pome_op_arg(r->op, P_write_state_data), pome_in(r, P_write_state_data));
}

static pome_status run_write_state(const pome_run *r, pome_error *err)
{
    const pome_tensor *state = pome_in(r, P_write_state_input), *data = pome_in(r, P_write_state_data);
    bool fits = state->rank == data->rank;
    for (int32_t d = 0; fits && d < state->rank; d++)
        fits = state->shape[d] == data->shape[d];
    if (!fits) {
        char found[200], want[200];
        return pome_op_fail(r->op, err, POME_ERR_ARG, "data has shape %s, the state has %s",
                            pome_shape_text(found, sizeof found, data), pome_shape_text(want, sizeof want, state));
    }
    return pome_alias_copy(r, state, data, err);
}

const pome_op_impl pome_ops_state[] = {
    {.id = POME_OP_read_state,
     .f16_ok = POME_BIT(P_read_state_input),
     .strided_ok = POME_BIT(P_read_state_input),
     .view = view_read_state,
     .run = run_read_state},
    {.id = POME_OP_write_state,
     .f16_ok = POME_BIT(P_write_state_input) | POME_BIT(P_write_state_data),
     .strided_ok = POME_BIT(P_write_state_input) | POME_BIT(P_write_state_data),
     .scratch = scratch_write_state,
     .run = run_write_state},
};
POME_FAMILY_COUNT(state)

#include "ops/encoded.h"
#include "passes/pass.h"

static pome_status encode_op(pome_op *op, pome_program *program, pome_error *err)
{
    for (uint32_t i = 0; i < op->n_in; i++)
        if (!op->in[i]->konst)
            return pome_fail(err, POME_ERR_FORMAT, "%s (%s, #%u): an input is not a constant", op->name,
                             op->def->name, op->position);
    for (uint32_t o = 0; o < op->n_out; o++) {
        pome_const *k = POME_NEW(program->arena, pome_const);
        if (!k)
            return pome_fail_nomem(err, sizeof *k, "constant");
        POME_TRY(pome_encoded_create(&k->encoded, op, o, program->arena, err));
        k->t = pome_tensor_borrow(NULL, pome_encoded_dtype(k->encoded), pome_encoded_rank(k->encoded),
                                  pome_encoded_shape(k->encoded));
        k->encoded_by = op;
        k->encoded_output = o;
        op->out[o]->konst = k;
    }
    return POME_OK;
}

static pome_status encode_block(pome_block *b, pome_program *program, pome_error *err)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n_ops; i++) {
        pome_op *op = b->ops[i];
        if (op->def->flags & POME_OP_CONSTEXPR) {
            POME_TRY(encode_op(op, program, err));
            continue;
        }
        for (uint32_t k = 0; k < op->n_blocks; k++)
            POME_TRY(encode_block(op->blocks[k], program, err));
        b->ops[n++] = op;
    }
    b->n_ops = n;
    return POME_OK;
}

pome_status pome_pass_encode(pome_program *program, pome_error *err)
{
    for (uint32_t i = 0; i < program->n_functions; i++)
        POME_TRY(encode_block(program->functions[i]->body, program, err));
    return POME_OK;
}

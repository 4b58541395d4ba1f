/* A compiled function: its operators as steps in order, sorted into three kinds.
 *
 *   SHAPE    results depend on input shapes (and on small integer inputs that decide shapes) alone: evaluated when
 *            a predictor binds to new shapes. Hundreds of tiny integer operators of traced graphs end here.
 *   TENSOR   shapes follow from binding: inferred and given memory then, only run on each prediction.
 *   DYNAMIC  shapes depend on data (loops, lists, non_zero): inferred while running, memory of their own.
 *
 * A plan is immutable and shared; runtime/exec.h has what changes from run to run. */
#ifndef POME_RUNTIME_PLAN_H
#define POME_RUNTIME_PLAN_H

#include "base/arena.h"
#include "base/error.h"
#include "ops/op.h"
#include "passes/fusion.h"

typedef enum pome_step_kind { POME_STEP_SHAPE, POME_STEP_TENSOR, POME_STEP_DYNAMIC } pome_step_kind;

typedef enum pome_slot_kind {
    POME_SLOT_CONST,
    POME_SLOT_INPUT,
    POME_SLOT_STATE,
    POME_SLOT_SHAPE,
    POME_SLOT_TENSOR,
    POME_SLOT_DYNAMIC
} pome_slot_kind;

/* A place for one tensor. Outputs of one operator have consecutive slots. */
typedef struct pome_slot {
    pome_slot_kind kind;
    bool is_key;        /* an input whose contents decide shapes: part of what a binding depends on */
    bool is_rounded;    /* to halves where it is computed, since it leaves the program as halves too */
    uint32_t n_uses;    /* operands of steps (nested ones count at their owner) and function outputs */
    uint32_t index;     /* INPUT, STATE: which */
    pome_type type;     /* as compiled; concrete for constants */
    pome_tensor konst;  /* CONST */
    const char *name;
} pome_slot;

typedef struct pome_plan_block pome_plan_block;

typedef struct pome_step {
    const pome_op *op;
    const pome_op_impl *impl; /* NULL for cond and while_loop */
    void *prepared;
    pome_step_kind kind;
    bool copy_view;           /* the view would outlive a change of its state: copy instead */
    bool in_place;            /* slice_update on the state's own memory */
    const uint32_t *in;       /* [op->n_in] slots */
    uint32_t out;             /* first output slot */
    const uint32_t *captured; /* BLOCKS: outer slots that the nested blocks read, kept alive until here */
    uint32_t n_captured;
    pome_plan_block **blocks; /* [op->n_blocks] */
} pome_step;

struct pome_plan_block {
    pome_step *steps;
    uint32_t n_steps;
    uint32_t *inputs;  /* slots, nested blocks only */
    uint32_t n_inputs;
    uint32_t *outputs; /* slots */
    uint32_t n_outputs;
};

typedef struct pome_plan {
    pome_arena *arena;
    pome_function *fn;  /* the plan's own rewritten copy */
    pome_opset opset;
    pome_numerics numerics;
    const pome_kernels *kernels;
    pome_slot *slots;
    uint32_t n_slots;
    pome_plan_block *body;
    uint32_t *input_slots; /* [n_inputs] of the tensor inputs, in the function's order */
    uint32_t n_inputs;
    uint32_t *state_slots; /* [n_states] */
    uint32_t n_states;
    uint32_t n_max_in;     /* widest operator, for work arrays */
    uint32_t n_steps[3];   /* by kind, all blocks, for inspection */
    uint32_t fusions;      /* bits of pome_fusion that were allowed */
    uint32_t n_fused[POME_FUSION_COUNT];
} pome_plan;

typedef struct pome_plan_opts {
    pome_numerics numerics;
    const pome_kernels *kernels;
    int last_row_output; /* -1: none */
    uint32_t no_fuse;    /* bits of pome_fusion to leave out */
} pome_plan_opts;

/* Compiles a verified function. UNSUPPORTED lists operators without an implementation. */
pome_status pome_plan_create(pome_plan **out, const pome_function *fn, const pome_plan_opts *opts, pome_error *err);
void pome_plan_destroy(pome_plan **plan);

/* Marks the steps of the top block that may work on state memory in place, and the views that must be copies because
 * the state changes under them (runtime/state_alias.c). Part of pome_plan_create. */
pome_status pome_plan_alias_states(pome_plan *plan, pome_error *err);

/* Marks the slots whose values are to be halves since they go on in a cache of halves (runtime/plan_round.c). Part of pome_plan_create. */
pome_status pome_plan_round_outputs(pome_plan *plan, pome_error *err);

#endif

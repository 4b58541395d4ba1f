/* Shared by exec.c (life, run), exec_bind.c (binding), exec_rebind.c (binding what changed) and exec_dynamic.c (dynamic
 * steps). */
#ifndef POME_RUNTIME_EXEC_INTERNAL_H
#define POME_RUNTIME_EXEC_INTERNAL_H

#include "runtime/exec.h"
#include "runtime/placer.h"

typedef struct pome_place { /* in an exec's main memory */
    size_t offset, room;    /* room 0: none */
} pome_place;

typedef struct pome_conversion { /* an input brought into a form that the operator accepts, before it runs */
    const pome_tensor *from;
    pome_tensor to;
} pome_conversion;

typedef struct pome_dyn_buffer {
    void *data;
    size_t size;
} pome_dyn_buffer;

/* What a step needs at run time. */
typedef struct pome_exec_step {
    const pome_tensor **in;          /* [n_in] the slots' tensors or conversions */
    const pome_type **in_types;      /* [n_in] */
    const pome_tensor **in_values;   /* [n_in] contents known when binding, else NULL */
    pome_conversion *conversions;    /* [n_in] room; n_conversions in use */
    uint32_t n_conversions;
    bool is_view;                    /* nothing to do at run time */
    bool is_copied_view;             /* copies from `viewed` */
    pome_tensor *viewed;             /* [n_out] copy_view: what to copy from */
    void *scratch;
    pome_place scratch_place;
    pome_place *conversion_place;    /* [n_in] */
    size_t shape_at, shape_end;      /* SHAPE: its part of shape memory */
    pome_dyn_buffer *buffers;        /* DYNAMIC: [2 * n_out + n_in + 1] */
    struct pome_exec_block *blocks;  /* [n_blocks] */
} pome_exec_step;

typedef struct pome_exec_block {
    const pome_plan_block *plan;
    pome_exec_step *steps;
} pome_exec_block;

enum { POME_KEY_BYTES = 128 };

typedef struct pome_memory {
    void *data; /* 64-byte aligned */
    size_t size;
} pome_memory;

struct pome_exec {
    const pome_plan *plan;
    pome_pool *pool;
    pome_arena *arena;
    pome_tensor *t;    /* [n_slots] */
    pome_type *types;  /* [n_slots] concrete after binding */
    pome_exec_block body;
    pome_memory main;  /* activations, scratch, conversions */
    pome_memory shape; /* results of shape steps */
    /* work space of binding */
    pome_placer placer;
    pome_piece *pieces;
    size_t n_pieces;
    uint32_t *root;      /* [n_slots] slot whose memory this one shows */
    uint32_t *uses_left; /* [n_slots] of roots */
    size_t *placed;      /* [n_slots] bytes a root holds in `main`, 0: none */
    size_t *offset;      /* [n_slots] */
    size_t *room;        /* [n_slots] bytes that may lie at the offset */
    bool *changed;       /* [n_slots] since the last binding; of inputs and states set by who binds */
    bool has_layout;     /* offsets and rooms are those of a binding that succeeded */
    size_t shape_used;
    char *main_base;     /* main.data, or a stand-in while sizes are found out */
    pome_type *type_work; /* outputs of one operator */
    /* what the binding was made for */
    bool is_bound;
    pome_tensor *bound_inputs; /* [n_inputs] */
    pome_tensor *bound_states; /* [n_states] */
    uint8_t *bound_keys;       /* [n_inputs][POME_KEY_BYTES] contents of key inputs */
    pome_observe_fn *observe;
    void *observe_arg;
    pome_stop *stop; /* NULL: nobody stops it */
    pome_profile_section *profile; /* NULL: nothing is measured */
};

pome_status pome_exec_check_stop(const pome_exec *e, pome_error *err);
pome_status pome_exec_bind(pome_exec *e, pome_error *err);
/* Binds again what depends on slots that changed, in the places that there are. False: they do not suffice, or so much
 * changed that another layout may be smaller; then everything is to be bound. */
bool pome_exec_rebind(pome_exec *e);
bool pome_exec_is_same(const pome_tensor *a, const pome_tensor *b); /* type, data, strides */

/* Parts of binding a step. */
pome_status pome_exec_infer_step(pome_exec *e, const pome_step *s, pome_exec_step *x, pome_error *err);
pome_status pome_exec_bind_shape(pome_exec *e, const pome_step *s, pome_exec_step *x, bool *is_short, pome_error *err);
void pome_exec_convert_inputs(pome_exec *e, const pome_step *s, pome_exec_step *x);
bool pome_exec_try_view(pome_exec *e, const pome_step *s, pome_exec_step *x, pome_tensor *out);
void pome_exec_show_state(pome_exec *e, const pome_step *s, pome_exec_step *x); /* in_place: the result is the state */
size_t pome_exec_scratch(const pome_exec *e, const pome_step *s, const pome_exec_step *x);
pome_status pome_exec_run_dynamic(pome_exec *e, const pome_step *s, pome_exec_step *x, pome_error *err);
pome_status pome_exec_run_block(pome_exec *e, pome_exec_block *b, pome_error *err);
bool pome_memory_grow(pome_memory *m, size_t size);           /* contents are lost */

#endif

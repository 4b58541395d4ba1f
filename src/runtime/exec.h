/* Running a plan. An exec holds what changes from run to run: tensors, memory, bindings. One thread at a time.
 *
 *   bind  new input shapes: evaluates the shape program, infers, places buffers, resolves views. Allocates only when
 *         the memory held is too small.
 *   run   executes the tensor steps. Allocates nothing, except for dynamic steps whose data outgrow their buffers. */
#ifndef POME_RUNTIME_EXEC_H
#define POME_RUNTIME_EXEC_H

#include "base/stop.h"
#include "runtime/plan.h"
#include "runtime/profile.h"

typedef struct pome_exec pome_exec;

pome_status pome_exec_create(pome_exec **out, const pome_plan *plan, pome_pool *pool, pome_error *err);
void pome_exec_destroy(pome_exec **exec);

/* inputs[n_inputs]: dense or strided tensors of the inputs' declared dtypes, shapes already checked against the model's
 * description; states[n_states]: contiguous. Binds if anything that matters changed, then runs. */
pome_status pome_exec_run(pome_exec *exec, const pome_tensor *inputs, const pome_tensor *const *states, pome_error *err);

/* Binds with shapes only, so that later runs with these or smaller ones find memory enough. */
pome_status pome_exec_reserve(pome_exec *exec, const pome_tensor *inputs /* data is not read */, pome_error *err);

/* Output i of the last run: fp32 for floats (a state or an input may show through in its own dtype), any strides. */
const pome_tensor *pome_exec_output(const pome_exec *exec, uint32_t i);

/* Called after each step that ran, with the results; for dumps and checks. */
typedef void pome_observe_fn(void *arg, const pome_op *op, const pome_tensor *out);
void pome_exec_observe(pome_exec *exec, pome_observe_fn *fn, void *arg);

/* Ends runs with CANCELLED between two steps. Borrowed. */
void pome_exec_stop_by(pome_exec *exec, pome_stop *stop);

/* Measures binding and steps into a section of this exec's plan; NULL ends it. */
void pome_exec_profile(pome_exec *exec, pome_profile_section *section);

size_t pome_exec_memory(const pome_exec *exec); /* bytes held for activations */

#endif

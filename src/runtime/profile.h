/* A profile's inside: one section per plan. The predictor and the exec measure into a section; without one they pass by. */
#ifndef POME_RUNTIME_PROFILE_H
#define POME_RUNTIME_PROFILE_H

#include "pome/profile.h"
#include "runtime/plan.h"

typedef struct pome_profile_section {
    struct pome_profile_section *next;
    const pome_plan *plan;
    uint64_t n_runs;
    uint64_t begin_ns;  /* of the running prediction */
    uint64_t last_ns;   /* when the step before ended */
    uint64_t total_ns;
    size_t n_steps;     /* body steps and three around them */
    pome_profile_step steps[];
} pome_profile_section;

/* The section of a plan, made when first asked for; NULL when memory is short. */
pome_profile_section *pome_profile_section_of(pome_profile *profile, const pome_plan *plan);

/* In this order within a prediction; steps count from 0. What has passed since the call before is theirs. */
void pome_profile_begin(pome_profile_section *s);
void pome_profile_end_inputs(pome_profile_section *s);
void pome_profile_end_binding(pome_profile_section *s, bool has_bound);
/* tensors: by slot, as they are after the step. */
void pome_profile_end_step(pome_profile_section *s, uint32_t step, const pome_tensor *tensors);
void pome_profile_end_outputs(pome_profile_section *s);

#endif

/* Where the time of predictions goes: seconds, bytes of weights and arithmetic per operator or fused group.
 *
 *     pome_profile_create(&profile, &err);
 *     pome_llm_session_profile(session, profile, &err);
 *     ... feed ...
 *     for (size_t i = 0; i < pome_profile_n_steps(profile); i++)
 *         show(pome_profile_step_at(profile, i));
 *
 * The times are one after the other and leave nothing out: their sum is pome_profile_seconds. Without a profile
 * nothing is measured. */
#ifndef POME_PROFILE_H
#define POME_PROFILE_H

#include "pome/llm.h"
#include "pome/predictor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pome_profile pome_profile;

/* Sums over all runs since the profile was made or cleared. */
typedef struct pome_profile_step {
    const char *op;         /* operator or fused group; "(inputs)", "(binding)", "(outputs)" for what is around them */
    const char *name;       /* of its first result in the program */
    uint64_t n_runs;
    double seconds;
    uint64_t weights_bytes; /* read from constants, as they lie in memory; a gather reads the rows that it takes */
    uint64_t n_ops;         /* multiplications and additions of matrix products, convolutions and attention */
} pome_profile_step;

POME_API POME_NODISCARD pome_status pome_profile_create(pome_profile **out, pome_error *err);
/* Nothing may be measuring into it any more. Names in it belong to the models, which must still be open. */
POME_API void pome_profile_destroy(pome_profile **profile);
POME_API void pome_profile_clear(pome_profile *profile); /* all sums to zero */

POME_API size_t pome_profile_n_steps(const pome_profile *profile); /* in order of execution, per plan */
POME_API const pome_profile_step *pome_profile_step_at(const pome_profile *profile, size_t index);
POME_API uint64_t pome_profile_n_runs(const pome_profile *profile); /* predictions */
POME_API double pome_profile_seconds(const pome_profile *profile);  /* from begin to end of each prediction */

/* Measures into `profile`, which several predictors of one thread may share; NULL ends it. Errors: NOMEM. */
POME_API POME_NODISCARD pome_status pome_predictor_profile(pome_predictor *predictor, pome_profile *profile,
                                                           pome_error *err);
POME_API POME_NODISCARD pome_status pome_llm_session_profile(pome_llm_session *session, pome_profile *profile,
                                                             pome_error *err);

#ifdef __cplusplus
}
#endif
#endif

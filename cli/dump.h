/* Watching a prediction: keeping intermediate results, and finding the first one that is not finite. */
#ifndef POME_CLI_DUMP_H
#define POME_CLI_DUMP_H

#include "options.h"
#include "pome/predictor.h"

typedef struct dump_array {
    char *name;
    pome_tensor tensor;
} dump_array;

typedef struct dump {
    const option_list *wanted; /* names of results, or "all" */
    bool check_finite;
    dump_array *arrays;        /* [n] the kept ones, in the order they were computed */
    size_t n, n_room;
    bool is_short;             /* memory ran out */
    bool has_fault;            /* check_finite: a NaN or infinity was seen first in: */
    char fault[400];
} dump;

void dump_start(dump *d, pome_predictor *predictor);
/* An output as the caller gets it: rounding to its declared type may have made it infinite. */
void dump_see_output(dump *d, const char *name, const pome_tensor *t);
/* After the run. Errors: ARG (a wanted result never came, or a result was not finite), NOMEM. */
pome_status dump_finish(const dump *d, pome_error *err);
void dump_reset(dump *d);

#endif

/* Inside of a state; pome/predictor.h is the outside. */
#ifndef POME_RUNTIME_STATE_H
#define POME_RUNTIME_STATE_H

#include "pome/predictor.h"
#include "runtime/model.h"

struct pome_state {
    uint32_t n;
    const pome_feature *features; /* [n] of the function it was made for */
    pome_tensor t[];              /* [n] */
};

#endif

/* Inside of a predictor; pome/predictor.h is the outside. */
#ifndef POME_RUNTIME_PREDICTOR_H
#define POME_RUNTIME_PREDICTOR_H

#include "base/stop.h"
#include "pome/predictor.h"

/* Stops by a wish that several predictors share, instead of its own. Borrowed; NULL: by nobody's. */
void pome_predictor_stop_by(pome_predictor *predictor, pome_stop *stop);

#endif

/* Inputs of a prediction, from .npy and .npz files and images. */
#ifndef POME_CLI_FEEDS_H
#define POME_CLI_FEEDS_H

#include "pome/predictor.h"

typedef struct feeds {
    const pome_function_info *function;
    pome_predictor *predictor;
    pome_tensor *tensors; /* [n_inputs] what the predictor borrows; zeroed: not given */
    bool *is_given;       /* [n_inputs] */
} feeds;

/* The function of that name (NULL: the default one); ARG with the names that there are. */
pome_status feeds_find_function(const pome_function_info **out, const pome_model *model, const char *name,
                                pome_error *err);
pome_status feeds_init(feeds *f, const pome_function_info *function, pome_predictor *predictor, pome_error *err);
void feeds_reset(feeds *f); /* the predictor must not run afterwards */
/* Takes what --input says: NAME=FILE or FILE.npz, and gives it to the predictor. */
pome_status feeds_take(feeds *f, const char *text, pome_error *err);
/* ARG with the names of inputs that are needed and were not given. */
pome_status feeds_check(const feeds *f, pome_error *err);

/* Appends a name to a list in text, cut at its size. */
void list_name(char *text, size_t size, const char *name);

#endif

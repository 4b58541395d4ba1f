/* What a prediction gave: listed, shown, written to files. */
#ifndef POME_CLI_OUTPUTS_H
#define POME_CLI_OUTPUTS_H

#include "dump.h"
#include "pome/predictor.h"

typedef struct output {
    const char *name;
    const pome_tensor *tensor;   /* borrowed */
    const pome_feature *feature; /* NULL: a dumped intermediate result */
    pome_classes classes;        /* of a classifier's label and probabilities */
} output;

typedef struct output_list {
    output *items;
    size_t n;
} output_list;

/* The outputs of the last run, then the dumped results that are no outputs. */
pome_status outputs_list(output_list *out, const pome_model *model, uint32_t function, const pome_predictor *predictor,
                         const dump *dumped, pome_error *err);
void outputs_free(output_list *list);

/* Into a folder: NAME.npy, an image as NAME.png, a label or probabilities as NAME.json; or all into one .npz file, where
 * pixels and probabilities are arrays and a label is its place in the list of classes. */
pome_status outputs_save(const char *path, const output_list *list, pome_error *err);
/* Shape and range of arrays, labels, the likeliest classes. Gives the exit status. */
int outputs_show(const output_list *list, bool as_json);

/* Smallest, largest and mean of the finite elements. */
typedef struct output_range {
    double min, max, mean;
    int64_t n_finite, n_nan, n_infinite;
} output_range;
pome_status outputs_range(output_range *r, const pome_tensor *t, pome_error *err);

#endif

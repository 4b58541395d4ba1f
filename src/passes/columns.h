/* Programs over a window of a fixed number of positions, made to take any number of them. Such a program computes all
 * columns of its window in every call, with the keys and values of earlier columns as inputs. Where it treats columns
 * independently but for attention, only those that are new need computing: the others' keys and values are kept.
 *
 * The rewritten function takes n columns, 1 <= n <= the window's, of each input that has the window in its shape: any
 * number, or a fixed one, for which more fusions apply. Each
 * pair of a cache input [.., cached, ..] and an output of new columns becomes a state [.., cached + window, ..]: the n
 * new columns are written from first_column of its axis on, an int32 input [1] that is added if there are caches, and attention reads the
 * whole state. What an attention mask hides may hold anything finite. */
#ifndef POME_PASSES_COLUMNS_H
#define POME_PASSES_COLUMNS_H

#include "base/error.h"
#include "mil/program.h"

/* The window in an input's shape: one axis, or two that follow each other (8 x 8). */
typedef struct pome_columns_input {
    uint32_t input; /* of the function */
    int32_t axis;
    bool is_pair;
} pome_columns_input;

typedef struct pome_columns_cache {
    uint32_t input, output;
} pome_columns_cache;

typedef struct pome_columns {
    int64_t n_window;
    int64_t n_columns;              /* per call; 0: any number */
    const pome_columns_input *inputs; /* [n_inputs] all that are not caches, ascending */
    uint32_t n_inputs;
    const pome_columns_cache *caches; /* [n_caches] */
    uint32_t n_caches;
    pome_dtype cache_dtype;           /* of the states: F16 or F32 */
} pome_columns;

/* Rewrites fn, a function of its own arena's making, of fixed shapes. Its inputs become the window's in their order,
 * first_column, then a state for each cache, called like the cache input; its outputs are those that were not caches.
 * Errors: UNSUPPORTED with the operator that mixes columns: fn is then spoilt. */
pome_status pome_columns_narrow(pome_function *fn, const pome_columns *columns, pome_error *err);


#endif

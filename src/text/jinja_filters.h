/* Between the two files of filters. */
#ifndef POME_TEXT_JINJA_FILTERS_H
#define POME_TEXT_JINJA_FILTERS_H

#include "text/jinja_eval.h"

typedef pome_jinja_run jrun;
typedef const pome_jv *const *slots_t; /* bound arguments; NULL: not given */

typedef struct pome_jinja_filter_row {
    const char *name;
    pome_status (*call)(jrun *run, const pome_jv *input, slots_t a, pome_jv *out);
    const char *parameters;
} pome_jinja_filter_row;

const pome_jinja_filter_row *pome_jinja_find_list_filter(pome_str name); /* NULL: none */
/* map, select, reject, selectattr, rejectattr. */
pome_status pome_jinja_open_filter(jrun *run, pome_str name, const pome_jv *input, const pome_jinja_args *args,
                                   pome_jv *out);

#endif

/* Between print.c and print_flexible.c. */
#ifndef POME_MIL_PRINT_WRITER_H
#define POME_MIL_PRINT_WRITER_H

#include "mil/print.h"

typedef struct pome_printer pome_printer;

void pome_printer_put(pome_printer *p, const char *text);
void pome_printer_string(pome_printer *p, const char *text); /* in quotes */
void pome_printer_scalar(pome_printer *p, const char *dtype); /* the type */

/* "[FlexibleShapeInformation = ...] " if the description of the function has inputs of flexible shape. */
void pome_print_flexible_shapes(pome_printer *p, const pome_model_info *info, const char *function);

#endif

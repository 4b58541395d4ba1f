/* Tables that lie beside models: a row per token (embeddings) or per position (rotary). */
#ifndef POME_LLM_ROW_TABLE_H
#define POME_LLM_ROW_TABLE_H

#include "base/file.h"
#include "pome/tensor.h"

typedef enum pome_row_kind { POME_ROWS_F16, POME_ROWS_F32, POME_ROWS_I8 } pome_row_kind;

typedef struct pome_row_table {
    pome_row_kind kind;
    pome_mapping *data, *scales; /* scales: fp16 for each row of POME_ROWS_I8 */
    size_t offset;               /* of the first row */
    int64_t n_rows, dim;
    float factor;                /* of every element */
    double rotary_base;          /* > 0: no file, rows are the cosines or sines of position / base^(2i / dim) */
    bool is_sine;
} pome_row_table;

/* fp16 rows without a header ("embed_weight.bin"). Errors: IO, FORMAT (no whole rows of dim). */
pome_status pome_row_table_open_f16(pome_row_table *out, const char *path, int64_t dim, pome_error *err);
/* int8 rows, value = code * scale / 127 * factor, and a file of fp16 scales. Errors: IO, FORMAT (sizes disagree). */
pome_status pome_row_table_open_i8(pome_row_table *out, const char *path, const char *scales, int64_t dim, float factor,
                                   pome_error *err);
/* A .npy file of fp16 or fp32 [n_rows, dim]. Errors: IO, FORMAT. */
pome_status pome_row_table_open_npy(pome_row_table *out, const char *path, int64_t dim, pome_error *err);
void pome_row_table_close(pome_row_table *table);
/* to[dim]; zeros for a row that there is not. */
void pome_row_table_read(const pome_row_table *table, int64_t row, float *to);

#endif

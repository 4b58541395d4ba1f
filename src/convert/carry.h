/* What goes into the package beside the model: tokenizer, chat template, generation settings. */
#ifndef POME_CONVERT_CARRY_H
#define POME_CONVERT_CARRY_H

#include "convert/checkpoint.h"
#include "formats/mlpackage_writer.h"

/* Copies the files of a folder, or writes the metadata of a GGUF file as tokenizer.gguf. `what` becomes the name of the
 * file that holds the vocabulary, or "". Warns if that cannot be used. Errors: IO, NOMEM, LIMIT (a file too large to be one). */
pome_status pome_carry_tokenizer(const pome_mlpackage_writer *w, const pome_checkpoint *c, char *what, size_t what_size,
                                 pome_error *err);

#endif

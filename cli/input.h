/* Reading what the user gives: standard input, lists of ids. */
#ifndef POME_CLI_INPUT_H
#define POME_CLI_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Standard input whole, without the last line end, malloc'ed. NULL with errno set. */
char *read_stdin(void);
/* "1,2,3" or "1 2 3" as a malloc'ed array; false with a reason. */
bool parse_ids(const char *text, int32_t **ids, size_t *n_ids, char *reason, size_t reason_size);

#endif

/* Opening a language model as --function, --contract and --map say. */
#ifndef POME_CLI_LLM_OPEN_H
#define POME_CLI_LLM_OPEN_H

#include "command.h"
#include "pome/llm.h"

/* Errors: those of pome_llm_open_set; ARG for a --map that is not ROLE=NAME. */
pome_status open_llm(pome_llm **out, const pome_model_set *models, const llm_args *args, int64_t context,
                     pome_error *err);

#endif

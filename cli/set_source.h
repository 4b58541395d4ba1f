/* The options that coreml-llm-cli has for where a set of chunks is, and what becomes of them. */
#ifndef POME_CLI_SET_SOURCE_H
#define POME_CLI_SET_SOURCE_H

#include "command.h"
#include "pome/generate.h"

typedef struct set_source {
    const char *repo_id, *folder, *prefix, *cache_processor, *logit_processor, *tokenizer_name;
} set_source;

#define OPTIONS_SET_SOURCE(type, member)                                                                                \
    {"repo-id", 0, NULL, OPTION_TEXT, "OWNER/NAME", offsetof(type, member.repo_id), 0, 0, false,                        \
     "The model is this repository of the local Hub cache; the first argument is then the prompt"},                     \
    {"local-model-directory", 0, NULL, OPTION_TEXT, "DIR", offsetof(type, member.folder), 0, 0, false,                  \
     "The model is this folder; the first argument is then the prompt"},                                                \
    {"local-model-prefix", 0, NULL, OPTION_TEXT, "PREFIX", offsetof(type, member.prefix), 0, 0, false,                  \
     "Of several sets of chunks in a folder take PREFIX_chunk1, PREFIX_chunk2 and so on"},                              \
    {"cache-processor-model-name", 0, NULL, OPTION_TEXT, "FILE", offsetof(type, member.cache_processor), 0, 0, false,   \
     "The set's cache processor (found by its inputs)"},                                                                \
    {"logit-processor-model-name", 0, NULL, OPTION_TEXT, "FILE", offsetof(type, member.logit_processor), 0, 0, false,   \
     "The set's logit processor (found by its inputs)"},                                                                \
    {"tokenizer-name", 0, NULL, OPTION_TEXT, "OWNER/NAME", offsetof(type, member.tokenizer_name), 0, 0, false,          \
     "Take the tokenizer of this repository of the local Hub cache"}

/* Whether the options name the model, so that no operand does. */
bool set_source_names_model(const set_source *source);
/* "give one of --repo-id and --local-model-directory"; NULL: nothing is wrong. */
const char *set_source_check(const set_source *source);
/* Opens the models at `path`, or where the options say if it is NULL. */
pome_status set_source_open(pome_model_set **out, const set_source *source, const char *path, const common_args *common,
                            pome_error *err);
/* The tokenizer: `path` (--tokenizer), --tokenizer-name, what lies with the models, or what that command infers from a
 * Llama's name. */
pome_status set_source_tokenizer(pome_tokenizer **out, const set_source *source, const pome_model_set *models,
                                 const char *path, pome_error *err);

#endif

/* What the verbs share: messages, standard output that may fail, models, interruption. */
#ifndef POME_CLI_COMMAND_H
#define POME_CLI_COMMAND_H

#include "options.h"
#include "pome/model_set.h"

typedef struct json_t json_t;

/* Exit status of a failure: prints "pome: message" and gives 1. */
int fail_with(const pome_error *err);
int fail_text(const char *fmt, ...) POME_PRINTF(1, 2);
/* A remark on stderr unless --quiet. */
void note(const common_args *common, const char *fmt, ...) POME_PRINTF(2, 3);

/* Flushes standard output and gives the exit status: `status`, or 1 with a message if a write failed. */
int finish_output(int status);
/* Writes `document` with a newline and frees it; keys keep their order. NULL: out of memory. */
int print_json(json_t *document);
/* The same on one line, for streams of answers. */
int print_json_line(json_t *document);

/* Shows the library's log on stderr: warnings, or with --verbose everything. */
void listen_to_log(const common_args *common);
/* Opens a model with the common options. */
pome_status open_model(pome_model **out, const char *path, const common_args *common, pome_error *err);
/* The same for a model, or a folder of models that are run together. */
pome_status open_models(pome_model_set **out, const char *path, const common_args *common, pome_error *err);
/* With a choice among a folder's models; opts begin as set_opts leaves them. */
void set_opts(pome_model_set_opts *opts, const common_args *common);
pome_status open_model_set(pome_model_set **out, const char *path, const pome_model_set_opts *opts,
                           const common_args *common, pome_error *err);

/* SIGINT: the first sets a flag and calls `hook` (async-signal-safe), a second one ends the process. Calls of the system
 * go on after it, so reads that may wait for somebody are preceded by poll() with interrupt_descriptor(). */
void interrupt_catch(void (*hook)(void *), void *arg);
void interrupt_release(void);
bool interrupt_happened(void);
void interrupt_forget(void);
/* Readable once an interrupt happened, until it is forgotten; for poll(). A signal may come just before a read
 * begins, or be handled by another thread: then no read would return for it. -1 if it cannot be had. */
int interrupt_descriptor(void);
enum { EXIT_INTERRUPTED = 130 };

/* A JSON string from any bytes: what is no valid UTF-8 loses its non-ASCII bytes. */
json_t *json_text(const char *text);

double now_s(void);
uint64_t peak_memory_bytes(void);

#endif

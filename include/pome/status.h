/* Status codes and error details. Every fallible function of Pome returns a pome_status and takes
 * a `pome_error *err` last, which may be NULL. On failure outputs are untouched. */
#ifndef POME_STATUS_H
#define POME_STATUS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define POME_NODISCARD __attribute__((warn_unused_result))
#define POME_PRINTF(fmt_index, first_arg) __attribute__((format(printf, fmt_index, first_arg)))
#define POME_API __attribute__((visibility("default")))
#else
#define POME_NODISCARD
#define POME_PRINTF(fmt_index, first_arg)
#define POME_API
#endif

/* Each code asks something different of the caller. */
typedef enum pome_status {
    POME_OK = 0,
    POME_ERR_NOMEM,       /* memory could not be had: use less or try again */
    POME_ERR_IO,          /* the system refused a file: look at the path, rights, disk */
    POME_ERR_FORMAT,      /* the bytes are not what they claim to be: get the file again */
    POME_ERR_UNSUPPORTED, /* a valid request that this build cannot fulfil: the text names it */
    POME_ERR_ARG,         /* the caller's argument does not fit: correct the call */
    POME_ERR_LIMIT,       /* a limit (context, size, count) was met: raise it or ask for less */
    POME_ERR_STATE,       /* the object is not in a state for this call */
    POME_ERR_CANCELLED    /* stopped on request */
} pome_status;

/* Details of a failure. `offset` is a byte position in the file concerned, 0 where none applies. */
typedef struct pome_error {
    pome_status code;
    uint64_t offset;
    char message[1024]; /* one sentence, NUL-terminated: the thing, what was found, what was wanted */
} pome_error;

/* Asks whether something that runs should stop. Called by the thread that runs it, before each operator: it should cost
 * little, and may take locks now and then. */
typedef bool pome_poll(void *arg);

/* The name of a code, such as "POME_ERR_FORMAT"; never NULL. */
POME_API const char *pome_status_name(pome_status code);

/* Library version, "major.minor.patch". */
POME_API const char *pome_version(void);

#ifdef __cplusplus
}
#endif
#endif

#include "command.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "pome/log.h"

int fail_with(const pome_error *err)
{
    fflush(stdout);
    fprintf(stderr, "pome: %s\n", err->message[0] ? err->message : pome_status_name(err->code));
    return 1;
}

int fail_text(const char *fmt, ...)
{
    va_list ap;
    fflush(stdout);
    fputs("pome: ", stderr);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    return 1;
}

void note(const common_args *common, const char *fmt, ...)
{
    va_list ap;
    if (common->quiet)
        return;
    fputs("pome: ", stderr);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
}

int finish_output(int status)
{
    static bool is_told;
    errno = 0;
    bool has_failed = fflush(stdout) != 0 || ferror(stdout);
    if (!has_failed)
        return status;
    if (!is_told)
        fprintf(stderr, "pome: cannot write to standard output: %s\n", errno ? strerror(errno) : "an earlier write failed");
    is_told = true;
    return status ? status : 1;
}

json_t *json_text(const char *text)
{
    json_t *valid = json_string(text);
    char *copy = valid ? NULL : strdup(text);
    for (char *c = copy; c && *c; c++)
        *c = (unsigned char)*c < 0x80 ? *c : '?';
    if (copy)
        valid = json_string(copy);
    free(copy);
    return valid;
}

static int dump_json(json_t *document, size_t flags)
{
    if (!document)
        return fail_text("out of memory");
    json_dumpf(document, stdout, flags); /* a failed write shows in the stream */
    json_decref(document);
    putchar('\n');
    return finish_output(0);
}

int print_json(json_t *document)
{
    return dump_json(document, JSON_INDENT(2));
}

int print_json_line(json_t *document)
{
    return dump_json(document, JSON_COMPACT);
}

static void write_log(void *arg, pome_log_level level, const char *message)
{
    const common_args *common = arg;
    if (level == POME_LOG_WARN && !common->quiet)
        fprintf(stderr, "pome: warning: %s\n", message);
    else if (common->verbose)
        fprintf(stderr, "pome: %s\n", message);
}

void listen_to_log(const common_args *common)
{
    pome_log_set(write_log, (void *)common);
}

static pome_model_opts model_opts(const common_args *common)
{
    pome_model_opts opts;
    pome_model_opts_default(&opts);
    opts.numerics = (pome_numerics)common->numerics;
    opts.n_threads = (int)common->threads;
    opts.no_fuse = common->no_fuse;
    return opts;
}

/* Says so if `path` meant a file inside the model. */
static void note_folder(const pome_model *model, const char *path, const common_args *common)
{
    const char *folder = pome_model_describe(model)->path;
    if (strncmp(path, folder, strlen(folder)) == 0 && strspn(path + strlen(folder), "/") < strlen(path + strlen(folder)))
        note(common, "%s lies inside the model %s, which is used", path, folder);
}

pome_status open_model(pome_model **out, const char *path, const common_args *common, pome_error *err)
{
    pome_model_opts opts = model_opts(common);
    listen_to_log(common);
    pome_status status = pome_model_open(out, path, &opts, err);
    if (status == POME_OK)
        note_folder(*out, path, common);
    return status;
}

void set_opts(pome_model_set_opts *opts, const common_args *common)
{
    pome_model_set_opts_default(opts);
    opts->model = model_opts(common);
}

pome_status open_models(pome_model_set **out, const char *path, const common_args *common, pome_error *err)
{
    pome_model_set_opts opts;
    set_opts(&opts, common);
    return open_model_set(out, path, &opts, common, err);
}

pome_status open_model_set(pome_model_set **out, const char *path, const pome_model_set_opts *opts,
                           const common_args *common, pome_error *err)
{
    listen_to_log(common);
    pome_status status = pome_model_set_open(out, path, opts, err);
    if (status == POME_OK && pome_model_set_count(*out) == 1)
        note_folder(pome_model_set_model(*out, 0), path, common);
    return status;
}

/* ---- interruption ---- */

static volatile sig_atomic_t is_interrupted;
static void (*interrupt_hook)(void *);
static void *interrupt_arg;
static int interrupt_pipe[2] = {-1, -1};

static void on_interrupt(int signal_number)
{
    if (is_interrupted) {
        signal(signal_number, SIG_DFL);
        raise(signal_number);
        return;
    }
    int saved = errno;
    is_interrupted = 1;
    if (interrupt_pipe[1] >= 0 && write(interrupt_pipe[1], "", 1) < 0)
        errno = saved; /* full: then it is readable already */
    if (interrupt_hook)
        interrupt_hook(interrupt_arg);
    errno = saved;
}

/* With SA_RESTART: a write of an answer that waits for the terminal goes on, it does not fail. Who waits for input polls. */
void interrupt_catch(void (*hook)(void *), void *arg)
{
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    interrupt_hook = hook;
    interrupt_arg = arg;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

void interrupt_release(void)
{
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    interrupt_hook = NULL;
}

bool interrupt_happened(void)
{
    return is_interrupted;
}

void interrupt_forget(void)
{
    char drained[64];
    while (interrupt_pipe[0] >= 0 && read(interrupt_pipe[0], drained, sizeof drained) > 0)
        continue;
    is_interrupted = 0;
}

int interrupt_descriptor(void)
{
    if (interrupt_pipe[0] < 0 && pipe2(interrupt_pipe, O_CLOEXEC | O_NONBLOCK) != 0)
        interrupt_pipe[0] = interrupt_pipe[1] = -1;
    return interrupt_pipe[0];
}

double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

uint64_t peak_memory_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024 : 0;
}

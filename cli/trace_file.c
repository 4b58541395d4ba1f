#include "trace_file.h"

#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pome/trace.h"

static FILE *file;
static const char *file_path;
static uint64_t n_events;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void write_event(void *arg, const pome_trace_event *e)
{
    json_t *name = json_text(e->name);
    char *text = name ? json_dumps(name, JSON_ENCODE_ANY) : NULL;
    (void)arg;
    pthread_mutex_lock(&lock);
    fprintf(file, "%s{\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"cat\":\"%s\",\"name\":%s,\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"step\":%lld}}",
            n_events++ ? ",\n" : "", e->thread, e->what, text ? text : "\"\"", (double)e->begin_ns / 1e3,
            (double)(e->end_ns - e->begin_ns) / 1e3, (long long)e->step);
    pthread_mutex_unlock(&lock);
    free(text);
    json_decref(name);
}

pome_status trace_file_open(const char *path, pome_error *err)
{
    file = fopen(path, "w");
    if (!file) {
        if (err) {
            err->code = POME_ERR_IO;
            snprintf(err->message, sizeof err->message, "cannot write %s: %s", path, strerror(errno));
        }
        return POME_ERR_IO;
    }
    file_path = path;
    n_events = 0;
    fputs("{\"traceEvents\":[\n", file);
    pome_trace_set(write_event, NULL);
    return POME_OK;
}

int trace_file_close(void)
{
    if (!file)
        return 0;
    pome_trace_set(NULL, NULL);
    fputs("\n]}\n", file);
    bool has_failed = ferror(file) != 0;
    has_failed = fclose(file) != 0 || has_failed;
    file = NULL;
    return has_failed ? fail_text("cannot write %s: %s", file_path, strerror(errno)) : 0;
}

/* The pome command: finds the verb, parses its options, runs it. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "verbs.h"

static int fail_unknown_verb(const char *name)
{
    const char *words[32];
    size_t n = 0;
    for (const verb *const *v = verbs; *v && n + 3 < sizeof words / sizeof words[0]; v++)
        words[n++] = (*v)->name;
    words[n++] = "help";
    words[n++] = "completion";
    words[n] = NULL;
    const char *meant = closest_word(name, words);
    fprintf(stderr, "pome: no verb '%s'%s%s%s (see pome --help)\n", name, meant ? "; did you mean '" : "",
            meant ? meant : "", meant ? "'?" : "");
    return EXIT_USAGE;
}

static int show_completion(const char *shell)
{
    if (shell && completion_print(stdout, shell))
        return 0;
    fprintf(stderr, "usage: pome completion bash|zsh|fish\n");
    return EXIT_USAGE;
}

static int show_help(const char *name)
{
    const verb *v = name ? verb_find(name) : NULL;
    if (name && !v)
        return fail_unknown_verb(name);
    if (v)
        help_print(stdout, v);
    else
        help_print_overview(stdout);
    return 0;
}

/* For packagers: DIR/pome-VERB.1 for every verb. */
static int write_man_pages(const char *folder)
{
    for (const verb *const *v = verbs; *v && folder; v++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/pome-%s.1", folder, (*v)->name);
        FILE *to = fopen(path, "w");
        bool is_written = to != NULL;
        if (to) {
            help_print_man(to, *v);
            is_written = !ferror(to);
            is_written = fclose(to) == 0 && is_written;
        }
        if (!is_written)
            return fail_text("%s: %s", path, strerror(errno));
    }
    return folder ? 0 : EXIT_USAGE;
}

static int run_verb(const verb *v, int argc, char **argv)
{
    const char **operands = NULL;
    int n_operands = 0;
    void *args = calloc(1, v->args_size);
    if (!args)
        return fail_text("out of memory");
    int status = options_parse(v, argc, argv, args, &operands, &n_operands);
    const common_args *common = args;
    if (status == 0 && common->help)
        help_print(stdout, v);
    else if (status == 0 && common->help_man)
        help_print_man(stdout, v);
    else if (status == 0)
        status = v->run(args, operands, n_operands);
    options_free(v, args, operands);
    free(args);
    return status;
}

static int run_command(int argc, char **argv)
{
    if (argc < 2) {
        help_print_overview(stderr);
        return EXIT_USAGE;
    }
    const char *word = argv[1], *next = argc > 2 ? argv[2] : NULL;
    if (strcmp(word, "--version") == 0 || strcmp(word, "version") == 0) {
        printf("pome %s\n", pome_version());
        return 0;
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0)
        return show_help(next);
    if (strcmp(word, "--write-man") == 0)
        return write_man_pages(next);
    if (strcmp(word, "completion") == 0)
        return show_completion(next);
    const verb *v = verb_find(word);
    return v ? run_verb(v, argc - 2, argv + 2) : fail_unknown_verb(word);
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN); /* a closed pipe is a failed write, with a message */
    signal(SIGXFSZ, SIG_IGN); /* and so is a file beyond the limit on sizes */
    return finish_output(run_command(argc, argv));
}

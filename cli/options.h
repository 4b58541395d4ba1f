/* One table of options per verb. Parsing, environment, `--help`, man pages and shell completion all read it. */
#ifndef POME_CLI_OPTIONS_H
#define POME_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The C type behind an option in the verb's struct of arguments. */
typedef enum option_kind {
    OPTION_FLAG,   /* bool */
    OPTION_INT,    /* int64_t in [min, max] */
    OPTION_REAL,   /* double in [min, max] */
    OPTION_TEXT,   /* const char * */
    OPTION_LIST,   /* option_list: may be repeated */
    OPTION_CHOICE  /* int: index into `value`, words separated by | */
} option_kind;

typedef struct option_list {
    const char **items; /* [n], borrowed from argv */
    size_t n;
} option_list;

typedef struct option {
    const char *name;  /* without dashes; NULL ends the table */
    char letter;       /* -x; 0: none */
    const char *alias; /* another long name, for habits from elsewhere; NULL: none */
    option_kind kind;
    const char *value; /* how the value is called in the help */
    size_t offset;     /* in the verb's struct of arguments */
    double min, max;
    bool is_setting;   /* may also come from the environment (POME_NAME) and the config file */
    const char *help;  /* one sentence without a period; the default in parentheses */
} option;

/* What every verb's struct of arguments begins with. */
typedef struct common_args {
    bool json, quiet, verbose, help, help_man;
    int64_t threads;
    int numerics;
    const char *no_fuse;
    char *config; /* the config file's text, into which settings may point */
} common_args;

#define OPTION_AT(type, member) offsetof(type, common.member)
#define OPTIONS_OUTPUT(type)                                                                                            \
    {"json", 0, NULL, OPTION_FLAG, NULL, OPTION_AT(type, json), 0, 0, false, "Write the result as JSON"},               \
    {"quiet", 'q', NULL, OPTION_FLAG, NULL, OPTION_AT(type, quiet), 0, 0, false, "No notes or warnings on stderr"},     \
    {"verbose", 'v', NULL, OPTION_FLAG, NULL, OPTION_AT(type, verbose), 0, 0, false, "Say more on stderr"},             \
    {"help", 'h', NULL, OPTION_FLAG, NULL, OPTION_AT(type, help), 0, 0, false, "Show this help"},                       \
    {"help-man", 0, NULL, OPTION_FLAG, NULL, OPTION_AT(type, help_man), 0, 0, false, NULL}
#define OPTIONS_ENGINE(type, numerics_default)                                                                          \
    {"threads", 't', NULL, OPTION_INT, "N", OPTION_AT(type, threads), 0, 4096, true,                                    \
     "Threads to use (0: as many as the process may)"},                                                                 \
    {"numerics", 0, NULL, OPTION_CHOICE, "exact|fast|fp16", OPTION_AT(type, numerics), 0, 0, true,                      \
     "Arithmetic: exact, fast (int8 activations allowed), or fp16 as a half-precision device (" numerics_default ")"},   \
    {"no-fuse", 0, NULL, OPTION_TEXT, "NAME[,..]|all", OPTION_AT(type, no_fuse), 0, 0, true,                            \
     "Leave out fusions of operators, by name as inspect --plan lists them"}

/* What a verb says about the language model that it opens. */
typedef struct llm_args {
    const char *function, *contract;
    option_list map;
    bool whole_windows;
} llm_args;

#define OPTIONS_LLM(type, member)                                                                                       \
    {"function", 0, NULL, OPTION_TEXT, "NAME", offsetof(type, member.function), 0, 0, false,                            \
     "Function of the package (its default)"},                                                                          \
    OPTIONS_CONTRACT(type, member)
#define OPTIONS_CONTRACT(type, member)                                                                                  \
    {"contract", 0, NULL, OPTION_TEXT, "NAME", offsetof(type, member.contract), 0, 0, false,                            \
     "How the model is fed, by a name from docs/contracts.md, instead of finding out"},                                 \
    {"map", 0, NULL, OPTION_LIST, "ROLE=NAME", offsetof(type, member.map), 0, 0, false,                                 \
     "The input or output NAME plays this part (ids, mask, position, logits, ...); may be repeated"},                            \
    {"whole-windows", 0, NULL, OPTION_FLAG, NULL, offsetof(type, member.whole_windows), 0, 0, false,                    \
     "Sets of chunks with a window: compute all its columns in every pass, not only the new ones; slow, for comparing"}

typedef struct verb {
    const char *name, *summary;
    const char *operands;        /* as in the usage line */
    const char *description;     /* paragraphs */
    const option *options;
    const char *const *examples; /* pairs of command and explanation; NULL ends */
    int n_operands_min, n_operands_max; /* -1: any number */
    size_t args_size;
    void (*set_defaults)(void *args);
    int (*run)(void *args, const char **operands, int n_operands);
} verb;

extern const verb *const verbs[]; /* NULL ends */
const verb *verb_find(const char *name);
/* The closest of `words` (NULL ends) if it is close enough to be meant, else NULL. */
const char *closest_word(const char *word, const char *const *words);

/* Exit status of wrong usage, with the reason on stderr. */
enum { EXIT_USAGE = 2 };

/* Fills `args` from defaults, config file, environment and argv[0..argc), in rising order. Operands go to
 * *operands (malloc'ed), lists into malloc'ed arrays; both live until options_free. 0 or EXIT_USAGE. */
int options_parse(const verb *v, int argc, char **argv, void *args, const char ***operands, int *n_operands);
void options_free(const verb *v, void *args, const char **operands);
/* Settings of the config file, lower than the environment: $XDG_CONFIG_HOME/pome/config or ~/.config/pome/config,
 * lines of NAME = VALUE or VERB.NAME = VALUE, # begins a comment. 0 (also without a file) or EXIT_USAGE. */
int config_apply(const verb *v, void *args);
/* Sets one option from text; false with a reason. Exposed for the tests. */
bool option_set(const option *o, void *args, const char *text, char *reason, size_t reason_size);

void help_print(FILE *to, const verb *v);
void help_print_overview(FILE *to);
void help_print_man(FILE *to, const verb *v);
/* Completion script for bash, zsh or fish; false for another shell. */
bool completion_print(FILE *to, const char *shell);

#endif

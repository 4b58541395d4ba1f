/* The command's options: parsing, refusals, environment, and what is generated from the tables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"

typedef struct test_args {
    common_args common;
    int64_t count;
    double share;
    const char *text;
    option_list list;
    bool flag;
} test_args;

static void set_defaults(void *args)
{
    test_args *a = args;
    a->count = 7;
    a->share = 0.5;
}

#define AT(member) offsetof(test_args, member)
static const option options[] = {
    {"count", 'n', "max-length", OPTION_INT, "N", AT(count), 0, 100, true, "A count (7)"},
    {"share", 0, NULL, OPTION_REAL, "P", AT(share), 0, 1, true, "A share"},
    {"text", 0, NULL, OPTION_TEXT, "TEXT", AT(text), 0, 0, false, "It's a text"},
    {"list", 0, NULL, OPTION_LIST, "TEXT", AT(list), 0, 0, false, "Several"},
    {"flag", 'f', NULL, OPTION_FLAG, NULL, AT(flag), 0, 0, false, "A flag"},
    OPTIONS_ENGINE(test_args, "exact"),
    OPTIONS_OUTPUT(test_args),
    {0},
};

static const char *const examples[] = {"pome try x", "tries", NULL};

static const verb verb_try = {
    .name = "try",
    .summary = "try options",
    .operands = "MODEL [MORE]",
    .description = "Tries.\n\nIn two paragraphs.",
    .options = options,
    .examples = examples,
    .n_operands_min = 1,
    .n_operands_max = 2,
    .args_size = sizeof(test_args),
    .set_defaults = set_defaults,
};

enum { ARGV_MAX = 16 };

typedef struct parsed {
    test_args args;
    const char **operands;
    int n_operands, status;
    char *argv[ARGV_MAX];
} parsed;

/* Parses words separated by one space each. Messages go to stderr, which the test runner shows. */
static void parse(parsed *p, const char *line)
{
    static char text[256];
    int argc = 0;
    memset(p, 0, sizeof *p);
    snprintf(text, sizeof text, "%s", line);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
        p->argv[argc++] = word;
    p->status = options_parse(&verb_try, argc, p->argv, &p->args, &p->operands, &p->n_operands);
}

static void release(parsed *p)
{
    options_free(&verb_try, &p->args, p->operands);
}

static void test_values(void **state)
{
    (void)state;
    parsed p;
    parse(&p, "m --count 12 --share=0.25 --text --flag --list a --list=b=c -f --numerics fp16 -t3 more");
    assert_int_equal(p.status, 0);
    assert_int_equal(p.args.count, 12);
    assert_true(p.args.share == 0.25);
    assert_string_equal(p.args.text, "--flag"); /* the next word is the value, whatever it looks like */
    assert_int_equal(p.args.list.n, 2);
    assert_string_equal(p.args.list.items[0], "a");
    assert_string_equal(p.args.list.items[1], "b=c");
    assert_true(p.args.flag);
    assert_int_equal(p.args.common.numerics, 2);
    assert_int_equal(p.args.common.threads, 3);
    assert_int_equal(p.n_operands, 2);
    assert_string_equal(p.operands[1], "more");
    release(&p);
}

static void test_forms(void **state)
{
    (void)state;
    parsed p;
    parse(&p, "m --max-length 3 -- --count");
    assert_int_equal(p.status, 0);
    assert_int_equal(p.args.count, 3); /* by its alias */
    assert_string_equal(p.operands[1], "--count");
    release(&p);
    parse(&p, "m -fqn 9 -");
    assert_int_equal(p.status, 0);
    assert_true(p.args.flag && p.args.common.quiet);
    assert_int_equal(p.args.count, 9);
    assert_string_equal(p.operands[1], "-"); /* a lone dash is an operand */
    release(&p);
    parse(&p, "m");
    assert_int_equal(p.args.count, 7);
    assert_true(p.args.share == 0.5);
    assert_false(p.args.flag);
    release(&p);
}

static void test_refusals(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",                    /* too few operands */
        "a b c",               /* too many */
        "m --cuont 3",         /* unknown */
        "m -x",
        "m --count",           /* no value */
        "m --count three",
        "m --count 3.5",
        "m --count 101",       /* out of range */
        "m --count -1",
        "m --count 99999999999999999999",
        "m --share nan",
        "m --share 1.01",
        "m --share inf",
        "m --flag=yes",        /* flags take none */
        "m --numerics exactly",
        "m --numerics exa",
        "m --numerics ",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        parsed p;
        parse(&p, bad[i]);
        if (p.status != EXIT_USAGE)
            fail_msg("accepted: %s", bad[i]);
        release(&p);
    }
}

static void test_help_needs_no_operands(void **state)
{
    (void)state;
    parsed p;
    parse(&p, "--help");
    assert_int_equal(p.status, 0);
    assert_true(p.args.common.help);
    release(&p);
}

static void test_environment(void **state)
{
    (void)state;
    parsed p;
    setenv("POME_COUNT", "5", 1);
    setenv("POME_TEXT", "not a setting", 1);
    setenv("POME_NUMERICS", "fast", 1);
    setenv("POME_SHARE", "", 1); /* as good as unset */
    parse(&p, "m");
    assert_int_equal(p.status, 0);
    assert_int_equal(p.args.count, 5);
    assert_int_equal(p.args.common.numerics, 1);
    assert_null(p.args.text);
    assert_true(p.args.share == 0.5);
    release(&p);
    parse(&p, "m --count 6");
    assert_int_equal(p.args.count, 6); /* the option wins */
    release(&p);
    setenv("POME_COUNT", "many", 1);
    parse(&p, "m");
    assert_int_equal(p.status, EXIT_USAGE);
    release(&p);
    unsetenv("POME_COUNT");
    unsetenv("POME_TEXT");
    unsetenv("POME_NUMERICS");
    unsetenv("POME_SHARE");
}

static void test_closest_word(void **state)
{
    (void)state;
    static const char *const words[] = {"predict", "inspect", "tokenize", "run", NULL};
    assert_string_equal(closest_word("predcit", words), "predict");
    assert_string_equal(closest_word("tokenise", words), "tokenize");
    assert_string_equal(closest_word("rnu", words), "run");
    assert_null(closest_word("serve", words));
    assert_null(closest_word("", words));
    char long_word[200];
    memset(long_word, 'a', sizeof long_word);
    long_word[199] = '\0';
    assert_null(closest_word(long_word, words));
}

static char *capture(void (*print)(FILE *, const verb *), const verb *v)
{
    char *text = NULL;
    size_t len = 0;
    FILE *to = open_memstream(&text, &len);
    assert_non_null(to);
    print(to, v);
    fclose(to);
    return text;
}

/* Every option that has a help text is shown, the hidden one is not, and no line is too long. */
static void test_help_shows_the_table(void **state)
{
    (void)state;
    char *help = capture(help_print, &verb_try), *man = capture(help_print_man, &verb_try);
    for (const option *o = options; o->name; o++) {
        char name[64];
        snprintf(name, sizeof name, "--%s", o->name);
        assert_int_equal(strstr(help, name) != NULL, o->help != NULL);
        char escaped[128] = "", *e = escaped;
        for (const char *c = name; *c; c++) {
            if (*c == '-')
                *e++ = '\\';
            *e++ = *c;
        }
        assert_int_equal(strstr(man, escaped) != NULL, o->help != NULL);
    }
    assert_non_null(strstr(help, "pome try x"));
    assert_non_null(strstr(help, "also --max-length"));
    for (char *line = strtok(help, "\n"); line; line = strtok(NULL, "\n"))
        assert_in_range(strlen(line), 0, 100);
    free(help);
    free(man);
}

int main(void)
{
    unsetenv("HOME"); /* no config file of the user's */
    unsetenv("XDG_CONFIG_HOME");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),       cmocka_unit_test(test_forms),
        cmocka_unit_test(test_refusals),     cmocka_unit_test(test_help_needs_no_operands),
        cmocka_unit_test(test_environment),  cmocka_unit_test(test_closest_word),
        cmocka_unit_test(test_help_shows_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

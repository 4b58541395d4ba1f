/* Help, man pages and completions, all from the tables of verbs and options. */
#include <string.h>

#include "options.h"
#include "pome/status.h"

enum { WIDTH = 100, INDENT = 30 };

/* Writes words from column `at`, wrapped at WIDTH, later lines at `indent`. */
static void wrap(FILE *to, const char *text, int at, int indent)
{
    int column = at;
    while (*text) {
        size_t len = strcspn(text, " \n");
        if (column > indent && column + 1 + (int)len > WIDTH) {
            fprintf(to, "\n%*s", indent, "");
            column = indent;
        } else if (column > indent) {
            fputc(' ', to);
            column++;
        }
        fwrite(text, 1, len, to);
        column += (int)len;
        text += len;
        while (*text == ' ')
            text++;
        if (*text == '\n') {
            while (*text == '\n')
                text++;
            fprintf(to, "\n\n%*s", indent, "");
            column = indent;
        }
    }
    fputc('\n', to);
}

/* "-t, --threads N" */
static int format_option(const option *o, char *text, size_t size)
{
    char letter[8] = "    ", value[160] = "";
    if (o->letter)
        snprintf(letter, sizeof letter, "-%c, ", o->letter);
    if (o->value)
        snprintf(value, sizeof value, " %s", o->value);
    return snprintf(text, size, "  %s--%s%s", letter, o->name, value);
}

void help_print(FILE *to, const verb *v)
{
    fprintf(to, "usage: pome %s %s [options]\n\n", v->name, v->operands);
    wrap(to, v->description, 0, 0);
    fprintf(to, "\nOptions:\n");
    for (const option *o = v->options; o->name; o++) {
        char text[256], help[1024];
        if (!o->help)
            continue;
        int len = format_option(o, text, sizeof text);
        fputs(text, to);
        if (len + 2 > INDENT)
            fprintf(to, "\n%*s", INDENT, "");
        else
            fprintf(to, "%*s", INDENT - len, "");
        snprintf(help, sizeof help, "%s%s%s", o->help, o->alias ? "; also --" : "", o->alias ? o->alias : "");
        wrap(to, help, INDENT, INDENT);
    }
    fprintf(to, "\nExamples:\n");
    for (const char *const *e = v->examples; e[0]; e += 2)
        fprintf(to, "  %s\n      %s\n", e[0], e[1]);
}

void help_print_overview(FILE *to)
{
    fprintf(to, "usage: pome VERB MODEL [options]\n\nRuns Core ML models on Linux.\n\nVerbs:\n");
    for (const verb *const *v = verbs; *v; v++)
        fprintf(to, "  %-12s %s\n", (*v)->name, (*v)->summary);
    fprintf(to, "\nMODEL is a .mlpackage or .mlmodelc folder or a file inside one.\n"
                "'pome VERB --help' shows the options of a verb with examples.\n"
                "Exit status: 0 done, 1 the work failed, 2 wrong usage, 130 interrupted.\n");
}

/* ---- man page ---- */

/* Text for troff: backslashes and leading dots or quotes protected, dashes real. */
static void put_troff(FILE *to, const char *text)
{
    bool is_start = true;
    for (; *text; text++) {
        if (is_start && (*text == '.' || *text == '\''))
            fputs("\\&", to);
        if (*text == '\\')
            fputs("\\e", to);
        else if (*text == '-')
            fputs("\\-", to);
        else if (*text == '|')
            fputs("|\\:", to); /* a line may end here */
        else if (*text == '\n')
            fputs(text[1] == '\n' ? "\n.PP" : "\n", to);
        else
            fputc(*text, to);
        is_start = *text == '\n';
    }
    fputc('\n', to);
}

void help_print_man(FILE *to, const verb *v)
{
    fprintf(to, ".TH POME-%s 1 \"\" \"Pome %s\" \"User Commands\"\n.SH NAME\n", v->name, pome_version());
    fprintf(to, "pome\\-%s \\- ", v->name);
    put_troff(to, v->summary);
    fprintf(to, ".SH SYNOPSIS\n.B pome %s\n", v->name);
    put_troff(to, v->operands);
    fprintf(to, "[options]\n.SH DESCRIPTION\n");
    put_troff(to, v->description);
    fprintf(to, ".SH OPTIONS\n");
    for (const option *o = v->options; o->name; o++) {
        char text[256];
        if (!o->help)
            continue;
        format_option(o, text, sizeof text);
        fprintf(to, ".TP\n.B ");
        put_troff(to, text + strspn(text, " "));
        put_troff(to, o->help);
        if (o->alias) {
            fprintf(to, "Also ");
            char alias[64];
            snprintf(alias, sizeof alias, "--%s.", o->alias);
            put_troff(to, alias);
        }
    }
    fprintf(to, ".SH EXIT STATUS\n0: done, 1: the work failed, 2: wrong usage, 130: interrupted.\n.SH EXAMPLES\n");
    for (const char *const *e = v->examples; e[0]; e += 2) {
        fprintf(to, ".PP\n.nf\n    ");
        put_troff(to, e[0]);
        fprintf(to, ".fi\n");
        put_troff(to, e[1]);
    }
}

/* ---- completion ---- */

static void list_verbs(FILE *to)
{
    for (const verb *const *v = verbs; *v; v++)
        fprintf(to, "%s%s", v == verbs ? "" : " ", (*v)->name);
}

/* The words of a choice, separated by spaces. */
static void list_choices(FILE *to, const option *o)
{
    for (const char *p = o->value; *p; p++)
        fputc(*p == '|' ? ' ' : *p, to);
}

static void print_bash(FILE *to)
{
    fprintf(to, "_pome() {\n  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
                "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n    COMPREPLY=($(compgen -W '");
    list_verbs(to);
    fprintf(to, "' -- \"$cur\"))\n    return\n  fi\n  case \"${COMP_WORDS[1]} $prev\" in\n");
    for (const verb *const *v = verbs; *v; v++)
        for (const option *o = (*v)->options; o->name; o++)
            if (o->kind == OPTION_CHOICE && o->help) {
                fprintf(to, "    '%s --%s') COMPREPLY=($(compgen -W '", (*v)->name, o->name);
                list_choices(to, o);
                fprintf(to, "' -- \"$cur\")); return ;;\n");
            }
    fprintf(to, "  esac\n  local options=\n  case ${COMP_WORDS[1]} in\n");
    for (const verb *const *v = verbs; *v; v++) {
        fprintf(to, "    %s) options='", (*v)->name);
        for (const option *o = (*v)->options; o->name; o++)
            if (o->help)
                fprintf(to, "--%s ", o->name);
        fprintf(to, "' ;;\n");
    }
    fprintf(to, "  esac\n  case $cur in\n    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$cur\")) ;;\n"
                "    *) compopt -o default; COMPREPLY=() ;;\n  esac\n}\ncomplete -F _pome pome\n");
}

/* Help text inside single quotes and brackets of zsh's _arguments. */
static void put_zsh(FILE *to, const char *text)
{
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", to);
        else {
            if (strchr("[]:\\", *text))
                fputc('\\', to);
            fputc(*text, to);
        }
    }
}

static void print_zsh(FILE *to)
{
    fprintf(to, "#compdef pome\n_pome() {\n  local -a verbs\n  verbs=(\n");
    for (const verb *const *v = verbs; *v; v++) {
        fprintf(to, "    '%s:", (*v)->name);
        put_zsh(to, (*v)->summary);
        fprintf(to, "'\n");
    }
    fprintf(to, "  )\n  if (( CURRENT == 2 )); then\n    _describe verb verbs\n    return\n  fi\n"
                "  local verb=$words[2]\n  shift words\n  (( CURRENT-- ))\n  case $verb in\n");
    for (const verb *const *v = verbs; *v; v++) {
        fprintf(to, "    %s) _arguments '*:argument:_files'", (*v)->name);
        for (const option *o = (*v)->options; o->name; o++) {
            if (!o->help)
                continue;
            fprintf(to, " \\\n      '%s--%s%s[", o->kind == OPTION_LIST ? "*" : "", o->name,
                    o->kind == OPTION_FLAG ? "" : "=");
            put_zsh(to, o->help);
            fputc(']', to);
            if (o->kind == OPTION_CHOICE) {
                fprintf(to, ":%s:(", o->name);
                list_choices(to, o);
                fputc(')', to);
            } else if (o->kind != OPTION_FLAG) {
                fprintf(to, ":%s:%s", o->name, o->kind == OPTION_TEXT || o->kind == OPTION_LIST ? "_files" : "");
            }
            fputc('\'', to);
        }
        fprintf(to, " ;;\n");
    }
    fprintf(to, "  esac\n}\n_pome \"$@\"\n");
}

static void put_fish(FILE *to, const char *text)
{
    for (; *text; text++) {
        if (*text == '\'' || *text == '\\')
            fputc('\\', to);
        fputc(*text, to);
    }
}

static void print_fish(FILE *to)
{
    for (const verb *const *v = verbs; *v; v++) {
        fprintf(to, "complete -c pome -n __fish_use_subcommand -f -a %s -d '", (*v)->name);
        put_fish(to, (*v)->summary);
        fprintf(to, "'\n");
        for (const option *o = (*v)->options; o->name; o++) {
            if (!o->help)
                continue;
            fprintf(to, "complete -c pome -n '__fish_seen_subcommand_from %s' -l %s", (*v)->name, o->name);
            if (o->letter)
                fprintf(to, " -s %c", o->letter);
            if (o->kind == OPTION_CHOICE) {
                fprintf(to, " -x -a '");
                list_choices(to, o);
                fprintf(to, "'");
            } else if (o->kind != OPTION_FLAG) {
                fprintf(to, o->kind == OPTION_TEXT || o->kind == OPTION_LIST ? " -r" : " -x");
            }
            fprintf(to, " -d '");
            put_fish(to, o->help);
            fprintf(to, "'\n");
        }
    }
}

bool completion_print(FILE *to, const char *shell)
{
    if (strcmp(shell, "bash") == 0)
        print_bash(to);
    else if (strcmp(shell, "zsh") == 0)
        print_zsh(to);
    else if (strcmp(shell, "fish") == 0)
        print_fish(to);
    else
        return false;
    return true;
}

/* The config file. */
#include <stdlib.h>
#include <string.h>

#include "options.h"

enum { CONFIG_BYTES_MAX = 1 << 20 };

static bool find_path(char *path, size_t size)
{
    const char *folder = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    int len = folder && *folder ? snprintf(path, size, "%s/pome/config", folder)
              : home && *home   ? snprintf(path, size, "%s/.config/pome/config", home)
                                : -1;
    return len > 0 && (size_t)len < size;
}

/* The file's text, NUL-terminated; NULL without one. */
static char *read_text(const char *path)
{
    FILE *file = fopen(path, "r");
    char *text = file ? malloc(CONFIG_BYTES_MAX + 1) : NULL;
    if (text)
        text[fread(text, 1, CONFIG_BYTES_MAX, file)] = '\0';
    if (file)
        fclose(file);
    return text;
}

/* The text without space around it, in place. */
static char *trim(char *text)
{
    text += strspn(text, " \t\r");
    size_t len = strlen(text);
    while (len > 0 && strchr(" \t\r", text[len - 1]))
        len--;
    text[len] = '\0';
    return text;
}

static const option *find_setting(const verb *v, const char *name)
{
    for (const option *o = v->options; o->name; o++)
        if (o->is_setting && strcmp(o->name, name) == 0)
            return o;
    return NULL;
}

/* A name without a verb is a setting of any verb that has it. */
static bool is_known(const char *name)
{
    for (const verb *const *v = verbs; *v; v++)
        if (find_setting(*v, name))
            return true;
    return false;
}

/* Sets one line's value; false with a reason. */
static bool apply_line(const verb *v, void *args, char *line, char *reason, size_t reason_size)
{
    char *equals = strchr(line, '=');
    if (!equals) {
        snprintf(reason, reason_size, "expected NAME = VALUE, found '%.40s'", line);
        return false;
    }
    *equals = '\0';
    char *name = trim(line), *value = trim(equals + 1), *dot = strchr(name, '.');
    if (dot) {
        *dot = '\0';
        const verb *of = verb_find(name);
        if (of && of != v && find_setting(of, dot + 1))
            return true;
        name = of == v ? dot + 1 : name;
    }
    const option *o = find_setting(v, name);
    if (o)
        return option_set(o, args, value, reason, reason_size);
    if (!dot && is_known(name))
        return true;
    snprintf(reason, reason_size, "there is no setting '%.40s'", name);
    return false;
}

int config_apply(const verb *v, void *args)
{
    char path[4096], reason[200] = "";
    common_args *common = args;
    if (!find_path(path, sizeof path) || !(common->config = read_text(path)))
        return 0;
    int number = 1;
    for (char *line = common->config, *next; line; line = next, number++) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        char *text = trim(line);
        if (*text == '\0' || *text == '#')
            continue;
        if (!apply_line(v, args, text, reason, sizeof reason)) {
            fprintf(stderr, "pome %s: %s:%d: %s\n", v->name, path, number, reason);
            return EXIT_USAGE;
        }
    }
    return 0;
}

#include "base/cgroup.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_SIZE = 4608 };

typedef double quota_fn(const char *folder);

static bool read_line(char *line, int size, const char *folder, const char *name)
{
    char path[PATH_SIZE];
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = n > 0 && (size_t)n < sizeof path ? fopen(path, "re") : NULL;
    bool is_read = f && fgets(line, size, f);
    if (f)
        fclose(f);
    return is_read;
}

/* "max 100000", or the quota and the period in microseconds. */
static double quota_of_v2(const char *folder)
{
    char line[64];
    double quota = 0, period = 0;
    if (!read_line(line, sizeof line, folder, "cpu.max") || sscanf(line, "%lf %lf", &quota, &period) != 2)
        return 0;
    return quota > 0 && period > 0 ? quota / period : 0;
}

static double quota_of_v1(const char *folder)
{
    char quota[64], period[64];
    if (!read_line(quota, sizeof quota, folder, "cpu.cfs_quota_us") ||
        !read_line(period, sizeof period, folder, "cpu.cfs_period_us"))
        return 0;
    double q = strtod(quota, NULL), p = strtod(period, NULL); /* -1: none */
    return q > 0 && p > 0 ? q / p : 0;
}

static double least(double a, double b)
{
    return a <= 0 || (b > 0 && b < a) ? b : a;
}

/* Of the group and of those around it. A container may see a path of the machine that is not mounted in it: what is left
 * then is the root of the mount, its own group. */
static double quota_up_from(const char *mount, const char *group, quota_fn *quota_of)
{
    char folder[PATH_SIZE];
    int n = snprintf(folder, sizeof folder, "%s%s", mount, group);
    size_t end = strlen(mount);
    if (n < 0 || (size_t)n >= sizeof folder)
        folder[end] = '\0';
    double found = 0;
    for (;;) {
        found = least(found, quota_of(folder));
        char *slash = strrchr(folder, '/');
        if (!slash || slash < folder + end)
            return found;
        *slash = '\0';
    }
}

static bool lists(const char *controllers, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = controllers; *p; p += strcspn(p, ",")) {
        p += *p == ',';
        if (strncmp(p, name, n) == 0 && (p[n] == ',' || p[n] == '\0'))
            return true;
    }
    return false;
}

/* A line "hierarchy:controllers:/path". */
static double quota_of_line(char *line, const char *mount)
{
    line[strcspn(line, "\n")] = '\0';
    char folder[PATH_SIZE], *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group)
        return 0;
    *controllers++ = '\0';
    *group++ = '\0';
    if (!*controllers) { /* version 2; beside version 1 it lies one level down */
        snprintf(folder, sizeof folder, "%s/unified", mount);
        return least(quota_up_from(mount, group, quota_of_v2), quota_up_from(folder, group, quota_of_v2));
    }
    if (!lists(controllers, "cpu"))
        return 0;
    snprintf(folder, sizeof folder, "%s/cpu", mount); /* a link to "cpu,cpuacct" where these share a hierarchy */
    return quota_up_from(folder, group, quota_of_v1);
}

double pome_cgroup_processors(const char *membership, const char *mount)
{
    char line[PATH_SIZE];
    double found = 0;
    FILE *f = fopen(membership, "re");
    while (f && fgets(line, sizeof line, f))
        found = least(found, quota_of_line(line, mount));
    if (f)
        fclose(f);
    return found;
}

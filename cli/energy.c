#include "energy.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool read_text(const char *path, char *text, size_t size)
{
    FILE *f = fopen(path, "re");
    bool is_read = f && fgets(text, (int)size, f);
    int saved = errno;
    if (f)
        fclose(f);
    errno = saved;
    if (is_read)
        text[strcspn(text, "\n")] = '\0';
    return is_read;
}

static bool read_number(const char *path, uint64_t *value)
{
    char text[64];
    unsigned long long number;
    if (!read_text(path, text, sizeof text) || sscanf(text, "%llu", &number) != 1)
        return false;
    *value = number;
    return true;
}

/* Takes a zone that is a package; parts of packages and the whole platform would count twice. */
static void take_zone(energy_meter *m, const char *root, const char *zone)
{
    char path[512], name[64];
    uint64_t value;
    if (m->n_packages == ENERGY_PACKAGES_MAX || strlen(root) + strlen(zone) + 32 > sizeof m->path[0])
        return;
    snprintf(path, sizeof path, "%s/%s/name", root, zone);
    if (!read_text(path, name, sizeof name) || strncmp(name, "package", 7) != 0)
        return;
    int i = m->n_packages;
    snprintf(path, sizeof path, "%s/%s/max_energy_range_uj", root, zone);
    if (!read_number(path, &m->range_uj[i]))
        m->range_uj[i] = 0;
    snprintf(m->path[i], sizeof m->path[i], "%.120s/%.100s/energy_uj", root, zone);
    if (read_number(m->path[i], &value))
        m->n_packages++;
    else
        snprintf(m->reason, sizeof m->reason, "the package's energy counter cannot be read (%s)", strerror(errno));
}

void energy_open(energy_meter *m, const char *root)
{
    *m = (energy_meter){.reason = "this machine shows no package energy"};
    DIR *dir = opendir(root);
    if (!dir)
        return;
    for (struct dirent *entry; (entry = readdir(dir));)
        if (entry->d_name[0] != '.')
            take_zone(m, root, entry->d_name);
    closedir(dir);
    if (m->n_packages > 0)
        m->reason[0] = '\0';
}

bool energy_start(energy_meter *m)
{
    double joules;
    return energy_read(m, &joules);
}

bool energy_read(energy_meter *m, double *joules)
{
    double sum = 0;
    for (int i = 0; i < m->n_packages; i++) {
        uint64_t now;
        if (!read_number(m->path[i], &now))
            return false;
        uint64_t wrapped = now < m->last_uj[i] ? m->range_uj[i] : 0;
        sum += (double)(now + wrapped - m->last_uj[i]) * 1e-6;
        m->last_uj[i] = now;
    }
    *joules = sum;
    return m->n_packages > 0;
}

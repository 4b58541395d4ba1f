/* Limits of control groups, from hierarchies written here as the kernel's documentation describes them
 * (admin-guide/cgroup-v2.rst "cpu.max"; scheduler/sched-bwc.rst for version 1; cgroups(7) for /proc/self/cgroup). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cgroup.h"

static char root[] = "/tmp/pome-cgroup-XXXXXX";

/* Writes root/path, and the folders above it. */
static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')); *p++ = '/') {
        *p = '\0';
        mkdir(full, 0700);
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void expect(const char *membership, const char *mount, double processors)
{
    char proc[512], fs[512];
    put("membership", membership);
    snprintf(proc, sizeof proc, "%s/membership", root);
    snprintf(fs, sizeof fs, "%s/%s", root, mount);
    double found = pome_cgroup_processors(proc, fs);
    if (!(found > processors - 1e-9 && found < processors + 1e-9))
        fail_msg("%g processors, expected %g, for %s", found, processors, membership);
}

static void test_version_2(void **unused)
{
    (void)unused;
    put("v2/a.slice/cpu.max", "300000 100000\n");
    put("v2/a.slice/b.service/cpu.max", "max 100000\n");
    put("v2/a.slice/c.service/cpu.max", "150000 100000\n");
    put("v2/a.slice/d.service/cpu.max", "800000 100000\n");
    put("v2/free/cpu.max", "max 100000\n");
    put("v2/odd/cpu.max", "nonsense\n");
    put("v2/zero/cpu.max", "0 0\n");
    expect("0::/a.slice/b.service\n", "v2", 3); /* that of the group around */
    expect("0::/a.slice/c.service\n", "v2", 1.5);
    expect("0::/a.slice/d.service\n", "v2", 3);
    expect("0::/a.slice", "v2", 3);
    expect("0::/free\n", "v2", 0);
    expect("0::/odd\n", "v2", 0);
    expect("0::/zero\n", "v2", 0);
    expect("0::/\n", "v2", 0);
    expect("", "v2", 0);
    expect("nonsense\n0:\n", "v2", 0);
    put("v2/cpu.max", "50000 100000\n"); /* a container sees its own group as the root, its path may be the machine's */
    expect("0::/\n", "v2", 0.5);
    expect("0::/docker/0123456789abcdef\n", "v2", 0.5);
    expect("0::/../elsewhere\n", "v2", 0.5);
}

static void test_version_1(void **unused)
{
    (void)unused;
    put("v1/cpu/cpu.cfs_quota_us", "-1\n");
    put("v1/cpu/cpu.cfs_period_us", "100000\n");
    put("v1/cpu/box/cpu.cfs_quota_us", "400000\n");
    put("v1/cpu/box/cpu.cfs_period_us", "100000\n");
    put("v1/cpu/box/inner/cpu.cfs_quota_us", "-1\n");
    put("v1/cpu/box/inner/cpu.cfs_period_us", "100000\n");
    put("v1/cpuset/box/cpu.cfs_quota_us", "10000\n");
    expect("3:cpuset:/box\n1:cpu,cpuacct:/box/inner\n0::/\n", "v1", 4);
    expect("1:cpuacct,cpu:/box\n", "v1", 4);
    expect("1:cpu:/\n", "v1", 0);
    expect("3:cpuset:/box\n2:cpuacct:/box\n", "v1", 0);
    put("v1/unified/box/cpu.max", "100000 50000\n");
    expect("1:cpu:/box\n0::/box\n", "v1", 2);
}

static void test_long_paths(void **unused)
{
    (void)unused;
    char line[9000] = "0::";
    for (size_t i = 3; i + 2 < sizeof line; i += 2)
        memcpy(line + i, "/x", 3);
    put("v2/cpu.max", "50000 100000\n");
    expect(line, "v2", 0.5); /* cut, which leaves the groups around */
    char none[512];
    snprintf(none, sizeof none, "%s/none", root);
    assert_true(pome_cgroup_processors(none, root) <= 0);
}

static int set_up(void **unused)
{
    (void)unused;
    return mkdtemp(root) ? 0 : -1;
}

static int tear_down(void **unused)
{
    (void)unused;
    char command[128];
    snprintf(command, sizeof command, "rm -r '%s'", root);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_version_2), cmocka_unit_test(test_version_1),
                                       cmocka_unit_test(test_long_paths)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

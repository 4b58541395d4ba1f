/* Energy counters in a made folder that looks as the kernel's (Documentation/power/powercap). */
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

#include "energy.h"

static char root[64];

static void write_file(const char *zone, const char *file, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", root, zone);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/%s/%s", root, zone, file);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/pome-energy-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

static void test_packages_are_summed(void **state)
{
    energy_meter meter;
    double joules = 0;
    (void)state;
    write_file("intel-rapl:0", "name", "package-0\n");
    write_file("intel-rapl:0", "energy_uj", "1000000\n");
    write_file("intel-rapl:0", "max_energy_range_uj", "262143328850\n");
    write_file("intel-rapl:1", "name", "package-1\n");
    write_file("intel-rapl:1", "energy_uj", "262143000000\n");
    write_file("intel-rapl:1", "max_energy_range_uj", "262143328850\n");
    write_file("intel-rapl:0:0", "name", "core\n"); /* part of package 0 */
    write_file("intel-rapl:0:0", "energy_uj", "500000\n");
    write_file("psys", "name", "psys\n");
    write_file("psys", "energy_uj", "7\n");
    energy_open(&meter, root);
    assert_int_equal(meter.n_packages, 2);
    assert_string_equal(meter.reason, "");
    assert_true(energy_start(&meter));
    write_file("intel-rapl:0", "energy_uj", "3500000\n");
    write_file("intel-rapl:1", "energy_uj", "1171150\n"); /* wrapped */
    write_file("intel-rapl:0:0", "energy_uj", "900000\n");
    assert_true(energy_read(&meter, &joules));
    assert_float_equal(joules, 2.5 + 1.5, 1e-9);
    assert_true(energy_read(&meter, &joules));
    assert_float_equal(joules, 0, 1e-9);
}

static void test_nothing_to_read(void **state)
{
    energy_meter meter;
    double joules = -7;
    (void)state;
    energy_open(&meter, "/nowhere");
    assert_int_equal(meter.n_packages, 0);
    assert_string_equal(meter.reason, "this machine shows no package energy");
    assert_false(energy_start(&meter));
    assert_false(energy_read(&meter, &joules));
    write_file("intel-rapl:0", "name", "package-0\n"); /* no counter */
    energy_open(&meter, root);
    assert_int_equal(meter.n_packages, 0);
    assert_non_null(strstr(meter.reason, "cannot be read"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_packages_are_summed, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_nothing_to_read, make_root, remove_root),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

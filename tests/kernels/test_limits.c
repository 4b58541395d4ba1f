/* The measuring loops do all the work that they claim: every byte is read, every product is summed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/limits.h"
#include "pome/machine.h"

enum { N_BYTES = 256 * 17 };

static void test_every_byte_is_read(void **state)
{
    static _Alignas(64) uint8_t data[N_BYTES];
    (void)state;
    for (int level = 0; level < POME_CPU_COUNT; level++) {
        pome_limits limits;
        if (!pome_cpu_level_available((pome_cpu_level)level))
            continue;
        pome_limits_init(&limits, (pome_cpu_level)level);
        assert_true(limits.read(data, N_BYTES) == 0);
        for (size_t i = 0; i < N_BYTES; i++) {
            data[i] = (uint8_t)(1u << i % 8);
            assert_true(limits.read(data, N_BYTES) != 0);
            assert_true(limits.read(data, i / 256 * 256) == 0);
            data[i] = 0;
        }
    }
}

static void test_every_product_is_summed(void **state)
{
    (void)state;
    for (int level = 0; level < POME_CPU_COUNT; level++) {
        pome_limits limits;
        if (!pome_cpu_level_available((pome_cpu_level)level))
            continue;
        pome_limits_init(&limits, (pome_cpu_level)level);
        print_message("%s: %s\n", pome_cpu_level_name((pome_cpu_level)level), limits.int8_name);
        for (uint64_t rounds = 0; rounds < 1000; rounds = 3 * rounds + 1) {
            int64_t n_products = (int64_t)(rounds * limits.int8_ops / 2);
            assert_int_equal(limits.int8(rounds), (uint32_t)(-15 * n_products));
        }
    }
}

static void test_machine(void **state)
{
    pome_machine machine;
    pome_machine_limits limits;
    pome_error err;
    (void)state;
    pome_machine_describe(&machine);
    assert_string_equal(machine.level, pome_cpu_level_name(pome_cpu_level_get()));
    assert_int_equal(machine.n_threads, pome_cpu_count());
    assert_true(machine.memory_bytes > machine.memory_free_bytes && machine.memory_free_bytes > 0);
    assert_int_equal(pome_machine_measure(&limits, 1, 0, &err), POME_OK);
    assert_true(limits.read_bytes_per_s > 1e6 && limits.int8_ops_per_s > 1e6);
    assert_true(limits.buffer_bytes > machine.cache_bytes || limits.buffer_bytes > machine.memory_free_bytes / 5);
    assert_int_equal(pome_machine_measure(&limits, 5000, 0, &err), POME_ERR_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_byte_is_read),
        cmocka_unit_test(test_every_product_is_summed),
        cmocka_unit_test(test_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

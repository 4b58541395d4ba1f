/* The placer against a bitmap: buffers alive at once never share a byte, freed ones are used again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/placer.h"

enum { N_LIVE = 40, ARENA = 1 << 20 };

static uint32_t random_state = 12345;

static uint32_t next_random(void) /* xorshift32 */
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    return random_state ^= random_state << 5;
}

typedef struct live {
    size_t offset, size; /* size in whole units, 0: no buffer here */
    size_t asked;
} live;

static size_t units(size_t size)
{
    return size ? (size + POME_PLACER_ALIGN - 1) / POME_PLACER_ALIGN * POME_PLACER_ALIGN : POME_PLACER_ALIGN;
}

static void claim(uint8_t *map, const live *l, uint8_t from, uint8_t to)
{
    assert_true(l->offset % POME_PLACER_ALIGN == 0);
    assert_true(l->offset + l->size <= ARENA);
    for (size_t i = l->offset; i < l->offset + l->size; i++) {
        assert_int_equal(map[i], from);
        map[i] = to;
    }
}

static void test_never_overlap(void **unused)
{
    (void)unused;
    static uint8_t map[ARENA];
    pome_piece room[N_LIVE + 1];
    live l[N_LIVE] = {{0}};
    pome_placer p;
    pome_placer_reset(&p, room, N_LIVE + 1);
    for (int round = 0; round < 20000; round++) {
        live *at = &l[next_random() % N_LIVE];
        if (at->size) {
            claim(map, at, 1, 0);
            pome_placer_give(&p, at->offset, at->asked);
            at->size = 0;
        } else {
            at->asked = next_random() % 5 ? next_random() % 300 : next_random() % 9000;
            at->size = units(at->asked);
            at->offset = pome_placer_take(&p, at->asked);
            claim(map, at, 0, 1);
            assert_true(at->offset + at->size <= p.peak);
        }
    }
}

static void test_reuses(void **unused)
{
    (void)unused;
    pome_piece room[4];
    pome_placer p;
    pome_placer_reset(&p, room, 4);
    size_t a = pome_placer_take(&p, 100), b = pome_placer_take(&p, 1), c = pome_placer_take(&p, 64);
    assert_int_equal(a, 0);
    assert_int_equal(b, 128);
    assert_int_equal(c, 192);
    pome_placer_give(&p, a, 100);
    assert_int_equal(pome_placer_take(&p, 64), 0);  /* the first hole that is large enough */
    assert_int_equal(pome_placer_take(&p, 65), 256); /* the rest of it is not */
    pome_placer_give(&p, c, 64);
    pome_placer_give(&p, b, 1);
    assert_int_equal(p.n_free, 1); /* [64, 256) in one piece */
    assert_int_equal(pome_placer_take(&p, 192), 64);
    assert_int_equal(p.peak, 384);
}

static void test_melts_into_the_end(void **unused)
{
    (void)unused;
    pome_piece room[4];
    pome_placer p;
    pome_placer_reset(&p, room, 4);
    size_t a = pome_placer_take(&p, 64), b = pome_placer_take(&p, 64);
    pome_placer_give(&p, a, 64);
    pome_placer_give(&p, b, 64);
    assert_int_equal(p.n_free, 0);
    assert_int_equal(pome_placer_take(&p, 1000), 0); /* grows from the start again */
    assert_int_equal(p.peak, 1024);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_never_overlap),
        cmocka_unit_test(test_reuses),
        cmocka_unit_test(test_melts_into_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

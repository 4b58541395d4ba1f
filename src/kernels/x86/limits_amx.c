/* Four sums of 16 x 16 from two by two operands: the blocking that reads each tile most often. */
#include <immintrin.h>
#include <string.h>

#include "kernels/limits.h"

enum { N_TILES = 8, N_ROWS = 16, ROW_BYTES = 64 };

/* Intel SDM volume 1, 18.2: palette 1 and the size of each tile. */
typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t column_bytes[16];
    uint8_t rows[16];
} tile_config;

static void load_config(void)
{
    tile_config config = {.palette = 1};
    for (int i = 0; i < N_TILES; i++) {
        config.column_bytes[i] = ROW_BYTES;
        config.rows[i] = N_ROWS;
    }
    _tile_loadconfig(&config);
}

static uint32_t multiply_int8(uint64_t rounds)
{
    int8_t a[N_ROWS * ROW_BYTES], b[N_ROWS * ROW_BYTES];
    int32_t sum[4][N_ROWS * N_ROWS];
    uint32_t total = 0;
    memset(a, 3, sizeof a);
    memset(b, -5, sizeof b);
    load_config();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, a, ROW_BYTES);
    _tile_loadd(5, a, ROW_BYTES);
    _tile_loadd(6, b, ROW_BYTES);
    _tile_loadd(7, b, ROW_BYTES);
    for (uint64_t r = 0; r < rounds; r++) {
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 4, 7);
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
    }
    _tile_stored(0, sum[0], ROW_BYTES);
    _tile_stored(1, sum[1], ROW_BYTES);
    _tile_stored(2, sum[2], ROW_BYTES);
    _tile_stored(3, sum[3], ROW_BYTES);
    _tile_release();
    for (int i = 0; i < 4 * N_ROWS * N_ROWS; i++)
        total += (uint32_t)sum[i / (N_ROWS * N_ROWS)][i % (N_ROWS * N_ROWS)];
    return total;
}

void pome_limits_fill_amx(pome_limits *limits)
{
    limits->int8 = multiply_int8;
    limits->int8_ops = (uint64_t)4 * N_ROWS * N_ROWS * ROW_BYTES * 2;
    limits->int8_name = "tdpbssd";
}

/* The side files of a compiled model, coremldata.bin and metadata.json, beside a program that is whole. The first byte of
 * the input says where the one ends and the other begins, in sixteenths. */
#include <stdlib.h>
#include <string.h>

#include "formats/mlmodelc.h"
#include "formats/mlpackage.h"
#include "mil/load.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char program[] =
    "program(1.3)\n{\n"
    "func main<ios18>(tensor<fp16, [?, 4]> x, tensor<int32, [1]> y, state<tensor<fp16, [2, 4]>> kv)[FlexibleShapeInformation = "
    "tuple<tuple<string, dict<string, tensor<int32, [?]>>>, tuple<string, dict<string, list<tensor<int32, [2]>, ?>>>>((("
    "\"DefaultShapes\", {{\"x\", [2, 4]}}), (\"RangeDims\", {{\"x\", [[1, 8], [4, 4]]}})))] {\n"
    "tensor<fp16, [2, 4]> r = read_state(input = kv);\n"
    "tensor<fp16, [2, 4]> a = add(x = x, y = r);\n"
    "tensor<int32, [1]> b = add(x = y, y = y); } -> (a, b);\n"
    "func other<ios18>(tensor<fp16, [2, 4]> x) { tensor<fp16, [2, 4]> o = relu(x = x); } -> (o);\n}\n";

/* What describes another program than this one is refused by the loader, in words. */
static void load(const pome_mlpackage *package)
{
    pome_program *p = NULL;
    pome_error err = {0};
    pome_status status = pome_program_load(&p, package, NULL, &err);
    if (status != err.code || (status != POME_OK && !err.message[0]))
        abort();
    pome_program_destroy(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const pome_mlpackage_limits limits = {.arena_bytes = 4 << 20, .depth = 40};
    pome_mlpackage *package = NULL;
    pome_error err = {0};
    size_t split = size ? (size - 1) * (data[0] & 15u) / 15 : 0;
    const pome_mlmodelc_parts parts = {
        .text = {(const uint8_t *)program, sizeof program - 1},
        .binary = {size ? data + 1 : data, split},
        .metadata = {size ? data + 1 + split : data, size ? size - 1 - split : 0},
    };
    pome_status status = pome_mlpackage_open_compiled(&package, &parts, "", &limits, &err);
    if (status == POME_OK)
        load(package);
    else if (status != err.code || !err.message[0])
        abort();
    pome_mlpackage_close(&package);
    return 0;
}

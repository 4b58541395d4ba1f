/* quantization_config of config.json: checkpoints of scaled 8-bit floats are read, everything else is refused by name. */
#include <string.h>

#include "base/error.h"
#include "convert/config_fields.h"

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

static pome_status refuse(const char *method, const char *what, pome_error *err)
{
    return pome_fail(err, POME_ERR_UNSUPPORTED,
                     "the checkpoint was quantized by another tool (%.40s%s%.60s): use the original one; of these only scaled "
                     "8-bit floats are read", method[0] ? method : "unnamed method", what[0] ? ", " : "", what);
}

static pome_status read_block(pome_lm_config *c, const json_t *block, pome_error *err)
{
    if (!block || json_is_null(block))
        return POME_OK;
    json_int_t rows = json_integer_value(json_array_get(block, 0)), cols = json_integer_value(json_array_get(block, 1));
    if (json_array_size(block) != 2 || rows < 1 || cols < 1 || rows > 1 << 20 || cols > 1 << 20)
        return pome_fail(err, POME_ERR_FORMAT, "quantization_config: the block of a scale is no pair of sizes");
    c->fp8_block[0] = rows;
    c->fp8_block[1] = cols;
    return POME_OK;
}

/* config_groups: every group's weights are 8-bit floats; a block_structure is theirs. */
static pome_status read_groups(pome_lm_config *c, const char *method, const json_t *groups, pome_error *err)
{
    const char *key;
    json_t *group;
    json_object_foreach((json_t *)groups, key, group)
    {
        const json_t *weights = json_object_get(group, "weights");
        if (strcmp(text_of(weights, "type"), "float") != 0 ||
            json_integer_value(json_object_get(weights, "num_bits")) != 8)
            return refuse(method, key, err);
        POME_TRY(read_block(c, json_object_get(weights, "block_structure"), err));
    }
    return POME_OK;
}

pome_status pome_config_read_fp8(pome_lm_config *c, const pome_config_fields *f, pome_error *err)
{
    const json_t *q = pome_config_field(f, "quantization_config"), *mlx = pome_config_field(f, "quantization");
    if (!q && !mlx)
        return POME_OK;
    const char *method = text_of(q, "quant_method"), *format = text_of(q, "format");
    c->has_fp8 = true;
    if (strcmp(method, "fp8") == 0)
        return read_block(c, json_object_get(q, "weight_block_size"), err);
    if (strcmp(method, "fbgemm_fp8") == 0)
        return POME_OK;
    if (strcmp(method, "compressed-tensors") == 0 &&
        (strcmp(format, "float-quantized") == 0 || strcmp(format, "naive-quantized") == 0))
        return read_groups(c, method, json_object_get(q, "config_groups"), err);
    return refuse(method, format, err);
}

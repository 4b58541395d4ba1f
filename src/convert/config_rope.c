/* Rotary positions in config.json: rope_scaling of old files, rope_parameters of new ones. */
#include <inttypes.h>

#include "convert/config_fields.h"
#include "text/json_fields.h"

static const char known_fields[] = "rope_type type rope_theta partial_rotary_factor factor original_max_position_embeddings "
                                   "low_freq_factor high_freq_factor beta_fast beta_slow mscale mscale_all_dim truncate "
                                   "attention_factor short_factor long_factor";

static pome_status kind_of(pome_rope_kind *out, const char *type, const pome_lm_family *family, pome_error *err)
{
    static const char *const names[] = {"default", "linear", "dynamic", "llama3", "yarn", "longrope"};
    if (strcmp(type, "su") == 0 || (family->yarn_is_longrope && strcmp(type, "yarn") == 0))
        type = "longrope"; /* its first names */
    for (int i = 0; i < 6; i++)
        if (strcmp(type, names[i]) == 0) {
            *out = (pome_rope_kind)i;
            return POME_OK;
        }
    return pome_fail(err, POME_ERR_UNSUPPORTED, "rope type \"%.60s\" is not known: default, linear, dynamic, llama3, yarn "
                     "and longrope are", type);
}

static pome_status check_scaling(const pome_rope *r, pome_error *err)
{
    if (r->kind != POME_ROPE_PLAIN && r->kind != POME_ROPE_LONGROPE && !(r->factor >= 1))
        return pome_fail(err, POME_ERR_FORMAT, "rope scaling: factor is %g, wanted 1 or more", r->factor);
    if (r->kind != POME_ROPE_PLAIN && r->kind != POME_ROPE_LINEAR && r->original < 1)
        return pome_fail(err, POME_ERR_FORMAT, "rope scaling: the original number of positions is missing");
    if (r->kind == POME_ROPE_LLAMA3 && !(r->high_freq_factor > r->low_freq_factor && r->low_freq_factor > 0))
        return pome_fail(err, POME_ERR_FORMAT, "rope scaling: low_freq_factor is %g, high_freq_factor %g",
                         r->low_freq_factor, r->high_freq_factor);
    if (r->kind == POME_ROPE_YARN && !(r->beta_fast > 0 && r->beta_slow > 0))
        return pome_fail(err, POME_ERR_FORMAT, "rope scaling: beta_fast is %g, beta_slow %g", r->beta_fast, r->beta_slow);
    if (!(r->attention_factor >= 0))
        return pome_fail(err, POME_ERR_FORMAT, "rope scaling: attention_factor is %g", r->attention_factor);
    if (r->kind == POME_ROPE_DYNAMIC && r->dim <= 2)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "rope type \"dynamic\" of %" PRId64 " elements", r->dim);
    return POME_OK;
}

/* The original length: that of the model's own field where there is one, else of the scaling, else all positions. With
 * dynamic scaling transformers looks at all positions alone. */
static pome_status read_original(pome_rope *r, const pome_lm_config *c, const pome_config_fields *root,
                                 const pome_config_fields *s, pome_error *err)
{
    static const char name[] = "original_max_position_embeddings";
    int64_t inner = c->n_positions, outer = c->family->original_positions;
    POME_TRY(pome_config_int(s, name, &inner, err));
    POME_TRY(pome_config_int(root, name, &outer, err));
    r->original = r->kind == POME_ROPE_DYNAMIC ? c->n_positions : outer > 0 ? outer : inner;
    return POME_OK;
}

static pome_status read_scaling(pome_rope *r, const pome_lm_config *c, const pome_config_fields *root,
                                const pome_config_fields *s, pome_error *err)
{
    const char *type = NULL;
    POME_TRY(pome_json_check_fields(s->object, "rope scaling", known_fields, err));
    POME_TRY(pome_config_text(s, "type", &type, err));
    POME_TRY(pome_config_text(s, "rope_type", &type, err));
    POME_TRY(kind_of(&r->kind, type ? type : "default", c->family, err));
    r->beta_fast = 32;
    r->beta_slow = 1;
    r->truncate = true;
    POME_TRY(read_original(r, c, root, s, err));
    if (r->original > 0 && (r->kind == POME_ROPE_YARN || r->kind == POME_ROPE_LONGROPE))
        r->factor = (double)c->n_positions / (double)r->original;
    POME_TRY(pome_config_real(s, "factor", &r->factor, err));
    POME_TRY(pome_config_real(s, "low_freq_factor", &r->low_freq_factor, err));
    POME_TRY(pome_config_real(s, "high_freq_factor", &r->high_freq_factor, err));
    POME_TRY(pome_config_real(s, "beta_fast", &r->beta_fast, err));
    POME_TRY(pome_config_real(s, "beta_slow", &r->beta_slow, err));
    POME_TRY(pome_config_real(s, "mscale", &r->mscale, err));
    POME_TRY(pome_config_real(s, "mscale_all_dim", &r->mscale_all_dim, err));
    POME_TRY(pome_config_real(s, "attention_factor", &r->attention_factor, err));
    POME_TRY(pome_config_bool(s, "truncate", &r->truncate, err));
    if (r->kind == POME_ROPE_LONGROPE) {
        POME_TRY(pome_config_reals(s, "short_factor", r->dim / 2, &r->short_factor, err));
        POME_TRY(pome_config_reals(s, "long_factor", r->dim / 2, &r->long_factor, err));
    }
    if (r->kind == POME_ROPE_PLAIN)
        r->factor = 0;
    return check_scaling(r, err);
}

/* One set of parameters; `object` may be NULL, then only the fields of the root count. */
static pome_status read_one(pome_rope *r, const pome_lm_config *c, const pome_config_fields *root, const json_t *object,
                            pome_error *err)
{
    double part = 1;
    const pome_config_fields s = {.object = object, .where = "rope scaling: ", .arena = root->arena};
    POME_TRY(pome_config_real(&s, "rope_theta", &r->theta, err));
    if (c->family->turns_part)
        POME_TRY(pome_config_real(root, "partial_rotary_factor", &part, err));
    POME_TRY(pome_config_real(&s, "partial_rotary_factor", &part, err));
    if (!(part > 0 && part <= 1))
        return pome_fail(err, POME_ERR_FORMAT, "partial_rotary_factor is %g", part);
    if (part != 1 && !c->family->turns_part)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "partial_rotary_factor is set, which cannot be converted for "
                         "architecture %s", c->family->model_type);
    int64_t head_dim = c->head_dim ? c->head_dim : c->n_heads > 0 ? c->hidden / c->n_heads : 0;
    r->dim = (int64_t)((double)head_dim * part);
    return object ? read_scaling(r, c, root, &s, err) : POME_OK;
}

static bool names_layer_types(const json_t *parameters)
{
    return json_object_get(parameters, "full_attention") || json_object_get(parameters, "sliding_attention");
}

pome_status pome_config_read_rope(pome_lm_config *c, const pome_config_fields *root, pome_error *err)
{
    const json_t *parameters = pome_config_field(root, "rope_parameters");
    const json_t *scaling = pome_config_field(root, "rope_scaling"), *local = NULL;
    if ((parameters && !json_is_object(parameters)) || (scaling && !json_is_object(scaling)))
        return pome_fail(err, POME_ERR_FORMAT, "%s is no object", parameters ? "rope_parameters" : "rope_scaling");
    POME_TRY(pome_config_real(root, c->family->fields->theta, &c->rope.theta, err));
    c->local_rope.theta = c->family->local_theta;
    if (c->family->local_theta > 0)
        POME_TRY(pome_config_real(root, "rope_local_base_freq", &c->local_rope.theta, err));
    if (names_layer_types(parameters)) { /* one set for each kind of layer */
        if (!(c->family->local_theta > 0))
            return pome_fail(err, POME_ERR_UNSUPPORTED, "rope_parameters for each kind of layer cannot be converted for "
                             "architecture %s", c->family->model_type);
        local = json_object_get(parameters, "sliding_attention");
        parameters = json_object_get(parameters, "full_attention");
        if ((local && !json_is_object(local)) || (parameters && !json_is_object(parameters)))
            return pome_fail(err, POME_ERR_FORMAT, "rope_parameters: a kind of layer is no object");
    }
    POME_TRY(read_one(&c->rope, c, root, parameters ? parameters : scaling, err));
    return c->family->local_theta > 0 ? read_one(&c->local_rope, c, root, local, err) : POME_OK;
}

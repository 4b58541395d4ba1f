/* non_maximum_suppression: boxes are taken in order of their best class score, each unless it overlaps an earlier
 * one too much. With per_class_suppression only boxes of the same best class suppress each other. Up to iOS 16
 * boxes below score_threshold do not take part; where none is left, the best one is kept all the same. */
#include "ops/families.h"
#include "ops/view.h"

#include <math.h>

typedef struct candidates { /* of one batch */
    const float *boxes, *scores;
    int64_t n, n_classes;
    int64_t box_step, coordinate_step; /* elements of boxes */
    int64_t score_step, class_step;    /* elements of scores */
    float *best;                       /* [n] best score; NaN: out of the running */
    int32_t *best_class;               /* [n] */
} candidates;

static float coordinate(const candidates *c, int64_t box, int64_t i)
{
    return c->boxes[box * c->box_step + i * c->coordinate_step];
}

/* Boxes are centre x, centre y, width, height. */
static float intersection_over_union(const candidates *c, int64_t a, int64_t b)
{
    float inner = 1, area_a = 1, area_b = 1;
    for (int64_t i = 0; i < 2; i++) {
        float size_a = coordinate(c, a, i + 2), size_b = coordinate(c, b, i + 2);
        float low = fmaxf(coordinate(c, a, i) - 0.5f * size_a, coordinate(c, b, i) - 0.5f * size_b);
        float high = fminf(coordinate(c, a, i) + 0.5f * size_a, coordinate(c, b, i) + 0.5f * size_b);
        inner *= fmaxf(high - low, 0);
        area_a *= size_a;
        area_b *= size_b;
    }
    float outer = area_a + area_b - inner;
    return outer > 0 ? inner / outer : 0;
}

static void rate(candidates *c)
{
    for (int64_t i = 0; i < c->n; i++) {
        c->best[i] = NAN;
        c->best_class[i] = 0;
        for (int64_t k = 0; k < c->n_classes; k++) {
            float score = c->scores[i * c->score_step + k * c->class_step];
            if (score > c->best[i] || isnan(c->best[i])) {
                c->best[i] = score;
                c->best_class[i] = (int32_t)k;
            }
        }
    }
}

/* First index of the largest score, -1 if nothing is left. */
static int64_t take_best(const candidates *c)
{
    int64_t best = -1;
    for (int64_t i = 0; i < c->n; i++)
        if (!isnan(c->best[i]) && (best < 0 || c->best[i] > c->best[best]))
            best = i;
    return best;
}

static size_t scratch_suppression(const pome_run *r)
{
    const pome_tensor *scores = pome_in(r, P_non_maximum_suppression_scores);
    return (size_t)scores->shape[r->opset < POME_OPSET_IOS17 ? 1 : 2] * (sizeof(float) + sizeof(int32_t));
}

typedef struct selection { /* what becomes of one batch */
    float *boxes, *scores;
    int32_t *indices;
    int64_t n_max;
    int64_t box_step, coordinate_step, score_step, class_step;
} selection;

static void keep(const selection *s, const candidates *c, int64_t at, int64_t box)
{
    for (int64_t i = 0; i < 4; i++)
        s->boxes[at * s->box_step + i * s->coordinate_step] = coordinate(c, box, i);
    for (int64_t k = 0; k < c->n_classes; k++)
        s->scores[at * s->score_step + k * s->class_step] = c->scores[box * c->score_step + k * c->class_step];
    s->indices[at] = (int32_t)box;
}

/* Number of boxes kept. */
static int64_t suppress(candidates *c, const selection *s, float iou_threshold, float score_threshold, bool per_class)
{
    rate(c);
    int64_t n_kept = 0, favourite = take_best(c);
    for (int64_t i = 0; i < c->n; i++)
        if (c->best[i] < score_threshold)
            c->best[i] = NAN;
    while (n_kept < s->n_max) {
        int64_t box = take_best(c);
        if (box < 0)
            break;
        keep(s, c, n_kept++, box);
        c->best[box] = NAN;
        for (int64_t i = 0; i < c->n; i++)
            if (!isnan(c->best[i]) && (!per_class || c->best_class[i] == c->best_class[box]) &&
                intersection_over_union(c, box, i) > iou_threshold)
                c->best[i] = NAN;
    }
    if (n_kept == 0 && favourite >= 0)
        keep(s, c, n_kept++, favourite);
    return n_kept;
}

static pome_status run_non_maximum_suppression(const pome_run *r, pome_error *err)
{
    const pome_tensor *boxes = pome_in(r, P_non_maximum_suppression_boxes);
    const pome_tensor *scores = pome_in(r, P_non_maximum_suppression_scores);
    bool is_last = r->opset < POME_OPSET_IOS17; /* coordinates and classes are the last axis */
    int32_t box_axis = is_last ? 1 : 2, class_axis = is_last ? 2 : 1;
    if (boxes->rank != 3 || scores->rank != 3 || boxes->shape[0] != scores->shape[0] || boxes->shape[class_axis] != 4 ||
        boxes->shape[box_axis] != scores->shape[box_axis])
        return pome_op_fail(r->op, err, POME_ERR_FORMAT, "boxes and scores do not fit");
    float iou_threshold = (float)pome_in_float(r, P_non_maximum_suppression_iou_threshold, 0);
    float score_threshold = (float)pome_in_float(r, P_non_maximum_suppression_score_threshold, (double)-INFINITY);
    bool per_class = pome_in_bool(r, P_non_maximum_suppression_per_class_suppression, false);
    candidates c = {.n = boxes->shape[box_axis],
                    .n_classes = scores->shape[class_axis],
                    .box_step = boxes->stride[box_axis],
                    .coordinate_step = boxes->stride[class_axis],
                    .score_step = scores->stride[box_axis],
                    .class_step = scores->stride[class_axis],
                    .best = r->scratch};
    c.best_class = (int32_t *)(void *)(c.best + c.n);
    const pome_tensor *out = r->out;
    static const uint64_t zero;
    static const int32_t none = -1;
    pome_strided_fill(&out[0], &zero, r->pool);
    pome_strided_fill(&out[1], &zero, r->pool);
    pome_strided_fill(&out[2], &none, r->pool);
    for (int64_t b = 0; b < boxes->shape[0]; b++) {
        selection s = {.boxes = pome_elem_at(&out[0], b * out[0].stride[0]),
                       .scores = pome_elem_at(&out[1], b * out[1].stride[0]),
                       .indices = pome_elem_at(&out[2], b * out[2].stride[0]),
                       .n_max = out[0].shape[box_axis],
                       .box_step = out[0].stride[box_axis],
                       .coordinate_step = out[0].stride[class_axis],
                       .score_step = out[1].stride[box_axis],
                       .class_step = out[1].stride[class_axis]};
        c.boxes = pome_elem_at(boxes, b * boxes->stride[0]);
        c.scores = pome_elem_at(scores, b * scores->stride[0]);
        int64_t n_kept = c.n ? suppress(&c, &s, iou_threshold, score_threshold, per_class) : 0;
        if (r->op->n_out > 3)
            ((int32_t *)out[3].data)[b] = (int32_t)n_kept;
    }
    return POME_OK;
}

const pome_op_impl pome_ops_suppress[] = {
    {.id = POME_OP_non_maximum_suppression, .scratch = scratch_suppression, .run = run_non_maximum_suppression},
};
POME_FAMILY_COUNT(suppress)

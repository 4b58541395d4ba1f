/* The convolutions of MobileNetV2 or ResNet-18, one by one: Pome's, measured inside of a prediction, and oneDNN's, with limits as a
 * fused operation, in two ways: "plain" keeps values in [channels, height, width] as Pome does, "own" lets the library
 * choose the layout of values as if all operators around understood it. Weights are reordered beforehand in both. Turns alternate;
 * the smallest time of each layer counts. See bench/onednn-layers. */
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pome/model.h"
#include "pome/predictor.h"
#include "pome/profile.h"

enum { MAX_LAYERS = 64 };

typedef struct layer {
    dnnl_dim_t cin, cout, groups, size, kernel, stride;
    double pome, plain, own; /* seconds */
    struct {
        dnnl_primitive_t primitive;
        dnnl_exec_arg_t args[4];
    } dnnl[2];
} layer;

static layer layers[MAX_LAYERS];
static int n_layers;
static dnnl_engine_t engine;
static dnnl_stream_t stream;

static void check(int bad, const char *what)
{
    if (bad) {
        fprintf(stderr, "%s failed (%d)\n", what, bad);
        exit(1);
    }
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void add(dnnl_dim_t cin, dnnl_dim_t cout, dnnl_dim_t groups, dnnl_dim_t size, dnnl_dim_t kernel, dnnl_dim_t stride)
{
    layers[n_layers++] = (layer){cin, cout, groups, size, kernel, stride, 1e9, 1e9, 1e9, {{0}}};
}

static void list_mobilenet(void)
{
    static const int stages[][4] = {{1, 16, 1, 1}, {6, 24, 2, 2}, {6, 32, 3, 2}, {6, 64, 4, 2}, {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
    int n = 32, size = 112;
    add(3, 32, 1, 224, 3, 2);
    for (size_t s = 0; s < sizeof stages / sizeof *stages; s++)
        for (int i = 0; i < stages[s][2]; i++) {
            int wide = n * stages[s][0], stride = i ? 1 : stages[s][3];
            if (wide > n)
                add(n, wide, 1, size, 1, 1);
            add(wide, wide, wide, size, 3, stride);
            size = (size - 1) / stride + 1;
            add(wide, stages[s][1], 1, size, 1, 1);
            n = stages[s][1];
        }
    add(n, 1280, 1, size, 1, 1);
}

static void list_resnet(void)
{
    int n = 64, size = 56;
    add(3, 64, 1, 224, 7, 2);
    for (int width = 64; width <= 512; width *= 2)
        for (int i = 0; i < 2; i++) {
            int stride = i == 0 && width > 64 ? 2 : 1;
            add(n, width, 1, size, 3, stride);
            if (stride == 2) /* as the program has it: the side between the two */
                add(n, width, 1, size, 1, 2);
            add(width, width, 1, (size - 1) / stride + 1, 3, 1);
            size = (size - 1) / stride + 1;
            n = width;
        }
}

static dnnl_memory_t memory(const dnnl_memory_desc_t *desc)
{
    dnnl_memory_t m;
    void *data;
    check(dnnl_memory_create(&m, desc, engine, DNNL_MEMORY_ALLOCATE), "memory");
    check(dnnl_memory_get_data_handle(m, &data), "memory");
    memset(data, 0, dnnl_memory_desc_get_size(desc));
    return m;
}

static void prepare(layer *l, int own)
{
    dnnl_dim_t out = (l->size - 1) / l->stride + 1, pad = l->kernel / 2;
    dnnl_dims_t x = {1, l->cin, l->size, l->size}, y = {1, l->cout, out, out}, b = {l->cout};
    dnnl_dims_t w = {l->cout, l->cin, l->kernel, l->kernel};
    dnnl_dims_t wg = {l->groups, l->cout / l->groups, l->cin / l->groups, l->kernel, l->kernel};
    dnnl_dims_t strides = {l->stride, l->stride}, dilates = {0, 0}, before = {pad, pad};
    dnnl_dims_t after = {(out - 1) * l->stride + l->kernel - l->size - pad, (out - 1) * l->stride + l->kernel - l->size - pad};
    dnnl_memory_desc_t xd, wd, bd, yd;
    dnnl_format_tag_t layout = own ? dnnl_format_tag_any : dnnl_nchw;
    check(dnnl_memory_desc_init_by_tag(&xd, 4, x, dnnl_f32, l->cin == 3 ? dnnl_nchw : layout), "layout of x");
    check(dnnl_memory_desc_init_by_tag(&yd, 4, y, dnnl_f32, layout), "layout of y");
    check(dnnl_memory_desc_init_by_tag(&bd, 1, b, dnnl_f32, dnnl_a), "layout of bias");
    check(l->groups > 1 ? dnnl_memory_desc_init_by_tag(&wd, 5, wg, dnnl_f32, dnnl_format_tag_any)
                        : dnnl_memory_desc_init_by_tag(&wd, 4, w, dnnl_f32, dnnl_format_tag_any), "layout of weights");
    dnnl_convolution_desc_t desc;
    check(dnnl_dilated_convolution_forward_desc_init(&desc, dnnl_forward_inference, dnnl_convolution_direct, &xd, &wd, &bd, &yd,
                                                     strides, dilates, before, after), "description");
    dnnl_post_ops_t after_ops;
    dnnl_primitive_attr_t attr;
    check(dnnl_post_ops_create(&after_ops) || dnnl_primitive_attr_create(&attr) ||
          dnnl_post_ops_append_eltwise(after_ops, 1, dnnl_eltwise_clip, 0, 6) || dnnl_primitive_attr_set_post_ops(attr, after_ops), "limits");
    dnnl_primitive_desc_t pd;
    check(dnnl_primitive_desc_create(&pd, &desc, attr, engine, NULL), "choice");
    check(dnnl_primitive_create(&l->dnnl[own].primitive, pd), "primitive");
    const dnnl_query_t what[4] = {dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_weights_md, dnnl_query_dst_md};
    const int names[4] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST};
    for (int i = 0; i < 4; i++)
        l->dnnl[own].args[i] = (dnnl_exec_arg_t){names[i], memory(dnnl_primitive_desc_query_md(pd, what[i], i == 2))};
}

static double run(layer *l, int own)
{
    double begin = now();
    check(dnnl_primitive_execute(l->dnnl[own].primitive, stream, 4, l->dnnl[own].args) || dnnl_stream_wait(stream), "run");
    return now() - begin;
}

static void smaller(double *best, double seconds)
{
    *best = seconds < *best ? seconds : *best;
}

static void run_pome(pome_predictor *predictor, pome_profile *profile)
{
    pome_error err;
    int i = 0;
    pome_profile_clear(profile);
    check(pome_predictor_run(predictor, NULL, &err), "prediction");
    for (size_t s = 0; s < pome_profile_n_steps(profile); s++) {
        const pome_profile_step *step = pome_profile_step_at(profile, s);
        if (strcmp(step->op, "conv") == 0 || strcmp(step->op, "pome_conv") == 0)
            smaller(&layers[i++].pome, step->seconds);
    }
    check(i != n_layers, "list of layers");
}

int main(int argc, char **argv)
{
    check(argc != 5, "usage: onednn_layers mobilenet|resnet PACKAGE THREADS ROUNDS");
    int threads = atoi(argv[3]);
    if (strcmp(argv[1], "mobilenet") == 0)
        list_mobilenet();
    else
        list_resnet();
    check(dnnl_engine_create(&engine, dnnl_cpu, 0) || dnnl_stream_create(&stream, engine, dnnl_stream_default_flags), "engine");
    for (int i = 0; i < n_layers; i++)
        for (int own = 0; own < 2; own++)
            prepare(&layers[i], own);
    pome_error err;
    pome_model_opts opts;
    pome_model *model;
    pome_predictor *predictor;
    pome_profile *profile;
    pome_model_opts_default(&opts);
    opts.n_threads = threads;
    static float image[3 * 224 * 224];
    const int64_t shape[4] = {1, 3, 224, 224};
    pome_tensor x = pome_tensor_borrow(image, POME_DTYPE_F32, 4, shape);
    check(pome_model_open(&model, argv[2], &opts, &err) || pome_predictor_create(&predictor, model, NULL, NULL, &err) ||
          pome_predictor_set_input(predictor, 0, &x, &err) || pome_profile_create(&profile, &err) ||
          pome_predictor_profile(predictor, profile, &err), "model");
    for (int round = 0; round < atoi(argv[4]); round++) {
        run_pome(predictor, profile);
        for (int i = 0; i < n_layers; i++) {
            smaller(&layers[i].plain, run(&layers[i], 0));
            smaller(&layers[i].own, run(&layers[i], 1));
        }
    }
    double sum[3][3] = {{0}};
    printf("network,threads,layer,cin,cout,groups,size,kernel,stride,pome_us,onednn_plain_us,onednn_own_us\n");
    for (int i = 0; i < n_layers; i++) {
        const layer *l = &layers[i];
        int kind = l->groups > 1 ? 0 : l->kernel == 1 ? 1 : 2;
        sum[kind][0] += l->pome;
        sum[kind][1] += l->plain;
        sum[kind][2] += l->own;
        printf("%s,%d,%d,%d,%d,%d,%d,%d,%d,%.0f,%.0f,%.0f\n", argv[1], threads, i, (int)l->cin, (int)l->cout, (int)l->groups, (int)l->size,
               (int)l->kernel, (int)l->stride, 1e6 * l->pome, 1e6 * l->plain, 1e6 * l->own);
    }
    static const char *const kinds[3] = {"one channel per group", "one element", "others"};
    for (int kind = 0; kind < 3; kind++)
        fprintf(stderr, "%s, %d threads, %s: pome %.2f ms, oneDNN plain %.2f ms, own layout %.2f ms\n", argv[1], threads, kinds[kind],
                1e3 * sum[kind][0], 1e3 * sum[kind][1], 1e3 * sum[kind][2]);
    return 0;
}

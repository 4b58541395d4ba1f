/* Opens a package, lists its inputs, and takes the likeliest next token for a few token ids.
 *
 *     cc -std=c17 next_token.c $(pkg-config --cflags --libs pome) -o next_token && ./next_token model.mlpackage 1 2 3 */
#include <stdio.h>
#include <stdlib.h>

#include <pome/llm.h>
#include <pome/model.h>

static int fail(const char *what, const pome_error *err)
{
    fprintf(stderr, "%s: %s (%s)\n", what, err->message, pome_status_name(err->code));
    return 1;
}

static void list_inputs(const pome_model *model)
{
    const pome_model_info *info = pome_model_describe(model);
    const pome_function_info *f = &info->functions[info->default_function];
    for (uint32_t i = 0; i < f->n_inputs; i++)
        printf("input %s: %s of rank %d\n", f->inputs[i].name, pome_dtype_name(f->inputs[i].dtype), (int)f->inputs[i].rank);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: %s MODEL.mlpackage [ID...]\n", argv[0]);
        return 2;
    }
    int32_t ids[64] = {1};
    int64_t n = argc > 2 ? 0 : 1;
    for (int i = 2; i < argc && n < 64; i++)
        ids[n++] = atoi(argv[i]);

    pome_error err;
    pome_model *model = NULL;
    pome_llm *llm = NULL;
    pome_llm_session *session = NULL;
    const float *logits; /* [pome_llm_n_vocab] */
    if (pome_model_open(&model, argv[1], NULL, &err) != POME_OK)
        return fail("cannot open the model", &err);
    list_inputs(model);
    if (pome_llm_open(&llm, model, NULL, &err) != POME_OK || pome_llm_session_create(&session, llm, &err) != POME_OK ||
        pome_llm_session_feed(session, ids, n, &logits, &err) != POME_OK)
        return fail("cannot run the model", &err);

    int64_t best = 0;
    for (int64_t i = 1; i < pome_llm_n_vocab(llm); i++)
        if (logits[i] > logits[best])
            best = i;
    printf("%s\nnext id: %lld\n", pome_llm_describe(llm), (long long)best);

    pome_llm_session_destroy(&session);
    pome_llm_close(&llm);
    pome_model_close(&model);
    return 0;
}

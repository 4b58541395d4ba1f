/* `pome tokenize`: ids and pieces of a text, and back. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "input.h"
#include "pome/generate.h"
#include "verbs.h"

typedef struct tokenize_args {
    common_args common;
    const char *tokenizer, *decode;
    bool no_special, chat, keep_special;
} tokenize_args;

static void set_defaults(void *args)
{
    (void)args;
}

#define AT(member) offsetof(tokenize_args, member)
static const option options[] = {
    {"decode", 'd', NULL, OPTION_TEXT, "1,2,3", AT(decode), 0, 0, false, "Print the text of these ids"},
    {"chat", 0, NULL, OPTION_FLAG, NULL, AT(chat), 0, 0, false, "Put the text into the chat template as the user's message"},
    {"no-special", 0, NULL, OPTION_FLAG, NULL, AT(no_special), 0, 0, false,
     "Add no begin-of-text token, and take names of special tokens as text"},
    {"keep-special", 0, NULL, OPTION_FLAG, NULL, AT(keep_special), 0, 0, false, "With --decode: write special tokens too"},
    {"tokenizer", 0, NULL, OPTION_TEXT, "FOLDER|FILE", AT(tokenizer), 0, 0, true, "Use this one, not the model's"},
    OPTIONS_OUTPUT(tokenize_args),
    {0},
};

static const char *const examples[] = {
    "pome tokenize model.mlpackage \"Hello world\"", "one line per token: id, tab, piece",
    "pome tokenize tokenizer.json --decode 1,2,3", "the text of three ids",
    "pome tokenize model.mlpackage --json < text.txt", "ids and pieces as JSON",
    NULL,
};

static bool is_tokenizer(const char *path)
{
    static const char name[] = "tokenizer.json";
    char inside[4096];
    const char *last = strrchr(path, '/');
    int len = snprintf(inside, sizeof inside, "%s/%s", path, name);
    return strcmp(last ? last + 1 : path, name) == 0 || (len > 0 && (size_t)len < sizeof inside && access(inside, F_OK) == 0);
}

/* The operand is a model, or itself a folder or file with a tokenizer. */
static pome_status open_tokenizer(pome_tokenizer **out, const char *path, const tokenize_args *args, pome_error *err)
{
    if (args->tokenizer)
        return pome_tokenizer_open(out, args->tokenizer, err);
    if (pome_tokenizer_open(out, path, err) == POME_OK)
        return POME_OK;
    if (is_tokenizer(path)) /* one at fault */
        return err->code;
    pome_model *model = NULL;
    pome_status status = open_model(&model, path, &args->common, err);
    if (status == POME_OK)
        status = pome_tokenizer_locate(out, model, NULL, err);
    pome_model_close(&model);
    return status;
}

static int print_ids(const pome_tokenizer *tokenizer, const tokenize_args *args, const int32_t *ids, size_t n)
{
    if (!args->common.json) {
        for (size_t i = 0; i < n; i++) {
            const char *piece = pome_tokenizer_piece(tokenizer, ids[i]);
            printf("%d\t%s\n", (int)ids[i], piece ? piece : "");
        }
        return finish_output(0);
    }
    json_t *list = json_array(), *pieces = json_array();
    for (size_t i = 0; i < n; i++) {
        const char *piece = pome_tokenizer_piece(tokenizer, ids[i]);
        json_array_append_new(list, json_integer(ids[i]));
        json_array_append_new(pieces, piece ? json_text(piece) : json_null());
    }
    return print_json(json_pack("{s:o, s:o, s:o}", "ids", list, "pieces", pieces, "tokenizer",
                                json_text(pome_tokenizer_source(tokenizer))));
}

static int encode(const pome_tokenizer *tokenizer, const tokenize_args *args, const char *text)
{
    pome_error err = {0};
    char *chat = NULL;
    size_t len = strlen(text), n = 0;
    int32_t *ids = NULL;
    pome_status status = POME_OK;
    if (args->chat) {
        pome_message message = {"user", text};
        status = pome_tokenizer_apply_chat_template(tokenizer, &message, 1, true, &chat, &len, &err);
    }
    bool is_plain = args->no_special;
    if (status == POME_OK)
        status = pome_tokenizer_encode(tokenizer, chat ? chat : text, len, !is_plain && !chat, !is_plain, &ids, &n, &err);
    int exit_status = status == POME_OK ? print_ids(tokenizer, args, ids, n) : fail_with(&err);
    free(ids);
    free(chat);
    return exit_status;
}

static int decode(const pome_tokenizer *tokenizer, const tokenize_args *args, const int32_t *ids, size_t n)
{
    pome_error err = {0};
    char *text = NULL;
    size_t len = 0;
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= pome_tokenizer_n_vocab(tokenizer))
            return fail_text("token id %d is outside the vocabulary of %d", (int)ids[i], (int)pome_tokenizer_n_vocab(tokenizer));
    if (pome_tokenizer_decode(tokenizer, ids, n, !args->keep_special, &text, &len, &err) != POME_OK)
        return fail_with(&err);
    int status;
    if (args->common.json) {
        status = print_json(json_pack("{s:s%}", "text", text, len));
    } else {
        fwrite(text, 1, len, stdout);
        putchar('\n');
        status = finish_output(0);
    }
    free(text);
    return status;
}

static int run(void *opaque, const char **operands, int n_operands)
{
    const tokenize_args *args = opaque;
    pome_error err = {0};
    pome_tokenizer *tokenizer = NULL;
    char reason[128] = "", *text = NULL;
    int32_t *ids = NULL;
    size_t n_ids = 0;
    int status = 0;
    if (args->decode && n_operands > 1) {
        fprintf(stderr, "pome tokenize: --decode takes ids: give no text\n");
        return EXIT_USAGE;
    }
    if (args->decode && !parse_ids(args->decode, &ids, &n_ids, reason, sizeof reason)) {
        fprintf(stderr, "pome tokenize: --decode: %s\n", reason);
        return EXIT_USAGE;
    }
    if (!args->decode && !(text = n_operands > 1 ? strdup(operands[1]) : read_stdin()))
        status = fail_text("cannot read the text: %s", strerror(errno));
    if (status == 0 && open_tokenizer(&tokenizer, operands[0], args, &err) != POME_OK)
        status = fail_with(&err);
    if (status == 0)
        status = args->decode ? decode(tokenizer, args, ids, n_ids) : encode(tokenizer, args, text);
    pome_tokenizer_close(&tokenizer);
    free(text);
    free(ids);
    return status;
}

const verb verb_tokenize = {
    .name = "tokenize",
    .summary = "ids and pieces of a text, and back",
    .operands = "MODEL|TOKENIZER [TEXT]",
    .description = "Shows how a model's tokenizer cuts a text: one line per token with its id and its piece as the "
                   "vocabulary spells it. Without TEXT, standard input is read.",
    .options = options,
    .examples = examples,
    .n_operands_min = 1,
    .n_operands_max = 2,
    .args_size = sizeof(tokenize_args),
    .set_defaults = set_defaults,
    .run = run,
};

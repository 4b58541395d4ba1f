#include "run.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "input.h"
#include "trace_file.h"
#include "llm_open.h"
#include "verbs.h"

static void set_defaults(void *args)
{
    run_args *a = args;
    a->common.numerics = POME_NUMERICS_FAST;
    a->max_new_tokens = 128;
    a->temperature = 0.7;
    a->top_k = 40;
    a->top_p = 0.95;
    a->repeat_penalty = 1.0;
    a->seed = -1;
}

#define AT(member) offsetof(run_args, member)
static const option options[] = {
    {"max-new-tokens", 'n', "max-length", OPTION_INT, "N", AT(max_new_tokens), 0, 1e9, true,
     "Stop after N new tokens (128)"},
    {"temperature", 0, NULL, OPTION_REAL, "T", AT(temperature), 0, 1e6, true,
     "Flatten (above 1) or sharpen the choice; 0 always takes the likeliest token (0.7)"},
    {"top-k", 0, NULL, OPTION_INT, "K", AT(top_k), 0, 2147483647, true, "Choose among the K likeliest tokens (40; 0: all)"},
    {"top-p", 0, NULL, OPTION_REAL, "P", AT(top_p), 0, 1, true,
     "Choose among the likeliest tokens that together reach P (0.95; 1: all)"},
    {"min-p", 0, NULL, OPTION_REAL, "P", AT(min_p), 0, 1, true,
     "Drop tokens less likely than P times the likeliest (0: none)"},
    {"repeat-penalty", 0, NULL, OPTION_REAL, "R", AT(repeat_penalty), 1e-6, 1e6, true,
     "Make the last 64 tokens less likely if above 1 (1)"},
    {"seed", 0, NULL, OPTION_INT, "N", AT(seed), 0, 9e18, true, "Equal seeds give equal answers (random)"},
    {"stop", 0, NULL, OPTION_LIST, "TEXT", AT(stop), 0, 0, false, "End the answer where TEXT would appear; may be repeated"},
    {"system", 0, NULL, OPTION_TEXT, "TEXT", AT(system), 0, 0, true, "System message of the chat template"},
    {"prompt", 'p', NULL, OPTION_TEXT, "TEXT", AT(prompt), 0, 0, false, "The prompt, if not given as an argument"},
    {"interactive", 'i', NULL, OPTION_FLAG, NULL, AT(interactive), 0, 0, false,
     "A conversation: /reset forgets it, /stats shows speed, /quit ends; Ctrl-C stops the answer"},
    {"raw", 0, NULL, OPTION_FLAG, NULL, AT(raw), 0, 0, false, "Give the prompt to the model without the chat template"},
    {"ids", 0, NULL, OPTION_TEXT, "1,2,3", AT(ids), 0, 0, false, "Token ids instead of a text, taken as they are"},
    {"print-ids", 0, NULL, OPTION_FLAG, NULL, AT(print_ids), 0, 0, false, "Print the new token ids instead of text"},
    {"ignore-eos", 0, NULL, OPTION_FLAG, NULL, AT(ignore_eos), 0, 0, false, "Go on after the end-of-text token"},
    {"tokenizer", 0, NULL, OPTION_TEXT, "FOLDER|FILE", AT(tokenizer), 0, 0, true,
     "Where the tokenizer is (inside the package, beside it, or in the Hub cache)"},
    OPTIONS_LLM(run_args, llm),
    {"context", 0, NULL, OPTION_INT, "N", AT(context), 0, 1e9, true, "Hold N tokens at most; only lowers the model's limit"},
    {"speculate", 0, NULL, OPTION_INT, "N", AT(speculate), 0, POME_SPECULATE_MAX, true,
     "Guess up to N tokens ahead from the text so far and verify them at once, where that is faster; the answer stays the same (0: off)"},
    OPTIONS_SET_SOURCE(run_args, source),
    {"trace", 0, NULL, OPTION_TEXT, "FILE", AT(trace), 0, 0, false,
     "Write what a set's models did when, in Chrome's trace format"},
    {"stats", 0, NULL, OPTION_FLAG, NULL, AT(stats), 0, 0, false, "Show load time, speed, memory and more on stderr"},
    OPTIONS_ENGINE(run_args, "fast"),
    OPTIONS_OUTPUT(run_args),
    {0},
};

static const char *const examples[] = {
    "pome run smollm2.mlpackage \"Why is the sky blue?\"", "answer with the model's chat template",
    "pome run model.mlpackage --interactive", "a conversation",
    "cat letter.txt | pome run model.mlpackage --system \"Summarize.\"", "prompt from standard input",
    "pome run model.mlpackage --raw --temperature 0 \"Once upon a time\"", "plain continuation, always the same",
    "pome run model.mlpackage --speculate 16 \"Correct the spelling of: ...\"", "faster where the answer repeats the prompt",
    "pome run --local-model-directory llama/ --tokenizer-name owner/name \"Once\"", "a set of chunks, as coreml-llm-cli takes it",
    "pome run model.mlpackage --ids 1,2,3 --temperature 0 --print-ids --ignore-eos", "token ids in, token ids out; needs no tokenizer",
    NULL,
};

/* ---- prompt ---- */

pome_status encode_messages(const run_state *run, const pome_message *messages, size_t n_messages, int32_t **ids,
                            size_t *n_ids, pome_error *err)
{
    bool uses_template = !run->args->raw && pome_tokenizer_has_chat_template(run->tokenizer);
    if (!uses_template) {
        const char *text = messages[n_messages - 1].content;
        return pome_tokenizer_encode(run->tokenizer, text, strlen(text), true, true, ids, n_ids, err);
    }
    char *text = NULL;
    size_t len = 0;
    pome_status status = pome_tokenizer_apply_chat_template(run->tokenizer, messages, n_messages, true, &text, &len, err);
    if (status == POME_OK) /* the template wrote BOS and the like itself */
        status = pome_tokenizer_encode(run->tokenizer, text, len, false, true, ids, n_ids, err);
    free(text);
    return status;
}

static pome_status encode_prompt(const run_state *run, const char *prompt, int32_t **ids, size_t *n_ids, pome_error *err)
{
    pome_message messages[2];
    size_t n = 0;
    if (run->args->system)
        messages[n++] = (pome_message){"system", run->args->system};
    messages[n++] = (pome_message){"user", prompt};
    return encode_messages(run, messages, n, ids, n_ids, err);
}

/* ---- answer ---- */

static bool keep_text(answer *a, const char *text, size_t len)
{
    if (a->text_len + len + 1 > a->text_size) {
        size_t size = 2 * a->text_size + len + 64;
        char *grown = realloc(a->text, size);
        if (!grown)
            return false;
        a->text = grown;
        a->text_size = size;
    }
    memcpy(a->text + a->text_len, text, len);
    a->text_len += len;
    a->text[a->text_len] = '\0';
    return true;
}

static bool keep_id(answer *a, int32_t id)
{
    if (a->n_ids == a->ids_size) {
        size_t size = 2 * a->ids_size + 64;
        int32_t *grown = realloc(a->ids, size * sizeof *grown);
        if (!grown)
            return false;
        a->ids = grown;
        a->ids_size = size;
    }
    a->ids[a->n_ids++] = id;
    return true;
}

static void add_moment(moments *m, double value)
{
    m->n++;
    m->sum += value;
    m->sum_of_squares += value * value;
}

static double mean_of(const moments *m)
{
    return m->n > 0 ? m->sum / (double)m->n : 0;
}

static double deviation_of(const moments *m)
{
    double mean = mean_of(m), rest = m->sum_of_squares - (double)m->n * mean * mean;
    return m->n > 1 && rest > 0 ? sqrt(rest / (double)(m->n - 1)) : 0;
}

/* Ids that come at once are one step of several tokens; the first belongs to the prompt. */
static void note_time(answer *a)
{
    double now = now_s(), seconds = now - a->last_s;
    if (a->n_ids > 0 && seconds > 0) {
        add_moment(&a->token_ms, 1e3 * seconds);
        add_moment(&a->tokens_per_s, 1 / seconds);
    }
    a->last_s = now;
}

static bool take_token(void *arg, int32_t id, const char *text, size_t len)
{
    answer *a = arg;
    const run_args *args = a->run->args;
    bool is_first = a->n_ids == 0;
    if (id >= 0)
        note_time(a);
    if (!keep_text(a, text, len) || (id >= 0 && !keep_id(a, id))) {
        a->has_failed = true;
        return false;
    }
    if (args->common.json)
        return true;
    if (args->print_ids && id >= 0)
        printf("%s%d", is_first ? "" : " ", (int)id);
    if (!args->print_ids)
        fwrite(text, 1, len, stdout);
    a->has_failed = finish_output(0) != 0;
    return !a->has_failed;
}

pome_status run_answer(run_state *run, const int32_t *ids, size_t n_ids, answer *a, pome_error *err)
{
    const run_args *args = run->args;
    pome_generate_opts opts;
    pome_generate_opts_default(&opts);
    opts.max_new_tokens = args->max_new_tokens;
    opts.tokenizer = run->tokenizer;
    opts.ignore_eos = args->ignore_eos;
    opts.speculate = args->speculate;
    opts.stop = args->stop.items;
    opts.n_stop = args->stop.n;
    opts.sink = take_token;
    opts.sink_arg = a;
    *a = (answer){.run = run};
    pome_status status = pome_generate(run->session, run->sampler, ids, (int64_t)n_ids, &opts, &a->result, err);
    if (!args->common.json && (status == POME_OK || a->n_ids > 0)) {
        putchar('\n');
        a->has_failed |= finish_output(0) != 0; /* before anything goes to stderr */
    }
    return status;
}

void answer_reset(answer *a)
{
    free(a->text);
    free(a->ids);
    *a = (answer){0};
}

static double rate(int64_t n, double seconds)
{
    return n > 0 && seconds > 0 ? (double)n / seconds : 0.0;
}

json_t *answer_json(const answer *a)
{
    const run_state *run = a->run;
    const pome_generate_result *r = &a->result;
    json_t *ids = json_array();
    for (size_t i = 0; i < a->n_ids; i++)
        json_array_append_new(ids, json_integer(a->ids[i]));
    json_t *text = run->tokenizer ? json_stringn(a->text ? a->text : "", a->text_len) : json_null();
    json_t *document = json_pack("{s:o, s:o, s:s, s:I, s:I, s:I, s:I}", "text", text, "ids", ids, "finish_reason",
                                 pome_finish_name(r->finish), "prompt_tokens", (json_int_t)r->n_prompt, "reused_tokens",
                                 (json_int_t)r->n_reused, "new_tokens", (json_int_t)r->n_new, "seed", (json_int_t)run->seed);
    if (document && run->args->speculate > 0) {
        json_object_set_new(document, "drafted_tokens", json_integer(r->n_drafted));
        json_object_set_new(document, "accepted_tokens", json_integer(r->n_accepted));
    }
    if (document && run->args->stats) {
        json_t *source = run->tokenizer ? json_text(pome_tokenizer_source(run->tokenizer)) : json_null();
        json_object_set_new(document, "stats",
                            json_pack("{s:f, s:f, s:f, s:I, s:I, s:o, s:o}", "load_s", run->load_s, "prompt_tokens_per_s",
                                      rate(r->n_prompt - r->n_reused, r->prompt_s), "decode_tokens_per_s",
                                      rate(r->n_new - 1, r->decode_s), "decode_passes",
                                      (json_int_t)r->n_passes, "peak_memory_bytes",
                                      (json_int_t)peak_memory_bytes(), "tokenizer", source, "contract",
                                      json_text(pome_llm_describe(run->llm))));
        json_object_update_new(json_object_get(document, "stats"),
                               json_pack("{s:f, s:f, s:f, s:f, s:f}", "prompt_ms", 1e3 * r->prompt_s, "token_ms",
                                         mean_of(&a->token_ms), "token_ms_stdev", deviation_of(&a->token_ms),
                                         "tokens_per_s", mean_of(&a->tokens_per_s), "tokens_per_s_stdev",
                                         deviation_of(&a->tokens_per_s)));
    }
    return document;
}

/* As coreml-llm-cli ends. */
static void print_report(const run_state *run, const answer *a)
{
    fprintf(stderr, "\nCompile + Load: %.2f sec\n", run->load_s);
    fprintf(stderr, "Prompt        : %.2f ms\n", 1e3 * a->result.prompt_s);
    fprintf(stderr, "Generate      : %.2f +/- %.2f ms / token\n", mean_of(&a->token_ms), deviation_of(&a->token_ms));
    fprintf(stderr, "                %.2f +/- %.2f token / sec\n", mean_of(&a->tokens_per_s),
            deviation_of(&a->tokens_per_s));
}

void print_stats(const run_state *run, const pome_generate_result *r)
{
    fprintf(stderr, "load       %.3f s\n", run->load_s);
    fprintf(stderr, "prompt     %lld tokens", (long long)r->n_prompt);
    if (r->n_reused > 0)
        fprintf(stderr, " (%lld cached)", (long long)r->n_reused);
    fprintf(stderr, ", %.3f s, %.1f tokens/s\n", r->prompt_s, rate(r->n_prompt - r->n_reused, r->prompt_s));
    fprintf(stderr, "decode     %lld tokens, %.3f s, %.1f tokens/s, ended by %s\n", (long long)r->n_new, r->decode_s,
            rate(r->n_new - 1, r->decode_s), pome_finish_name(r->finish));
    if (run->args->speculate > 0 && !r->not_speculated)
        fprintf(stderr, "drafts     %lld tokens, %lld accepted (%.0f %%), %lld passes\n", (long long)r->n_drafted,
                (long long)r->n_accepted, r->n_drafted > 0 ? 100.0 * (double)r->n_accepted / (double)r->n_drafted : 0.0,
                (long long)r->n_passes);
    fprintf(stderr, "memory     %.1f MB at peak\n", (double)peak_memory_bytes() / 1e6);
    fprintf(stderr, "tokenizer  %s\n", run->tokenizer ? pome_tokenizer_source(run->tokenizer) : "none");
    fprintf(stderr, "contract   %s\n", pome_llm_describe(run->llm));
    fprintf(stderr, "seed       %llu\n", (unsigned long long)run->seed);
}

/* ---- setup ---- */

static void close_run(run_state *run)
{
    pome_sampler_destroy(&run->sampler);
    pome_llm_session_destroy(&run->session);
    pome_llm_close(&run->llm);
    pome_tokenizer_close(&run->tokenizer);
    pome_model_set_close(&run->models);
}

static pome_status create_sampler(run_state *run, pome_error *err)
{
    const run_args *args = run->args;
    pome_sampler_opts opts;
    pome_sampler_opts_default(&opts);
    opts.temperature = (float)args->temperature;
    opts.top_k = (int32_t)args->top_k;
    opts.top_p = (float)args->top_p;
    opts.min_p = (float)args->min_p;
    opts.repeat_penalty = (float)args->repeat_penalty;
    if (args->seed >= 0)
        run->seed = (uint64_t)args->seed;
    else if (getrandom(&run->seed, sizeof run->seed, GRND_NONBLOCK) != (ssize_t)sizeof run->seed)
        run->seed = (uint64_t)(now_s() * 1e9);
    run->seed &= INT64_MAX; /* so that it can be given back with --seed and in JSON */
    opts.seed = run->seed;
    return pome_sampler_create(&run->sampler, &opts, pome_llm_n_vocab(run->llm), err);
}

/* A tokenizer is needed for text in or out and for stop strings; for ids it only tells which ids end an answer. */
static pome_status open_tokenizer(run_state *run, pome_error *err)
{
    const run_args *args = run->args;
    bool is_needed = !args->ids || !args->print_ids || args->stop.n > 0 || args->tokenizer ||
                     args->source.tokenizer_name || args->interactive;
    if (!is_needed && args->ignore_eos)
        return POME_OK;
    pome_status status = set_source_tokenizer(&run->tokenizer, &args->source, run->models, args->tokenizer,
                                              is_needed ? err : NULL);
    return is_needed ? status : POME_OK;
}

static pome_status open_run(run_state *run, const char *path, pome_error *err)
{
    const run_args *args = run->args;
    double start = now_s();
    pome_status status = set_source_open(&run->models, &args->source, path, &args->common, err);
    if (status == POME_OK)
        status = open_llm(&run->llm, run->models, &args->llm, args->context, err);
    if (status == POME_OK && !pome_llm_has_logits(run->llm) && args->temperature > 0)
        note(&args->common, "the model picks tokens itself and gives no logits: temperature, top-k and the like do nothing");
    if (status == POME_OK)
        status = pome_llm_session_create(&run->session, run->llm, err);
    if (status == POME_OK)
        status = open_tokenizer(run, err);
    if (status == POME_OK)
        status = create_sampler(run, err);
    run->load_s = now_s() - start;
    return status;
}

/* ---- one shot ---- */

static void cancel_session(void *arg)
{
    pome_llm_session_cancel(arg);
}

/* Prints what the answer left to say; exit status. */
static int report(run_state *run, answer *a)
{
    if (a->has_failed)
        return finish_output(1);
    if (run->args->common.json && print_json(answer_json(a)))
        return 1;
    if (a->result.finish == POME_FINISH_CONTEXT)
        note(&run->args->common, "the context of %lld tokens is full", (long long)pome_llm_n_context(run->llm));
    if (a->result.not_speculated)
        note(&run->args->common, "--speculate is not used: %s", a->result.not_speculated);
    if (run->args->stats && !run->args->common.json)
        print_stats(run, &a->result);
    if (run->args->stats && !run->args->common.json && pome_model_set_count(run->models) > 1)
        print_report(run, a);
    if (interrupt_happened())
        return EXIT_INTERRUPTED;
    return 0;
}

static int run_once(run_state *run, const int32_t *ids, size_t n_ids)
{
    pome_error err = {0};
    answer a = {0};
    interrupt_catch(cancel_session, run->session);
    pome_status status = run_answer(run, ids, n_ids, &a, &err);
    int exit_status = status == POME_OK ? report(run, &a) : fail_with(&err);
    interrupt_release();
    answer_reset(&a);
    return exit_status;
}

static int run_prompt(run_state *run, const char *prompt)
{
    pome_error err = {0};
    int32_t *ids = NULL;
    size_t n_ids = 0;
    if (run->args->system && (run->args->raw || !pome_tokenizer_has_chat_template(run->tokenizer)))
        note(&run->args->common, "--system is not used: there is no chat template%s", run->args->raw ? " with --raw" : "");
    if (encode_prompt(run, prompt, &ids, &n_ids, &err) != POME_OK)
        return fail_with(&err);
    int status = n_ids ? run_once(run, ids, n_ids) : fail_text("the prompt is empty");
    free(ids);
    return status;
}

/* The prompt as malloc'ed text, or NULL with *status set. `operands` begin behind the model. */
static char *get_prompt(const run_args *args, const char **operands, int n_operands, int *status)
{
    const char *given = args->prompt ? args->prompt : n_operands > 0 ? operands[0] : NULL;
    bool is_stdin = !given || strcmp(given, "-") == 0;
    if (is_stdin && !given && isatty(STDIN_FILENO)) {
        fprintf(stderr, "pome run: no prompt: give one after the model, on standard input, or use --interactive\n");
        *status = EXIT_USAGE;
        return NULL;
    }
    char *prompt = is_stdin ? read_stdin() : strdup(given);
    if (!prompt)
        *status = fail_text("cannot read the prompt: %s", strerror(errno));
    return prompt;
}

static int check_args(const run_args *args, int n_operands)
{
    const char *what = NULL;
    bool has_prompt = args->prompt || n_operands > 0;
    if (n_operands < 0) {
        fprintf(stderr, "pome run: no MODEL is given (or --repo-id, or --local-model-directory)\nusage: pome run %s [options]\n",
                verb_run.operands);
        return EXIT_USAGE;
    }
    if (n_operands > 1)
        what = "too many arguments: --repo-id and --local-model-directory name the model, what follows is the prompt";
    else if (set_source_check(&args->source))
        what = set_source_check(&args->source);
    else if (args->prompt && n_operands > 0)
        what = "the prompt is given twice";
    else if (args->ids && has_prompt)
        what = "--ids stands in for the prompt: give one of them";
    else if (args->interactive && (args->ids || has_prompt))
        what = "--interactive asks for prompts: give none";
    else if (args->top_p <= 0)
        what = "--top-p: 0 would leave no token to choose";
    if (what)
        fprintf(stderr, "pome run: %s\n", what);
    return what ? EXIT_USAGE : 0;
}

static int run_with(run_state *run, const char *path, char *prompt, const int32_t *ids, size_t n_ids)
{
    pome_error err = {0};
    if (open_run(run, path, &err) != POME_OK)
        return fail_with(&err);
    if (run->args->interactive)
        return run_chat(run);
    return ids ? run_once(run, ids, n_ids) : run_prompt(run, prompt);
}

static int run(void *opaque, const char **operands, int n_operands)
{
    run_args *args = opaque;
    run_state state = {.args = args};
    int n_models = set_source_names_model(&args->source) ? 0 : 1;
    char reason[128] = "", *prompt = NULL;
    int32_t *ids = NULL;
    size_t n_ids = 0;
    int status = check_args(args, n_operands - n_models);
    if (status)
        return status;
    if (args->ids && !parse_ids(args->ids, &ids, &n_ids, reason, sizeof reason)) {
        fprintf(stderr, "pome run: --ids: %s\n", reason);
        return EXIT_USAGE;
    }
    if (!args->ids && !args->interactive && !(prompt = get_prompt(args, operands + n_models, n_operands - n_models, &status)))
        return status;
    pome_error err = {0};
    if (args->trace && trace_file_open(args->trace, &err) != POME_OK)
        status = fail_with(&err);
    else
        status = run_with(&state, n_models ? operands[0] : NULL, prompt, ids, n_ids);
    close_run(&state);
    status = trace_file_close() ? 1 : status;
    free(prompt);
    free(ids);
    return status;
}

const verb verb_run = {
    .name = "run",
    .summary = "generate text",
    .operands = "MODEL [PROMPT] | --repo-id OWNER/NAME [PROMPT]",
    .description =
        "Generates text with a language model. The prompt comes from the argument, from --prompt, or from standard "
        "input; the answer goes to standard output as it is made. If the tokenizer has a chat template, the prompt "
        "becomes the user's message of it, unless --raw is given.\n\n"
        "The tokenizer is looked for with --tokenizer, inside the package, beside it, and in the local Hub cache under "
        "the repository that the package names (HF_HUB_CACHE, HF_HOME). With --ids and --print-ids none is needed.\n\n"
        "MODEL may also be a folder of chunks that are run one after the other. The options of coreml-llm-cli say where they "
        "are: with --repo-id or --local-model-directory the first argument is the prompt. Nothing is downloaded. With "
        "--raw --temperature 0 the text is what that command gives.\n\n"
        "Settings come from the option, from the environment (POME_TEMPERATURE for --temperature), from the config file "
        "(~/.config/pome/config with lines like run.temperature = 0.5), and from the default, in this order. A full context ends the answer with a note and exit status 0.",
    .options = options,
    .examples = examples,
    .n_operands_min = 0,
    .n_operands_max = 2,
    .args_size = sizeof(run_args),
    .set_defaults = set_defaults,
    .run = run,
};

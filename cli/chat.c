/* The conversation of `pome run --interactive`. */
#include <errno.h>
#include <histedit.h>
#include <locale.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "run.h"

typedef struct chat {
    run_state *run;
    pome_message *messages; /* contents (and nothing else) are malloc'ed */
    size_t n_messages, n_fixed; /* n_fixed: the system message */
    pome_generate_result last;
    bool has_last;
    EditLine *editor; /* NULL when input is no terminal */
    History *history;
    char *line; /* when input is no terminal */
    size_t line_size;
    char bytes[4096]; /* read, from n_taken on not yet part of a line */
    size_t n_bytes, n_taken;
} chat;

static bool add_message(chat *c, const char *role, const char *content)
{
    pome_message *grown = realloc(c->messages, (c->n_messages + 1) * sizeof *grown);
    char *copy = strdup(content);
    if (grown)
        c->messages = grown;
    if (!grown || !copy) {
        free(copy);
        return false;
    }
    c->messages[c->n_messages++] = (pome_message){role, copy};
    return true;
}

static void drop_messages(chat *c, size_t n_left)
{
    while (c->n_messages > n_left)
        free((char *)c->messages[--c->n_messages].content);
}

static char *prompt_of(EditLine *editor)
{
    (void)editor;
    static char text[] = "> ";
    return text;
}

/* Waits for input or an interrupt; false for the latter. */
static bool wait_for_input(void)
{
    struct pollfd wait[] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = interrupt_descriptor(), .events = POLLIN}};
    while (!interrupt_happened()) {
        if (poll(wait, 2, -1) > 0 && !wait[1].revents)
            return true;
    }
    return false;
}

/* As libedit's own, but an interrupt ends the line: libedit would swallow the first one. */
static int get_char(EditLine *editor, wchar_t *out)
{
    mbstate_t state = {0};
    (void)editor;
    for (;;) {
        char byte;
        if (!wait_for_input())
            return -1;
        ssize_t n = read(STDIN_FILENO, &byte, 1);
        if (n == 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return -1;
        size_t used = n < 0 ? (size_t)-2 : mbrtowc(out, &byte, 1, &state);
        if (used == (size_t)-1) /* no character: start over with the next byte */
            state = (mbstate_t){0};
        else if (used != (size_t)-2)
            return 1;
    }
}

static bool open_editor(chat *c)
{
    HistEvent event;
    setlocale(LC_CTYPE, "");
    c->editor = el_init("pome", stdin, stderr, stderr);
    c->history = history_init();
    if (!c->editor || !c->history)
        return false;
    history(c->history, &event, H_SETSIZE, 1000);
    history(c->history, &event, H_SETUNIQUE, 1);
    el_set(c->editor, EL_PROMPT, prompt_of);
    el_set(c->editor, EL_EDITOR, "emacs");
    el_set(c->editor, EL_SIGNAL, 0);
    el_set(c->editor, EL_GETCFN, get_char);
    el_set(c->editor, EL_HIST, history, c->history);
    return true;
}

/* As getline on standard input, but an interrupt ends the waiting. -1: end of input, an error (errno), or an interrupt. */
static ssize_t read_piped_line(chat *c)
{
    for (size_t len = 0;;) {
        if (c->n_taken == c->n_bytes) {
            if (!wait_for_input())
                return -1;
            ssize_t n = read(STDIN_FILENO, c->bytes, sizeof c->bytes);
            if (n <= 0)
                return n == 0 && len > 0 ? (ssize_t)len : -1;
            c->n_bytes = (size_t)n;
            c->n_taken = 0;
        }
        const char *from = c->bytes + c->n_taken;
        const char *end = memchr(from, '\n', c->n_bytes - c->n_taken);
        size_t n = end ? (size_t)(end - from) + 1 : c->n_bytes - c->n_taken;
        if (len + n >= c->line_size) {
            char *grown = realloc(c->line, 2 * (len + n) + 1);
            if (!grown)
                return -1;
            c->line = grown;
            c->line_size = 2 * (len + n) + 1;
        }
        memcpy(c->line + len, from, n);
        len += n;
        c->line[len] = '\0';
        c->n_taken += n;
        if (end)
            return (ssize_t)len;
    }
}

/* One line without its end, or NULL at the end of input. *is_interrupted: Ctrl-C threw the line away. */
static char *read_line(chat *c, bool *is_interrupted)
{
    int n = 0;
    const char *text = NULL;
    errno = 0;
    *is_interrupted = false;
    if (c->editor) {
        /* By itself the editor shows the prompt first and takes the keys from the terminal after it: a Ctrl-D in between
         * would be lost. */
        el_set(c->editor, EL_PREP_TERM, 1);
        text = el_gets(c->editor, &n);
    } else {
        ssize_t len = read_piped_line(c);
        text = len < 0 ? NULL : c->line;
        n = (int)len;
    }
    if (interrupt_happened()) {
        interrupt_forget();
        *is_interrupted = true;
        return NULL;
    }
    if (!text || n <= 0)
        return NULL;
    HistEvent event;
    if (c->editor && text[0] != '\n')
        history(c->history, &event, H_ENTER, text);
    return strndup(text, (size_t)n - (text[n - 1] == '\n'));
}

static void cancel_session(void *arg)
{
    pome_llm_session_cancel(arg);
}

/* Exit status; 0 goes on. A full context is the user's to solve, not the end of the conversation. */
static int answer_line(chat *c, const char *line)
{
    pome_error err = {0};
    answer a = {0};
    int32_t *ids = NULL;
    size_t n_ids = 0;
    size_t n_before = c->n_messages;
    int exit_status = 0;
    if (!add_message(c, "user", line))
        return fail_text("out of memory");
    pome_status status = encode_messages(c->run, c->messages, c->n_messages, &ids, &n_ids, &err);
    interrupt_catch(cancel_session, c->run->session);
    if (status == POME_OK)
        status = run_answer(c->run, ids, n_ids, &a, &err);
    interrupt_catch(NULL, NULL); /* at the prompt Ctrl-C only drops the line */
    interrupt_forget();
    if (status != POME_OK) {
        fail_with(&err);
        if (status == POME_ERR_LIMIT)
            note(&c->run->args->common, "/reset forgets the conversation and makes room");
        drop_messages(c, n_before);
        exit_status = status == POME_ERR_LIMIT || status == POME_ERR_ARG ? 0 : 1;
    } else {
        c->last = a.result;
        c->has_last = true;
        if (c->run->args->common.json)
            exit_status = print_json_line(answer_json(&a));
        if (a.result.finish == POME_FINISH_CONTEXT)
            note(&c->run->args->common, "the context of %lld tokens is full; /reset makes room",
                 (long long)pome_llm_n_context(c->run->llm));
        if (a.result.not_speculated)
            note(&c->run->args->common, "--speculate is not used: %s", a.result.not_speculated);
        if (!add_message(c, "assistant", a.text ? a.text : ""))
            exit_status = fail_text("out of memory");
        if (c->run->args->stats && !c->run->args->common.json)
            print_stats(c->run, &a.result);
        if (a.has_failed)
            exit_status = finish_output(1);
    }
    answer_reset(&a);
    free(ids);
    return exit_status;
}

static void obey(chat *c, const char *command, bool *is_done)
{
    const common_args *common = &c->run->args->common;
    static const char *const commands[] = {"/quit", "/reset", "/stats", "/help", NULL};
    if (strcmp(command, "/quit") == 0 || strcmp(command, "/exit") == 0) {
        *is_done = true;
    } else if (strcmp(command, "/reset") == 0) {
        drop_messages(c, c->n_fixed);
        pome_llm_session_clear(c->run->session);
        note(common, "the conversation is forgotten");
    } else if (strcmp(command, "/stats") == 0) {
        if (c->has_last)
            print_stats(c->run, &c->last);
        else
            note(common, "there was no answer yet");
    } else if (strcmp(command, "/help") == 0) {
        note(common, "/reset forgets the conversation, /stats shows speed, /quit ends; Ctrl-C stops an answer");
    } else {
        const char *meant = closest_word(command, commands);
        note(common, "no command %s%s%s; /help lists them", command, meant ? ", did you mean " : "", meant ? meant : "");
    }
}

static int converse(chat *c)
{
    int status = 0;
    bool is_done = false;
    while (status == 0 && !is_done) {
        bool is_interrupted = false;
        char *line = read_line(c, &is_interrupted);
        if (is_interrupted)
            fputc('\n', stderr);
        else if (!line)
            break;
        else if (line[0] == '/')
            obey(c, line, &is_done);
        else if (line[strspn(line, " \t")])
            status = answer_line(c, line);
        free(line);
    }
    return status;
}

int run_chat(run_state *run)
{
    chat c = {.run = run};
    int status = 0;
    if (run->args->system && !add_message(&c, "system", run->args->system))
        return fail_text("out of memory");
    c.n_fixed = c.n_messages;
    if (isatty(STDIN_FILENO) && !open_editor(&c))
        status = fail_text("the terminal cannot be set up");
    interrupt_catch(NULL, NULL);
    if (status == 0)
        status = converse(&c);
    interrupt_release();
    drop_messages(&c, 0);
    free(c.messages);
    free(c.line);
    if (c.editor)
        el_end(c.editor);
    if (c.history)
        history_end(c.history);
    return status;
}

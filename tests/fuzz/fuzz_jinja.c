/* Templates, rendered with a conversation under small limits. */
#include <stdlib.h>

#include "text/jinja.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char context_text[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":\"hi \xc3\xa9\"},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":"
    "[{\"function\":{\"name\":\"f\",\"arguments\":{\"a\":[1,2.5,null,true]}}}]}],\"x\":3,\"s\":\"a b\",\"l\":[3,1,2],"
    "\"d\":{\"k\":\"v\"},\"add_generation_prompt\":true,\"bos_token\":\"<s>\"}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const pome_jinja_limits limits = {(size_t)4 << 20, (size_t)1 << 18, 20000};
    static json_t *context;
    if (!context && !(context = json_loads(context_text, 0, NULL)))
        abort();
    pome_jinja *jinja = NULL;
    pome_error err = {0};
    char *text = NULL;
    size_t len;
    pome_status status = pome_jinja_compile(&jinja, size ? (const char *)data : "", size, &err);
    if (status == POME_OK)
        status = pome_jinja_render(jinja, context, &limits, &text, &len, &err);
    if (status != POME_OK && !err.message[0])
        abort();
    free(text);
    pome_jinja_destroy(&jinja);
    return 0;
}

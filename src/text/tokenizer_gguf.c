#include "base/error.h"
#include "text/tokenizer.h"

pome_status pome_tokenizer_read_gguf(pome_tokenizer *t, const char *path, pome_error *err)
{
    (void)t;
    return pome_fail(err, POME_ERR_UNSUPPORTED, "%s: vocabularies of GGUF files are not supported yet", path);
}

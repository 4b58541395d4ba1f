#include "npy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zip.h>

/* Type codes of NumPy's array protocol without their byte order. */
static const struct {
    const char *code;
    pome_dtype dtype;
} types[] = {
    {"b1", POME_DTYPE_BOOL}, {"f2", POME_DTYPE_F16}, {"f4", POME_DTYPE_F32}, {"f8", POME_DTYPE_F64},
    {"i1", POME_DTYPE_I8},   {"i2", POME_DTYPE_I16}, {"i4", POME_DTYPE_I32}, {"i8", POME_DTYPE_I64},
    {"u1", POME_DTYPE_U8},   {"u2", POME_DTYPE_U16}, {"u4", POME_DTYPE_U32}, {"u8", POME_DTYPE_U64},
};
enum { N_TYPES = sizeof types / sizeof types[0] };

static pome_status fail(pome_error *err, pome_status code, const char *fmt, ...) POME_PRINTF(3, 4);
static pome_status fail(pome_error *err, pome_status code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    *err = (pome_error){.code = code};
    vsnprintf(err->message, sizeof err->message, fmt, ap);
    va_end(ap);
    return code;
}

/* ---- reading ---- */

typedef struct npy_header {
    pome_dtype dtype;
    bool is_swapped, is_fortran;
    int32_t rank;
    int64_t shape[POME_MAX_RANK];
} npy_header;

static const char *skip_space(const char *p)
{
    return p + strspn(p, " \n\t\r");
}

/* The value behind 'key' of the dictionary literal, or NULL. */
static const char *find_key(const char *header, const char *key)
{
    char quoted[32];
    snprintf(quoted, sizeof quoted, "'%s'", key);
    const char *p = strstr(header, quoted);
    p = p ? skip_space(p + strlen(quoted)) : NULL;
    return p && *p == ':' ? skip_space(p + 1) : NULL;
}

static pome_status parse_descr(npy_header *h, const char *p, const char *what, pome_error *err)
{
    size_t n_quoted = p && *p == '\'' ? strcspn(p + 1, "'") : 0; /* '<f4': order and type */
    if (n_quoted < 2 || !strchr("<>|=", p[1]))
        return fail(err, POME_ERR_UNSUPPORTED, "%s: elements are no plain numbers", what);
    for (int i = 0; i < N_TYPES; i++)
        if (strncmp(p + 2, types[i].code, 2) == 0 && p[4] == '\'') {
            const uint16_t one = 1;
            bool is_little = *(const uint8_t *)&one == 1;
            h->dtype = types[i].dtype;
            h->is_swapped = pome_dtype_bits(h->dtype) > 8 && ((p[1] == '>' && is_little) || (p[1] == '<' && !is_little));
            return POME_OK;
        }
    return fail(err, POME_ERR_UNSUPPORTED, "%s: element type %.*s; float16 to 64, integers and bool are read", what,
                (int)(n_quoted < 12 ? n_quoted + 2 : 12), p);
}

static pome_status parse_shape(npy_header *h, const char *p, const char *what, pome_error *err)
{
    if (!p || *p != '(')
        return fail(err, POME_ERR_FORMAT, "%s: no shape in the header", what);
    p = skip_space(p + 1);
    while (*p != ')') {
        char *end;
        errno = 0;
        long long n = strtoll(p, &end, 10);
        if (end == p || errno || n < 0)
            return fail(err, POME_ERR_FORMAT, "%s: damaged shape in the header", what);
        if (h->rank == POME_MAX_RANK)
            return fail(err, POME_ERR_UNSUPPORTED, "%s: more than %d axes", what, POME_MAX_RANK);
        h->shape[h->rank++] = n;
        p = skip_space(end);
        if (*p == ',')
            p = skip_space(p + 1);
    }
    return POME_OK;
}

static pome_status parse_header(npy_header *h, const char *text, const char *what, pome_error *err)
{
    pome_status status = parse_descr(h, find_key(text, "descr"), what, err);
    if (status == POME_OK)
        status = parse_shape(h, find_key(text, "shape"), what, err);
    const char *order = find_key(text, "fortran_order");
    h->is_fortran = order && strncmp(order, "True", 4) == 0;
    return status;
}

static void swap_bytes(uint8_t *p, size_t n, size_t size)
{
    for (size_t i = 0; i < n; i++, p += size)
        for (size_t j = 0; j < size / 2; j++) {
            uint8_t b = p[j];
            p[j] = p[size - 1 - j];
            p[size - 1 - j] = b;
        }
}

/* Moves elements into a new tensor; Fortran order is a view of reversed strides. */
static pome_status take_elements(pome_tensor *out, const npy_header *h, const uint8_t *data, size_t len,
                                 const char *what, pome_error *err)
{
    size_t size = pome_dtype_bits(h->dtype) / 8, count = 1;
    for (int32_t i = 0; i < h->rank; i++)
        if (__builtin_mul_overflow(count, (size_t)h->shape[i], &count))
            return fail(err, POME_ERR_FORMAT, "%s: the shape is too large", what);
    if (count > len / size)
        return fail(err, POME_ERR_FORMAT, "%s: %zu elements of %zu bytes are declared, %zu bytes follow", what, count,
                    size, len);
    pome_tensor view = pome_tensor_borrow((void *)data, h->dtype, h->rank, h->shape), copy = {0};
    for (int32_t i = 0; i < h->rank && h->is_fortran; i++)
        view.stride[i] = i == 0 ? 1 : view.stride[i - 1] * h->shape[i - 1];
    pome_status status = pome_tensor_clone(&copy, &view, err);
    if (status != POME_OK)
        return status;
    if (h->is_swapped)
        swap_bytes(copy.data, count, size);
    if (h->dtype == POME_DTYPE_BOOL)
        for (size_t i = 0; i < count; i++)
            ((uint8_t *)copy.data)[i] = ((uint8_t *)copy.data)[i] != 0;
    *out = copy;
    return POME_OK;
}

pome_status npy_parse(pome_tensor *out, const void *bytes, size_t len, const char *what, pome_error *err)
{
    const uint8_t *p = bytes;
    if (len < 12 || memcmp(p, "\x93NUMPY", 6) != 0)
        return fail(err, POME_ERR_FORMAT, "%s: not a .npy file", what);
    if (p[6] < 1 || p[6] > 3)
        return fail(err, POME_ERR_UNSUPPORTED, "%s: .npy format %d.%d, 1.0 to 3.0 are read", what, p[6], p[7]);
    size_t at = p[6] == 1 ? 10 : 12, n = p[8] | (size_t)p[9] << 8;
    if (p[6] > 1)
        n |= (size_t)p[10] << 16 | (size_t)p[11] << 24;
    if (n > len - at || n > 1 << 20)
        return fail(err, POME_ERR_FORMAT, "%s: the header needs %zu bytes, %zu follow", what, n, len - at);
    char *text = strndup((const char *)p + at, n);
    if (!text)
        return fail(err, POME_ERR_NOMEM, "out of memory");
    npy_header h = {0};
    pome_status status = parse_header(&h, text, what, err);
    free(text);
    /* The elements need not be aligned in the file; the copy of a misaligned view is made from aligned memory. */
    uint8_t *aligned = status == POME_OK ? malloc(len - at - n + 1) : NULL;
    if (status == POME_OK && !aligned)
        status = fail(err, POME_ERR_NOMEM, "out of memory");
    if (status == POME_OK) {
        memcpy(aligned, p + at + n, len - at - n);
        status = take_elements(out, &h, aligned, len - at - n, what, err);
    }
    free(aligned);
    return status;
}

pome_status npy_read(pome_tensor *out, const char *path, pome_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* a FIFO must not block before it is refused */
    FILE *file = fd >= 0 ? fdopen(fd, "rb") : NULL;
    struct stat about;
    if (!file || fstat(fileno(file), &about) != 0) {
        int reason = errno;
        if (file)
            fclose(file);
        else if (fd >= 0)
            close(fd);
        return fail(err, POME_ERR_IO, "%s: %s", path, strerror(reason));
    }
    size_t len = S_ISREG(about.st_mode) ? (size_t)about.st_size : 0;
    uint8_t *bytes = malloc(len + 1);
    pome_status status = POME_OK;
    if (!S_ISREG(about.st_mode))
        status = fail(err, POME_ERR_IO, "%s: not a regular file", path);
    else if (!bytes)
        status = fail(err, POME_ERR_NOMEM, "out of memory (%zu bytes for %s)", len, path);
    else if (fread(bytes, 1, len, file) != len)
        status = fail(err, POME_ERR_IO, "%s: %s", path, strerror(errno));
    else
        status = npy_parse(out, bytes, len, path, err);
    free(bytes);
    fclose(file);
    return status;
}

/* A few bytes can unpack to any size: memory is not filled to find that no input is as large. */
#define MEMBER_BYTES_MAX (SIZE_MAX > UINT32_MAX ? (size_t)1 << 32 : (size_t)1 << 30)

static pome_status read_member(npz_array *out, zip_t *archive, zip_uint64_t index, const char *path, pome_error *err)
{
    zip_stat_t about;
    char what[400];
    if (zip_stat_index(archive, index, 0, &about) != 0 || !(about.valid & ZIP_STAT_SIZE) || !(about.valid & ZIP_STAT_NAME))
        return fail(err, POME_ERR_FORMAT, "%s: member %llu cannot be read", path, (unsigned long long)index);
    snprintf(what, sizeof what, "%s: %s", path, about.name);
    size_t name_len = strlen(about.name), len = (size_t)about.size;
    if (name_len > 4 && strcmp(about.name + name_len - 4, ".npy") == 0)
        name_len -= 4;
    zip_file_t *file = zip_fopen_index(archive, index, 0);
    uint8_t *bytes = len <= MEMBER_BYTES_MAX ? malloc(len + 1) : NULL;
    pome_status status = POME_OK;
    if (about.size > MEMBER_BYTES_MAX)
        status = fail(err, POME_ERR_LIMIT, "%s: %zu bytes, at most %zu are read", what, len, (size_t)MEMBER_BYTES_MAX);
    else if (!file)
        status = fail(err, POME_ERR_FORMAT, "%s: %s", what, zip_strerror(archive));
    else if (!bytes || !(out->name = strndup(about.name, name_len)))
        status = fail(err, POME_ERR_NOMEM, "out of memory (%zu bytes for %s)", len, what);
    else if (zip_fread(file, bytes, len) != (zip_int64_t)len)
        status = fail(err, POME_ERR_FORMAT, "%s: %s", what, zip_file_strerror(file));
    else
        status = npy_parse(&out->tensor, bytes, len, what, err);
    if (status == POME_ERR_UNSUPPORTED) /* texts and the like may lie beside the arrays that matter */
        status = POME_OK;
    free(bytes);
    if (file)
        zip_fclose(file);
    return status;
}

static pome_status fail_zip(pome_error *err, const char *path, int code)
{
    zip_error_t reason;
    zip_error_init_with_code(&reason, code);
    fail(err, code == ZIP_ER_NOZIP ? POME_ERR_FORMAT : POME_ERR_IO, "%s: %s", path, zip_error_strerror(&reason));
    zip_error_fini(&reason);
    return err->code;
}

pome_status npz_read(npz *out, const char *path, pome_error *err)
{
    int code = 0;
    zip_t *archive = zip_open(path, ZIP_RDONLY, &code);
    if (!archive)
        return fail_zip(err, path, code);
    npz z = {0};
    zip_int64_t n = zip_get_num_entries(archive, 0);
    pome_status status = POME_OK;
    z.arrays = calloc(n > 0 ? (size_t)n : 1, sizeof *z.arrays);
    if (!z.arrays)
        status = fail(err, POME_ERR_NOMEM, "out of memory");
    for (zip_int64_t i = 0; i < n && status == POME_OK; i++) {
        status = read_member(&z.arrays[i], archive, (zip_uint64_t)i, path, err);
        z.n = (size_t)i + 1;
    }
    zip_discard(archive);
    if (status == POME_OK)
        *out = z;
    else
        npz_reset(&z);
    return status;
}

void npz_reset(npz *z)
{
    for (size_t i = 0; i < z->n; i++) {
        free(z->arrays[i].name);
        pome_tensor_reset(&z->arrays[i].tensor);
    }
    free(z->arrays);
    *z = (npz){0};
}

const pome_tensor *npz_find(const npz *z, const char *name)
{
    for (size_t i = 0; i < z->n; i++)
        if (strcmp(z->arrays[i].name, name) == 0)
            return &z->arrays[i].tensor;
    return NULL;
}

bool is_npz_path(const char *path)
{
    size_t len = strlen(path);
    return len > 4 && strcmp(path + len - 4, ".npz") == 0;
}

/* ---- writing ---- */

static const char *code_of(pome_dtype dtype)
{
    for (int i = 0; i < N_TYPES; i++)
        if (types[i].dtype == dtype)
            return types[i].code;
    return NULL;
}

static pome_dtype wider(pome_dtype dtype)
{
    if (pome_dtype_is_float(dtype))
        return POME_DTYPE_F32;
    return dtype == POME_DTYPE_I4 ? POME_DTYPE_I8 : POME_DTYPE_U8;
}

/* Magic, length and dictionary; data begins at a multiple of 64. Returns the header's length. */
static size_t format_header(char *text, size_t size, const pome_tensor *t)
{
    char shape[POME_MAX_RANK * 24 + 4] = "(";
    size_t at = 1, pad;
    for (int32_t i = 0; i < t->rank; i++)
        at += (size_t)snprintf(shape + at, sizeof shape - at, "%lld,%s", (long long)t->shape[i],
                               i + 1 < t->rank ? " " : "");
    if (t->rank > 1)
        at--; /* only a tuple of one ends with a comma */
    snprintf(shape + at, sizeof shape - at, ")");
    const uint16_t one = 1;
    char order = pome_dtype_bits(t->dtype) <= 8 ? '|' : *(const uint8_t *)&one == 1 ? '<' : '>';
    size_t len = (size_t)snprintf(text + 10, size - 10, "{'descr': '%c%s', 'fortran_order': False, 'shape': %s, }",
                                  order, code_of(t->dtype), shape);
    pad = 63 - (10 + len) % 64;
    memset(text + 10 + len, ' ', pad);
    len += pad + 1;
    text[10 + len - 1] = '\n';
    memcpy(text, "\x93NUMPY\x01\x00", 8);
    text[8] = (char)(len & 255);
    text[9] = (char)(len >> 8);
    return 10 + len;
}

pome_status npy_format(void **bytes, size_t *len, const pome_tensor *t, pome_error *err)
{
    pome_tensor dense = {0};
    char header[512];
    pome_status status = code_of(t->dtype) ? pome_tensor_clone(&dense, t, err)
                                           : pome_tensor_cast(&dense, t, wider(t->dtype), err);
    if (status != POME_OK)
        return status;
    size_t n_header = format_header(header, sizeof header, &dense), n_data = pome_tensor_size_bytes(&dense);
    char *all = malloc(n_header + n_data);
    if (all) {
        memcpy(all, header, n_header);
        if (n_data > 0)
            memcpy(all + n_header, dense.data, n_data);
        *bytes = all;
        *len = n_header + n_data;
    } else {
        status = fail(err, POME_ERR_NOMEM, "out of memory (%zu bytes)", n_header + n_data);
    }
    pome_tensor_reset(&dense);
    return status;
}

/* Writes beside `path`; 0 or the reason why not. */
static int write_beside(char *temporary, const void *bytes, size_t len)
{
    int fd = mkstemp(temporary);
    if (fd < 0)
        return errno;
    mode_t mask = umask(0);
    umask(mask);
    FILE *file = fdopen(fd, "wb");
    int reason = file && fwrite(bytes, 1, len, file) == len && fchmod(fd, 0666 & ~mask) == 0 ? 0 : errno;
    if ((file ? fclose(file) : close(fd)) != 0 && reason == 0)
        reason = errno;
    if (reason)
        unlink(temporary);
    return reason;
}

/* The new file replaces an old one only when it is whole. */
pome_status npy_write(const char *path, const pome_tensor *t, pome_error *err)
{
    void *bytes = NULL;
    size_t len = 0, path_len = strlen(path);
    pome_status status = npy_format(&bytes, &len, t, err);
    if (status != POME_OK)
        return status;
    char *temporary = malloc(path_len + sizeof ".XXXXXX");
    int reason = ENOMEM;
    if (temporary) {
        memcpy(temporary, path, path_len);
        memcpy(temporary + path_len, ".XXXXXX", sizeof ".XXXXXX");
        reason = write_beside(temporary, bytes, len);
        if (reason == 0 && rename(temporary, path) != 0) {
            reason = errno;
            unlink(temporary);
        }
    }
    free(temporary);
    free(bytes);
    return reason ? fail(err, POME_ERR_IO, "%s: %s", path, strerror(reason)) : POME_OK;
}

static pome_status add_member(zip_t *archive, const char *name, const pome_tensor *t, pome_error *err)
{
    void *bytes = NULL;
    size_t len = 0;
    char member[300];
    snprintf(member, sizeof member, "%s.npy", name);
    pome_status status = npy_format(&bytes, &len, t, err);
    if (status != POME_OK)
        return status;
    zip_source_t *source = zip_source_buffer(archive, bytes, len, 1);
    if (!source) {
        free(bytes);
        return fail(err, POME_ERR_NOMEM, "%s: %s", member, zip_strerror(archive));
    }
    zip_int64_t index = zip_file_add(archive, member, source, ZIP_FL_ENC_UTF_8 | ZIP_FL_OVERWRITE);
    if (index < 0) {
        zip_source_free(source);
        return fail(err, POME_ERR_IO, "%s: %s", member, zip_strerror(archive));
    }
    zip_set_file_compression(archive, (zip_uint64_t)index, ZIP_CM_STORE, 0);
    zip_file_set_dostime(archive, (zip_uint64_t)index, 0, 1 << 5 | 1, 0); /* 1980-01-01, the first a zip can hold */
    return POME_OK;
}

pome_status npz_write(const char *path, const char *const *names, const pome_tensor *const *tensors, size_t n,
                      pome_error *err)
{
    int code = 0;
    zip_t *archive = zip_open(path, ZIP_CREATE | ZIP_TRUNCATE, &code);
    if (!archive)
        return fail_zip(err, path, code);
    pome_status status = POME_OK;
    for (size_t i = 0; i < n && status == POME_OK; i++)
        status = add_member(archive, names[i], tensors[i], err);
    if (status == POME_OK && zip_close(archive) == 0)
        return POME_OK;
    if (status == POME_OK)
        status = fail(err, POME_ERR_IO, "%s: %s", path, zip_strerror(archive));
    zip_discard(archive);
    return status;
}

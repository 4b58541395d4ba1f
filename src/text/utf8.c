#include "text/utf8.h"

#include <string.h>
#include <utf8proc.h>

int pome_utf8_decode(const char *s, size_t len, uint32_t *cp, bool *truncated)
{
    const uint8_t *p = (const uint8_t *)s;
    if (truncated)
        *truncated = false;
    if (p[0] < 0x80) {
        *cp = p[0];
        return 1;
    }
    /* Table 3-7 of the Unicode Standard: the second byte's range depends on the first. */
    uint8_t low = 0x80, high = 0xbf;
    int n;
    if (p[0] >= 0xc2 && p[0] <= 0xdf) {
        n = 2;
        *cp = p[0] & 0x1fu;
    } else if (p[0] >= 0xe0 && p[0] <= 0xef) {
        n = 3;
        *cp = p[0] & 0x0fu;
        low = p[0] == 0xe0 ? 0xa0 : 0x80;
        high = p[0] == 0xed ? 0x9f : 0xbf;
    } else if (p[0] >= 0xf0 && p[0] <= 0xf4) {
        n = 4;
        *cp = p[0] & 0x07u;
        low = p[0] == 0xf0 ? 0x90 : 0x80;
        high = p[0] == 0xf4 ? 0x8f : 0xbf;
    } else {
        return -1;
    }
    for (int i = 1; i < n; i++) {
        if ((size_t)i >= len) {
            if (truncated)
                *truncated = true;
            return -i;
        }
        if (p[i] < low || p[i] > high)
            return -i;
        *cp = *cp << 6 | (p[i] & 0x3fu);
        low = 0x80;
        high = 0xbf;
    }
    return n;
}

size_t pome_utf8_encode(uint32_t cp, char out[4])
{
    if (cp > 0x10ffff || (cp >= 0xd800 && cp <= 0xdfff))
        cp = POME_CP_REPLACEMENT;
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xc0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xe0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
        out[2] = (char)(0x80 | (cp & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
    out[3] = (char)(0x80 | (cp & 0x3f));
    return 4;
}

size_t pome_utf8_valid_len(const char *s, size_t len)
{
    size_t i = 0;
    while (i < len) {
        uint64_t eight;
        while (len - i >= 8) { /* most text is ASCII */
            memcpy(&eight, s + i, 8);
            if (eight & 0x8080808080808080u) {
                i += pome_lowest_byte(eight & 0x8080808080808080u);
                break;
            }
            i += 8;
        }
        if (i >= len)
            break;
        const uint8_t *p = (const uint8_t *)s + i;
        if (p[0] >= 0xc2 && p[0] <= 0xdf && len - i >= 2 && (p[1] & 0xc0) == 0x80) { /* the next most frequent */
            i += 2;
            continue;
        }
        uint32_t cp;
        int n = pome_utf8_decode(s + i, len - i, &cp, NULL);
        if (n < 0)
            break;
        i += (size_t)n;
    }
    return i;
}

bool pome_utf8_is_valid(const char *s, size_t len)
{
    return pome_utf8_valid_len(s, len) == len;
}

void pome_utf8_append_lossy(pome_strbuf *out, const char *s, size_t len)
{
    size_t i = 0;
    while (i < len) {
        size_t valid = pome_utf8_valid_len(s + i, len - i);
        pome_strbuf_append(out, s + i, valid);
        i += valid;
        if (i < len) {
            uint32_t cp;
            i += (size_t)-pome_utf8_decode(s + i, len - i, &cp, NULL);
            pome_strbuf_put_cp(out, POME_CP_REPLACEMENT);
        }
    }
}

size_t pome_utf8_incomplete_tail(const char *s, size_t len)
{
    for (size_t n = 1; n <= 3 && n <= len; n++) {
        uint8_t b = (uint8_t)s[len - n];
        if (b >= 0x80 && b < 0xc0)
            continue;
        bool truncated;
        uint32_t cp;
        int got = pome_utf8_decode(s + len - n, n, &cp, &truncated);
        return truncated && (size_t)-got == n ? n : 0;
    }
    return 0;
}

size_t pome_utf8_count(const char *s, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += ((uint8_t)s[i] & 0xc0) != 0x80;
    return n;
}

uint32_t pome_utf8_last(const char *s, size_t len, size_t *start)
{
    size_t i = len - 1;
    while (i > 0 && ((uint8_t)s[i] & 0xc0) == 0x80)
        i--;
    uint32_t cp = POME_CP_REPLACEMENT;
    if (pome_utf8_decode(s + i, len - i, &cp, NULL) < 0)
        cp = POME_CP_REPLACEMENT;
    *start = i;
    return cp;
}

static utf8proc_category_t category(uint32_t cp)
{
    return utf8proc_category((utf8proc_int32_t)cp);
}

bool pome_cp_is_space(uint32_t cp)
{
    if (cp < 0x80)
        return cp == ' ' || (cp >= 9 && cp <= 13);
    if (cp == 0x85)
        return true;
    utf8proc_category_t c = category(cp);
    return c == UTF8PROC_CATEGORY_ZS || c == UTF8PROC_CATEGORY_ZL || c == UTF8PROC_CATEGORY_ZP;
}

bool pome_cp_is_numeric(uint32_t cp)
{
    utf8proc_category_t c = category(cp);
    return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
}

bool pome_cp_is_punctuation(uint32_t cp)
{
    if (cp < 0x80)
        return (cp >= '!' && cp <= '/') || (cp >= ':' && cp <= '@') || (cp >= '[' && cp <= '`') ||
               (cp >= '{' && cp <= '~');
    utf8proc_category_t c = category(cp);
    return c >= UTF8PROC_CATEGORY_PC && c <= UTF8PROC_CATEGORY_PO;
}

/* Other_Alphabetic beyond M*: circled and squared Latin letters (So). */
static bool is_other_alphabetic(uint32_t cp)
{
    return (cp >= 0x24b6 && cp <= 0x24e9) || (cp >= 0x1f130 && cp <= 0x1f149) || (cp >= 0x1f150 && cp <= 0x1f169) ||
           (cp >= 0x1f170 && cp <= 0x1f189);
}

bool pome_cp_is_word(uint32_t cp)
{
    switch (category(cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        return cp == 0x200c || cp == 0x200d || is_other_alphabetic(cp);
    }
}

bool pome_cp_is_mark(uint32_t cp)
{
    utf8proc_category_t c = category(cp);
    return c >= UTF8PROC_CATEGORY_MN && c <= UTF8PROC_CATEGORY_ME;
}

bool pome_cp_is_printable(uint32_t cp)
{
    switch (category(cp)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return false;
    case UTF8PROC_CATEGORY_ZS:
        return cp == ' ';
    default:
        return true;
    }
}

bool pome_cp_is_alpha(uint32_t cp)
{
    utf8proc_category_t c = category(cp);
    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

bool pome_cp_is_upper(uint32_t cp)
{
    return category(cp) == UTF8PROC_CATEGORY_LU;
}

bool pome_cp_is_lower(uint32_t cp)
{
    return category(cp) == UTF8PROC_CATEGORY_LL;
}

void pome_cp_append_lower(pome_strbuf *out, uint32_t cp)
{
    if (cp == 0x130) { /* the only lower mapping of several characters */
        pome_strbuf_puts(out, "i\xcc\x87");
        return;
    }
    pome_strbuf_put_cp(out, (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp));
}

/* SpecialCasing.txt, the mappings met in practice: sharp s, n with apostrophe, Latin and Armenian ligatures. */
static const struct {
    uint32_t cp;
    const char *upper, *title;
} special_upper[] = {
    {0xdf, "SS", "Ss"},
    {0x149, "\xca\xbcN", "\xca\xbcN"},
    {0x1f0, "J\xcc\x8c", "J\xcc\x8c"},
    {0x390, "\xce\x99\xcc\x88\xcc\x81", "\xce\x99\xcc\x88\xcc\x81"},
    {0x3b0, "\xce\xa5\xcc\x88\xcc\x81", "\xce\xa5\xcc\x88\xcc\x81"},
    {0x587, "\xd4\xb5\xd5\x92", "\xd4\xb5\xd6\x82"},
    {0x1e96, "H\xcc\xb1", "H\xcc\xb1"},
    {0xfb00, "FF", "Ff"},
    {0xfb01, "FI", "Fi"},
    {0xfb02, "FL", "Fl"},
    {0xfb03, "FFI", "Ffi"},
    {0xfb04, "FFL", "Ffl"},
    {0xfb05, "ST", "St"},
    {0xfb06, "ST", "St"},
};

void pome_cp_append_upper(pome_strbuf *out, uint32_t cp)
{
    for (size_t i = 0; cp >= 0x80 && i < sizeof special_upper / sizeof *special_upper; i++) {
        if (special_upper[i].cp == cp) {
            pome_strbuf_puts(out, special_upper[i].upper);
            return;
        }
    }
    pome_strbuf_put_cp(out, (uint32_t)utf8proc_toupper((utf8proc_int32_t)cp));
}

void pome_cp_append_title(pome_strbuf *out, uint32_t cp)
{
    for (size_t i = 0; cp >= 0x80 && i < sizeof special_upper / sizeof *special_upper; i++) {
        if (special_upper[i].cp == cp) {
            pome_strbuf_puts(out, special_upper[i].title);
            return;
        }
    }
    pome_strbuf_put_cp(out, (uint32_t)utf8proc_totitle((utf8proc_int32_t)cp));
}

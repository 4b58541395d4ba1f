/* UTF-8 and the character properties that tokenizers and templates ask for (Unicode data from utf8proc). */
#ifndef POME_TEXT_UTF8_H
#define POME_TEXT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text/strbuf.h"

#define POME_CP_REPLACEMENT 0xfffdu

/* Decodes the character at s[0..len), len > 0. Returns its length, 1 to 4, with *cp set; or, for bytes that are not
 * UTF-8, minus the length of the maximal invalid part (what one U+FFFD stands for in Python and in the WHATWG rule).
 * *truncated (may be NULL) tells that the part only lacks its last bytes. */
int pome_utf8_decode(const char *s, size_t len, uint32_t *cp, bool *truncated);
/* Of eight bytes that were copied from memory: which one is the first with its high bit set. `high` has no other bits and
 * is not 0. The bits below the lowest one are counted, an eighth of them; little-endian as all of this library. */
static inline size_t pome_lowest_byte(uint64_t high)
{
    const uint64_t ones = 0x0101010101010101u;
    uint64_t below = (high & (~high + 1)) - 1;
    return (size_t)((below & ones) * ones >> 56) - 1;
}
/* As pome_utf8_decode for text known to be valid: the length alone. */
static inline size_t pome_utf8_len(char first)
{
    uint8_t b = (uint8_t)first;
    return b < 0x80 ? 1 : b < 0xe0 ? 2 : b < 0xf0 ? 3 : 4;
}
/* Writes up to 4 bytes; returns how many. A value that is no character becomes U+FFFD. */
size_t pome_utf8_encode(uint32_t cp, char out[4]);
bool pome_utf8_is_valid(const char *s, size_t len);
/* The length of the valid text at the start of s. */
size_t pome_utf8_valid_len(const char *s, size_t len);
/* Appends s, each maximal invalid part replaced by one U+FFFD. */
void pome_utf8_append_lossy(pome_strbuf *out, const char *s, size_t len);
/* How many bytes at the end of s are the start of a character whose rest may still come: 0 to 3. */
size_t pome_utf8_incomplete_tail(const char *s, size_t len);
size_t pome_utf8_count(const char *s, size_t len); /* characters; s is valid */
/* The last character of s[0..len), which is valid and not empty; *start its position. */
uint32_t pome_utf8_last(const char *s, size_t len, size_t *start);

bool pome_cp_is_space(uint32_t cp);       /* White_Space */
bool pome_cp_is_numeric(uint32_t cp);     /* categories N* */
bool pome_cp_is_punctuation(uint32_t cp); /* ASCII punctuation or categories P* */
bool pome_cp_is_word(uint32_t cp);        /* Alphabetic, M*, Nd, Pc, Join_Control: \w of UTS 18 */
bool pome_cp_is_mark(uint32_t cp); /* categories M* */
bool pome_cp_is_printable(uint32_t cp); /* as Python's str.isprintable */
bool pome_cp_is_alpha(uint32_t cp);     /* categories L*, as Python's str.isalpha */
bool pome_cp_is_upper(uint32_t cp);
bool pome_cp_is_lower(uint32_t cp);
/* Full (one to several characters) case mappings of one character, without context. */
void pome_cp_append_lower(pome_strbuf *out, uint32_t cp);
void pome_cp_append_upper(pome_strbuf *out, uint32_t cp);
void pome_cp_append_title(pome_strbuf *out, uint32_t cp);

#endif

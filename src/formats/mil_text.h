/* MIL text to the structs of the protobuf, so that all that follows is the same for both. Read are the long spelling,
 * program(1.0) with tensor<int32, []>(3), and the short one, program(1.3) with int32(3), each wherever it stands:
 *
 *     file     = "program" "(" NUMBER ")" attrs? "{" function* "}"
 *     function = "func" NAME "<" NAME ">" "(" [param {"," param}] ")" attrs? "{" statement* "}" "->" names ";"
 *     statement = [param {"," param} "="] NAME "(" [NAME "=" value {"," NAME "=" value}] ")" attrs? block* ";"
 *     block    = NAME? "(" [param {"," param}] ")" "{" statement* "}" "->" names
 *     param    = type NAME                     names = "(" [NAME {"," NAME}] ")"
 *     attrs    = "[" [NAME "=" typed {"," NAME "=" typed}] "]"
 *     value    = NAME | typed | "(" [value {"," value}] ")"
 *     typed    = type "(" literal ")"
 *     type     = DTYPE | "tensor" "<" DTYPE "," "[" [(INTEGER | "?" | "*?") {"," ...}] "]" ">"
 *              | "list" "<" type "," (INTEGER | "?") ">" | "tuple" "<" [type {"," type}] ">"
 *              | "dict" "<" type "," type ">" | "state" "<" type ">"
 *     literal  = "BLOBFILE" "(" "path" "=" typed "," "offset" "=" typed ")"
 *              | scalar | "[" ... "]" | "(" ... ")" | "{" {"{" literal "," literal "}"} "}"
 *
 * A NAME that is no identifier may be written as a string. */
#ifndef POME_FORMATS_MIL_TEXT_H
#define POME_FORMATS_MIL_TEXT_H

#include "base/arena.h"
#include "base/error.h"
#include "base/span.h"
#include "formats/coreml.pb-c.h"

/* Everything is made in the arena; nothing is a view of the text. Opsets become the protobuf's: ios16 CoreML6. max_depth
 * bounds types, literals and blocks in each other. Errors: FORMAT ("line 3, column 14: found ..., wanted ..."), LIMIT,
 * NOMEM. */
pome_status pome_mil_text_parse(const Pome__Spec__Program **out, pome_bytes text, pome_arena *arena,
                                uint32_t max_depth, pome_error *err);

#endif

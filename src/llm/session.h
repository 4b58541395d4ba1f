/* What the generate loop needs of a session beyond the public interface. */
#ifndef POME_LLM_SESSION_H
#define POME_LLM_SESSION_H

#include "pome/llm.h"

/* Takes back what pome_llm_session_cancel asked and no feed has noticed. */
void pome_llm_session_forget_cancel(pome_llm_session *session);

/* Whether tokens at the end of the timeline can be taken back (pome_llm_session_rewind). */
bool pome_llm_session_can_rewind(const pome_llm_session *session);
/* The most tokens up to n that one pass takes and that can be taken back afterwards; at least 1, which may not. */
int64_t pome_llm_session_max_draft(const pome_llm_session *session, int64_t n);

#endif

/* What the generate loop needs of a session beyond the public interface. */
#ifndef POME_LLM_SESSION_H
#define POME_LLM_SESSION_H

#include "pome/llm.h"

/* True once if pome_llm_session_cancel was called and no feed has noticed yet. */
bool pome_llm_session_take_cancel(pome_llm_session *session);

#endif

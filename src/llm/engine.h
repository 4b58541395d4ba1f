/* Inside of an engine; pome/llm.h is the outside. */
#ifndef POME_LLM_ENGINE_H
#define POME_LLM_ENGINE_H

#include "llm/contract.h"

struct pome_llm {
    pome_contract_subject subject;
    pome_contract_model *models; /* [subject.n_models] */
    char *function;              /* copies of what the options say; NULL: the default */
    pome_llm_role *roles;
    pome_contract contract;
    pome_runner_opts runner;     /* context and block of its sessions */
    int64_t n_vocab;
    char description[512], explanation[720];
};

#endif

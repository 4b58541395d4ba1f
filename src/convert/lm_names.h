/* The parts that language models are made of, and what checkpoints call them. */
#ifndef POME_CONVERT_LM_NAMES_H
#define POME_CONVERT_LM_NAMES_H

typedef enum pome_part {
    POME_PART_EMBEDDING = 0,
    POME_PART_HEAD,
    POME_PART_POSITIONS, /* learned: a row for each position, added to the embedding */
    POME_PART_NORM,      /* before the head */
    POME_PART_QUERY,     /* from here on in every layer */
    POME_PART_KEY,
    POME_PART_VALUE,
    POME_PART_OUT,
    POME_PART_GATE,
    POME_PART_UP,
    POME_PART_DOWN,
    POME_PART_ATTENTION_NORM,
    POME_PART_MLP_NORM,
    POME_PART_QUERY_NORM,
    POME_PART_KEY_NORM,
    POME_PART_ATTENTION_POST_NORM,
    POME_PART_MLP_POST_NORM,
    POME_PART_COUNT
} pome_part;

/* A tensor is called PREFIX STEM .weight, or PREFIX LAYERS .N. STEM .weight; the head has no prefix. Parts of one name
 * share a matrix, its rows in the order of pome_part. */
typedef struct pome_lm_names {
    const char *prefix;  /* files of the bare model leave it out */
    const char *layers;
    const char *part[POME_PART_COUNT]; /* NULL: the family has none */
} pome_lm_names;

/* Hugging Face folders */
extern const pome_lm_names pome_lm_names_llama, pome_lm_names_qwen3, pome_lm_names_gemma2, pome_lm_names_gemma3,
    pome_lm_names_phi3, pome_lm_names_openelm, pome_lm_names_gpt2;
/* GGUF files */
extern const pome_lm_names pome_lm_names_gguf, pome_lm_names_gguf_qwen3, pome_lm_names_gguf_gemma2,
    pome_lm_names_gguf_gemma3, pome_lm_names_gguf_phi3, pome_lm_names_gguf_openelm, pome_lm_names_gguf_gpt2;

#endif

"""Greedy generation in the way of coremltools' examples for stateful language models: nothing here knows another engine.

    generate_text.py PACKAGE TOKENIZER PROMPT N_TOKENS"""
import sys

import numpy as np
from coremltools.models import MLModel
from transformers import AutoTokenizer


def next_tokens(model, prompt):
    """Yields ids. prompt: int32 [1, n]"""

    def infer(ids, n_past):
        mask = np.triu(np.full((1, 1, ids.shape[-1], n_past + ids.shape[-1]), -np.inf if ids.shape[-1] > 1 else 0), k=1)
        return model.predict({"inputIds": ids, "causalMask": mask.astype(np.float16)}, state)["logits"]

    state = model.make_state()
    logits = infer(prompt, 0)
    n_past = prompt.shape[-1]
    while True:
        token = int(np.argmax(logits[0][-1], axis=-1))
        yield token
        logits = infer(np.array([[token]], dtype=np.int32), n_past)
        n_past += 1


def main():
    package, tokenizer_path, prompt, n_tokens = sys.argv[1:]
    model = MLModel(package)
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_path)
    ids = tokenizer(prompt, return_tensors="np")["input_ids"].astype(np.int32)
    new = [token for _, token in zip(range(int(n_tokens)), next_tokens(model, ids))]
    print(*new)
    print(tokenizer.decode(new))


if __name__ == "__main__":
    main()

"""What a program does with the package, for a checker of types: runs, and has no types that are not given."""
import numpy as np
import numpy.typing as npt

import pome


def scores(model: pome.Model, ids: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
    outputs = model.predict({"input_ids": ids, "attention_mask": np.ones_like(ids)})
    result: npt.NDArray[np.float32] = outputs["token_scores"]
    return result


def describe(model: pome.Model) -> list[str]:
    lines: list[str] = [model.path, model.describe(), model.mil(), *model.metadata.values()]
    for feature in model.inputs + model.outputs + model.states:
        shape: tuple[int, ...] | None = feature.shape
        lines.append(f"{feature.name} {feature.dtype} {shape} {feature.default} {feature.classes}")
    functions: dict[str, pome.Function] = model.functions
    return lines + list(functions)


def answer(path: str, prompt: str) -> tuple[str, list[int], str | None]:
    llm = pome.LLM(path, contract="stateful", map={"ids": "inputIds"}, context=64, numerics="exact", threads=2)
    pieces: list[str] = []
    generation: pome.Generation = llm.generate([1, 2, 3] if not prompt else prompt, max_new_tokens=4, temperature=0.0, stop=["."])
    for token in generation:
        id: int | None = token.id
        text: str = token.text
        pieces.append(text if id is not None else "")
    return "".join(pieces), generation.ids, generation.finish


def talk(llm: pome.LLM) -> list[dict[str, str]]:
    chat: pome.Chat = llm.chat("Be brief.", max_new_tokens=3)
    chat.send("hello").read()
    return chat.messages


def timeline(llm: pome.LLM) -> int:
    session: pome.Session = llm.session()
    logits: npt.NDArray[np.float32] = session.feed([1, 2, 3])
    rows = session.append(np.array([4, 5]), rows=2)
    session.rewind(2)
    return int(logits.argmax()) + len(rows) + len(session) + session.n_reused


def carry(model: pome.Model) -> float:
    state: pome.State = model.state()
    state["keyCache"][...] = 0
    state.clear()
    total = 0.0
    for name, array in state.items():
        total += float(array.sum()) + len(name)
    return total


def parts(folder: str) -> dict[str, float]:
    models = pome.ModelSet(folder, prefix=None, threads=1)
    seconds: dict[str, float] = models.open_seconds
    llm = pome.LLM(models)
    return {name: seconds[name] + len(model.inputs) + llm.n_vocab for name, model in models.items()}


def failure(path: str) -> tuple[str, int, int, str]:
    try:
        pome.Model(path)
    except pome.FormatError as error:
        return error.code, error.status, error.offset, error.message
    except pome.Error as error:
        return error.code, error.status, error.offset, error.message
    return "", 0, 0, ""


def text(path: str) -> str:
    tokenizer = pome.Tokenizer(path)
    ids: list[int] = tokenizer.encode("hello", add_special=False)
    first: int | None = tokenizer.find("h")
    return tokenizer.decode(ids) + (tokenizer.piece(first) or "" if first is not None else "")

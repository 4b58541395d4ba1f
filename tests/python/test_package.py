"""The Python package: what its classes give, against the stored results of tests/golden; its docstrings' examples."""
import doctest
import importlib
import inspect
import json
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

if os.environ.get("POME_PACKAGE"):  # scripts/test installs it
    import pome as package
else:
    package = pytest.importorskip("pome")


GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden"


@pytest.fixture(scope="module")
def llm_path():
    return GOLDEN / "apple" / "int4-block32.mlpackage"


@pytest.fixture(scope="module")
def model(llm_path):
    return package.Model(llm_path)


@pytest.fixture(scope="module")
def llm(model):
    return package.LLM(model, tokenizer=GOLDEN / "tokenizer")


EXAMPLES = {"scores.mlpackage": "nocache/scores-range-fp32-tied.mlpackage", "llm.mlpackage": "apple/int4-block32.mlpackage",
            "adapters.mlpackage": "multifunction/int4-block32.mlpackage", "chunks": "chunks-lut4-split", "tokenizer": "tokenizer"}


@pytest.mark.parametrize("name", [None, "_errors", "_llm", "_model", "_model_set", "_tokenizer"])
def test_examples_of_docstrings(name, tmp_path, monkeypatch):
    for link, target in EXAMPLES.items():
        (tmp_path / link).symlink_to(GOLDEN / target)
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module("pome." + name) if name else package
    failed, tried = doctest.testmod(module, extraglobs={"pome": package, "np": np})
    assert tried > 0 and failed == 0


def test_everything_public_is_documented():
    for name in package.__all__:
        thing = getattr(package, name)
        if not inspect.isclass(thing):
            assert name == "__version__" or inspect.getdoc(thing), name
            continue
        assert thing.__doc__, name
        assert ">>>" in thing.__doc__ or (issubclass(thing, package.Error) and thing is not package.Error), f"{name}: no example"
        for method, value in vars(thing).items():
            if not method.startswith("_") and (callable(value) or isinstance(value, (property, classmethod))):
                assert inspect.getdoc(value), f"{name}.{method}"


def test_description(model):
    ids, mask = model.inputs
    assert (ids.name, ids.dtype, ids.shape, ids.range) == ("inputIds", "int32", (1, 1), ((1, 1), (1, 128)))
    assert mask.kind == "tensor" and not mask.is_optional and mask.default is None
    assert [state.name for state in model.states] == ["keyCache", "valueCache"]
    assert model.outputs[0].shape is None
    assert model.default_function == "main" and list(model.functions) == ["main"]
    assert model.specification_version == 9 and model.weights_bytes > 100000
    assert model.metadata["co.huggingface.exporters.name"] == "tiny/llama-64x4"
    assert "scaled_dot_product_attention" in model.mil()
    listed = package.Model(GOLDEN / "enumerated" / "stateful-int4.mlpackage").inputs[0]
    assert listed.enumerated == ((1, 1), (1, 8), (1, 32)) and listed.range is None


def causal_mask(new, total):
    mask = np.triu(np.full((total, total), -np.inf, np.float16), 1)
    return mask[None, None, total - new :]


def test_states_carry_a_timeline(model, llm_path):
    expected = np.load(llm_path.parent / "int4-block32.expected.npz")
    prompt = expected["prompt"].astype(np.int64)  # converted to the declared int32
    whole = model.predict({"inputIds": prompt[None], "causalMask": causal_mask(len(prompt), len(prompt))}, model.state())
    assert np.abs(whole["logits"][0] - expected["prefill_logits"]).max() < 0.2
    state = model.state()
    for i, id in enumerate(prompt):
        step = model.predict({"inputIds": [[id]], "causalMask": causal_mask(1, i + 1)}, state)
        assert np.abs(step["logits"][0, 0] - expected["prefill_logits"][i]).max() < 0.2
    assert state["keyCache"].dtype == np.float16 and np.abs(state["keyCache"][:, :, :, : len(prompt)]).min() > 0
    assert not state["keyCache"][:, :, :, len(prompt) :].any()
    state["keyCache"][...] = 0  # a view of the engine's memory
    state["valueCache"][...] = 0
    again = model.predict({"inputIds": prompt[None], "causalMask": causal_mask(len(prompt), len(prompt))}, state)
    assert np.array_equal(again["logits"], whole["logits"])
    state.clear()
    assert not state["valueCache"].any() and len(state) == 2


def test_functions():
    model = package.Model(GOLDEN / "multifunction" / "int4-block32.mlpackage")
    expected = np.load(GOLDEN / "multifunction" / "int4-block32.expected.npz")
    assert sorted(model.functions) == ["adapter", "base"]
    for name in model.functions:
        prompt = expected[name + ".prompt"]
        inputs = {"inputIds": prompt[None], "causalMask": causal_mask(len(prompt), len(prompt))}
        logits = model.predict(inputs, model.state(name), function=name)["logits"]
        assert np.abs(logits[0] - expected[name + ".prefill_logits"]).max() < 0.2
    with pytest.raises(KeyError, match="adapter, base|base, adapter"):
        model.predict({}, function="other")


def scores_inputs(n, seed=0):
    ids = np.random.default_rng(seed).integers(0, 512, (1, n), dtype=np.int32)
    return {"input_ids": ids, "attention_mask": np.ones_like(ids)}


def test_inputs_of_any_layout():
    model = package.Model(GOLDEN / "nocache" / "scores-range-fp32-tied.mlpackage")
    inputs = scores_inputs(6)
    ids = inputs["input_ids"]
    want = model.predict(inputs)["token_scores"]
    wide = np.zeros((1, 12), np.int32)
    wide[:, ::2] = ids
    packed = np.zeros(6, np.dtype([("pad", "u1"), ("id", "<i4")]))  # unaligned, odd stride
    packed["id"] = ids[0]
    frozen = ids.copy()
    frozen.flags.writeable = False
    for other in (wide[:, ::2], ids.astype(np.int64), ids.astype(np.float32) + 0.5, ids.astype(">i4"), packed["id"][None],
                  np.flip(np.flip(ids, 1).copy(), 1), ids.tolist(), frozen, memoryview(ids)):
        assert np.array_equal(model.predict({**inputs, "input_ids": other})["token_scores"], want)
    for wrong in (ids.astype(np.complex64), ids.astype(object), np.array([["a"] * 6])):
        with pytest.raises(TypeError, match="input_ids"):
            model.predict({**inputs, "input_ids": wrong})


def test_outputs_belong_to_the_caller():
    model = package.Model(GOLDEN / "nocache" / "scores-range-fp32-tied.mlpackage")
    first = model.predict(scores_inputs(6))["token_scores"]
    kept = first.copy()
    model.predict(scores_inputs(6, seed=1))
    assert np.array_equal(first, kept) and first.flags.writeable
    del model
    assert np.array_equal(first, kept)
    model = package.Model(GOLDEN / "chunks-lut4-split" / "tiny-llama_chunk4.mlpackage")  # outputs of fixed shape
    x = np.random.default_rng(3).standard_normal((1, 64, 8, 8)).astype(np.float16)
    first = model.predict({"x": x})
    kept = {name: value.copy() for name, value in first.items()}
    assert {value.shape for value in kept.values()} == {(1, 64, 256)}
    second = model.predict({"x": 0 * x})
    assert all(np.array_equal(first[name], kept[name]) for name in kept)
    assert not any(np.array_equal(second[name], kept[name]) for name in kept)
    with pytest.raises(package.ArgumentError):
        model.predict({"x": x[:, :32]})
    third = model.predict({"x": x})
    assert all(np.array_equal(third[name], kept[name]) for name in kept)


def test_batch_and_threads():
    model = package.Model(GOLDEN / "nocache" / "scores-range-fp32-tied.mlpackage", threads=2)
    batch = [scores_inputs(3 + i % 5, seed=i) for i in range(24)]
    want = [out["token_scores"] for out in model.predict_batch(batch)]
    alone = package.Model(model.path, threads=1)
    assert all(np.array_equal(alone.predict(i)["token_scores"], w) for i, w in zip(batch, want))
    got = {}

    def work(part):
        for i in range(part, len(batch), 4):
            got[i] = model.predict(batch[i])["token_scores"]

    threads = [threading.Thread(target=work, args=(part,)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == len(batch) and all(np.array_equal(got[i], w) for i, w in enumerate(want))


def test_an_interrupt_ends_a_prediction():
    model = package.Model(GOLDEN / "loader" / "control_flow.mlpackage")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in the background
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            model.predict({"x": x, "n": np.array([2**31 - 1])})  # so many rounds of a loop: minutes
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    np.testing.assert_array_equal(model.predict({"x": x, "n": np.array([3])})["out"], 3 * x)


def test_a_prediction_lets_other_threads_run(model):
    """While one thread predicts, another holds the interpreter's lock now and then."""
    n, seen, stop = 128, [], threading.Event()
    inputs = {"inputIds": np.ones((1, n)), "causalMask": causal_mask(n, n)}

    def watch():
        while not stop.is_set():
            seen.append(inside[0])

    inside = [False]
    thread = threading.Thread(target=watch)
    thread.start()
    state = model.state()
    for _ in range(20):
        inside[0] = True
        model.predict(inputs, state)
        inside[0] = False
    stop.set()
    thread.join()
    assert sum(seen) > 20


def test_compiling(tmp_path, model):
    inputs = {"inputIds": [[5, 6, 7]], "causalMask": causal_mask(3, 3)}
    want = model.predict(inputs, model.state())["logits"]
    package.compile(model.path, tmp_path / "m.mlmodelc", weights="copy")
    compiled = package.Model(tmp_path / "m.mlmodelc")
    assert np.array_equal(compiled.predict(inputs, compiled.state())["logits"], want)
    with pytest.raises(package.ArgumentError):
        package.compile(model.path, tmp_path / "m.mlmodelc")
    package.compile(model.path, tmp_path / "m.mlmodelc", force=True)
    with pytest.raises(ValueError, match="clone"):
        package.compile(model.path, tmp_path / "n.mlmodelc", weights="move")
    with pytest.raises(package.FileError):
        package.compile(tmp_path / "none.mlpackage", tmp_path / "n.mlmodelc")


def test_errors_carry_the_fields(tmp_path, model):
    with pytest.raises(package.FileError, match="none.mlpackage") as caught:
        package.Model(tmp_path / "none.mlpackage")
    assert (caught.value.code, caught.value.status, caught.value.offset) == ("IO", 2, 0)
    assert isinstance(caught.value, OSError) and caught.value.message == str(caught.value)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (type(copy), copy.code, str(copy)) == (package.FileError, "IO", str(caught.value))
    bad = tmp_path / "bad.mlpackage"
    bad.mkdir()
    (bad / "Manifest.json").write_text("{")
    with pytest.raises(package.FormatError) as caught:
        package.Model(bad)
    assert isinstance(caught.value, ValueError) and caught.value.code == "FORMAT"
    with pytest.raises(package.ArgumentError, match=r"\[2, 3\]"):
        model.predict({"inputIds": np.zeros((2, 3))}, model.state())
    with pytest.raises(package.ArgumentError):
        model.predict({"inputIds": [[1]], "causalMask": causal_mask(1, 1)})  # no state
    with pytest.raises(KeyError, match="causalMask"):
        model.predict({"ids": [[1]]})
    with pytest.raises(ValueError, match="exact"):
        package.Model(model.path, numerics="double")
    with pytest.raises(package.UnsupportedError, match="language model|inputs"):
        package.LLM(GOLDEN / "loader" / "control_flow.mlpackage")


def test_nothing_is_pickled(model, llm):
    for thing in (model, model._native, model.state(), model.state()._native, llm, llm.tokenizer, llm.session(),
                  llm.session()._native, llm.generate([1])):
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(thing)


def test_states_are_told_apart(model):
    one, two = model.state(), model.state()
    assert one == one and one != two and len({one, two}) == 2
    with pytest.raises(TypeError, match="int, wanted one made by Model.state"):
        model.predict({"inputIds": [[1]], "causalMask": causal_mask(1, 1)}, 3)


def test_images_of_every_mode():
    """A network takes colors: what an image's bytes mean is up to its mode."""
    Image = pytest.importorskip("PIL.Image")
    from pome._model import image_pixels

    def feature(kind, color):
        return package.Feature("x", "", kind, "fp32", (1, 3, 4, 6), None, (), False, None, "image", color)

    colors = np.zeros((4, 6, 3), np.uint8)
    colors[:2] = (255, 0, 0)
    colors[2:] = (255, 255, 255)
    image = Image.fromarray(colors)
    for mode in ("RGB", "RGBA", "RGBX", "P", "PA", "CMYK", "YCbCr", "HSV"):
        converted = image.convert("P").convert(mode) if mode == "PA" else image.convert(mode)
        for color in ("rgb", "bgr"):
            assert np.abs(image_pixels(feature("image", color), converted)[..., :3].astype(int) - colors).max() <= 3, mode
    black_and_white = Image.fromarray(np.where(colors[..., 1] > 0, np.uint8(255), np.uint8(0)))
    for mode in ("L", "1", "P", "LA", "RGB", "RGBA", "CMYK", "I", "F"):
        for color in ("gray", "gray_f16"):
            pixels = image_pixels(feature("image", color), black_and_white.convert(mode))
            assert pixels.shape == (4, 6) and np.array_equal(pixels, colors[..., 1]), mode
        if mode not in ("I", "F"):
            assert np.array_equal(image_pixels(feature("image", "rgb"), black_and_white.convert(mode))[..., 0], colors[..., 1]), mode
    with pytest.raises(package.ArgumentError, match="input x: an image"):
        image_pixels(feature("tensor", ""), image)


FORK = """
import os, signal, sys
import numpy as np
import pome

llm = pome.LLM(sys.argv[1], threads=2)
generation = llm.generate([1, 2, 3], max_new_tokens=100, ignore_eos=True, temperature=0)
first = next(generation)
child = os.fork()
if child == 0:
    signal.alarm(20)
    try:
        next(generation)
    except pome.StateError:
        assert list(generation) == [] and generation.finish == "cancelled"
        again = llm.generate([1, 2, 3], max_new_tokens=1, ignore_eos=True, temperature=0)
        sys.exit(0 if next(again) == first else 1)
    sys.exit(2)
assert os.waitpid(child, 0)[1] == 0
assert len(list(generation)) == 99
"""


def test_a_generation_after_a_fork(llm_path):
    """The thread that runs it is not in the other process, which must not wait for it."""
    done = subprocess.run([sys.executable, "-c", FORK, str(llm_path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_tokenizer_agrees_with_the_reference():
    expected = json.loads((GOLDEN / "tokenizer" / "expected.json").read_text())
    tokenizer = package.Tokenizer(GOLDEN / "tokenizer")
    for case in expected["encode"]:
        assert tokenizer.encode(case["text"], add_special=False, parse_special=True) == case["ids"]
        assert tokenizer.decode(case["ids"], skip_special=False) == case["decoded"]
    assert tokenizer.has_chat_template
    for case in expected["chat"] if isinstance(expected["chat"], list) else [expected["chat"]]:
        text = tokenizer.apply_chat_template(case["messages"])
        assert text == case["text"]
        assert tokenizer.encode(text, add_special=False, parse_special=True) == case["ids"]
    assert tokenizer.find(tokenizer.piece(300)) == 300 and tokenizer.find("no such piece") is None
    assert tokenizer.piece(10**6) is None and len(tokenizer) == 512
    assert all(tokenizer.is_special(id) for id in tokenizer.eos_ids)
    with pytest.raises(ValueError):
        tokenizer.decode([[1]])


def test_sessions(llm, llm_path):
    expected = np.load(llm_path.parent / "int4-block32.expected.npz")
    prompt, greedy = expected["prompt"].tolist(), expected["greedy"].tolist()
    session = llm.session()
    logits = session.logits(prompt)
    assert logits.shape == expected["prefill_logits"].shape and np.abs(logits - expected["prefill_logits"]).max() < 0.2
    assert np.array_equal(llm.logits(prompt), logits)
    assert session.feed(prompt + greedy[:1]).argmax() == greedy[1] and session.n_reused == len(prompt)
    rows = session.append(greedy[1:4], rows=2)
    assert rows.argmax(1).tolist() == greedy[3:5] and len(session) == len(prompt) + 4
    session.rewind(len(prompt))
    assert np.abs(session.append(greedy[:1]) - expected["step_logits"][0]).max() < 0.2
    session.clear()
    assert session.n_tokens == 0
    session.cancel()
    with pytest.raises(package.CancelledError):
        session.feed(prompt)


def test_generation(llm, llm_path):
    expected = np.load(llm_path.parent / "int4-block32.expected.npz")
    prompt, greedy = expected["prompt"].tolist(), expected["greedy"].tolist()
    options = dict(temperature=0, max_new_tokens=len(greedy), ignore_eos=True)
    generation = llm.generate(prompt, **options)
    assert [token.id for token in generation if token.id is not None] == greedy == generation.ids
    assert generation.finish == "length" and generation.stats["n_new"] == len(greedy)
    assert generation.text == llm.tokenizer.decode(greedy)
    assert list(generation) == []
    assert llm.generate(np.array(prompt), **options, speculate=4).read() == generation.text
    one, two = (llm.generate(prompt, seed=7, max_new_tokens=10).read() for _ in range(2))
    assert one == two != llm.generate(prompt, seed=8, max_new_tokens=10).read()
    part = generation.text[3:6]
    stopped = llm.generate(prompt, **options, stop=part)
    assert stopped.read() == generation.text[: generation.text.index(part)] and stopped.finish == "stop"
    ended = llm.generate(prompt, temperature=0, eos=[greedy[3]], max_new_tokens=20)
    ended.read()
    assert ended.ids == greedy[:4] and ended.finish == "eos"


def test_options_of_generating():
    """One list for those who pass them on, one in the signature."""
    signature = inspect.signature(package.Session.generate).parameters
    assert list(package.GenerateOptions.__annotations__) == [name for name in signature if name not in ("self", "prompt")]


def test_generation_left_early(llm):
    session = llm.session()
    generation = session.generate([1, 2, 3], max_new_tokens=-1, ignore_eos=True)
    first = next(generation)
    with pytest.raises(package.StateError, match="in use"):
        session.feed([1])
    generation.close()
    assert generation.finish == "cancelled" and list(generation) == [] and generation.ids == [first.id]
    assert session.feed([1, 2]).shape == (llm.n_vocab,)  # usable again
    next(session.generate([1, 2, 3], max_new_tokens=-1, ignore_eos=True))  # dropped: its thread ends by itself
    for _ in range(500):
        if not any(thread.name == "pome-generate" for thread in threading.enumerate()):
            break
        threading.Event().wait(0.01)
    else:
        pytest.fail("the thread goes on")
    with pytest.raises(package.LimitError):
        session.generate([1] * 500).read()


def test_text_needs_a_tokenizer(model, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    bare = package.LLM(model)
    with pytest.raises(package.FileError):
        bare.generate("hello")
    assert len(bare.generate([1, 2], max_new_tokens=3, ignore_eos=True).read()) == 0
    with pytest.raises(package.ArgumentError):
        bare.generate([1, 2], stop="x").read()


def test_chat(llm):
    chat = llm.chat("Be brief.", temperature=0, max_new_tokens=6)
    first = chat.send("hello")
    pieces = [token.text for token in first]
    assert "".join(pieces) == first.text == chat.messages[2]["content"]
    assert first.stats["n_reused"] == 0
    second = chat.send("world")
    second.read()
    assert [m["role"] for m in chat.messages] == ["system", "user", "assistant", "user", "assistant"]
    assert second.stats["n_reused"] > 0
    alone = llm.session().generate(chat.messages[:4], temperature=0, max_new_tokens=6)
    assert alone.read() == chat.messages[4]["content"]

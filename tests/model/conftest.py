"""Small models of both ends of the family, and the same models in ``transformers``."""

from __future__ import annotations

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from model.config import ModelConfig
from model.transformer import Transformer

LLAMA_LIKE = ModelConfig(
    vocab_size=97, n_layer=3, n_embd=32, n_head=4, n_kv_head=2, ffn_hidden=48, context_length=40
)
GPT2_LIKE = ModelConfig(
    vocab_size=97,
    n_layer=3,
    n_embd=32,
    n_head=4,
    n_kv_head=4,
    ffn_hidden=128,
    context_length=40,
    positions="learned",
    norm="layernorm",
    mlp="gelu",
    bias=True,
)
CONFIGS = {"llama-like": LLAMA_LIKE, "gpt2-like": GPT2_LIKE}


@pytest.fixture(autouse=True)
def _tiny_matrices(one_thread: None) -> None:
    """One thread for all tests here."""


@pytest.fixture
def llama_config() -> ModelConfig:
    return LLAMA_LIKE


@pytest.fixture
def gpt2_config() -> ModelConfig:
    return GPT2_LIKE


@pytest.fixture(params=CONFIGS)
def config(request: pytest.FixtureRequest) -> ModelConfig:
    """Each end of the family in turn."""
    return CONFIGS[request.param]


@pytest.fixture
def model(config: ModelConfig) -> Transformer:
    return perturbed(Transformer(config, seed=1))


@pytest.fixture
def llama(llama_config: ModelConfig) -> Transformer:
    return perturbed(Transformer(llama_config, seed=2))


@pytest.fixture
def reference_llama(llama: Transformer) -> LlamaForCausalLM:
    """``LlamaForCausalLM`` with the weights of ``llama``."""
    c = llama.config
    reference = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=c.vocab_size,
            hidden_size=c.n_embd,
            intermediate_size=c.ffn_hidden,
            num_hidden_layers=c.n_layer,
            num_attention_heads=c.n_head,
            num_key_value_heads=c.n_kv_head,
            max_position_embeddings=c.context_length,
            rms_norm_eps=c.norm_eps,
            rope_parameters={"rope_type": "default", "rope_theta": c.rope_theta},
            tie_word_embeddings=c.tied_embeddings,
        )
    ).eval()
    names = {"model.embed_tokens.weight": "token_embedding.weight"}
    names["model.norm.weight"] = "final_norm.weight"
    for i in range(c.n_layer):
        ours, theirs = f"blocks.{i}", f"model.layers.{i}"
        names[f"{theirs}.input_layernorm.weight"] = f"{ours}.attention_norm.weight"
        names[f"{theirs}.post_attention_layernorm.weight"] = f"{ours}.feed_forward_norm.weight"
        for a, b in (("q", "query"), ("k", "key"), ("v", "value"), ("o", "output")):
            names[f"{theirs}.self_attn.{a}_proj.weight"] = f"{ours}.attention.{b}.weight"
        for part in ("gate", "up", "down"):
            names[f"{theirs}.mlp.{part}_proj.weight"] = f"{ours}.feed_forward.{part}.weight"
    state = llama.state_dict()
    copied = {theirs: state.pop(ours) for theirs, ours in names.items()}
    assert not state, f"not copied: {sorted(state)}"
    missing, unexpected = reference.load_state_dict(copied, strict=False)
    assert set(missing) <= {"lm_head.weight"} and not unexpected
    return reference


@pytest.fixture
def gpt2(gpt2_config: ModelConfig) -> Transformer:
    return perturbed(Transformer(gpt2_config, seed=3))


@pytest.fixture
def reference_gpt2(gpt2: Transformer) -> GPT2LMHeadModel:
    """``GPT2LMHeadModel`` with the weights of ``gpt2``; its Conv1D keeps matrices transposed."""
    c = gpt2.config
    reference = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=c.vocab_size,
            n_positions=c.context_length,
            n_embd=c.n_embd,
            n_layer=c.n_layer,
            n_head=c.n_head,
            n_inner=c.ffn_hidden,
            activation_function="gelu_new",
            layer_norm_epsilon=c.norm_eps,
        )
    ).eval()
    state = gpt2.state_dict()
    copied = {
        "transformer.wte.weight": state.pop("token_embedding.weight"),
        "transformer.wpe.weight": state.pop("position_embedding.weight"),
    }
    for kind in ("weight", "bias"):
        copied[f"transformer.ln_f.{kind}"] = state.pop(f"final_norm.{kind}")
        for i in range(c.n_layer):
            ours, theirs = f"blocks.{i}", f"transformer.h.{i}"
            copied[f"{theirs}.ln_1.{kind}"] = state.pop(f"{ours}.attention_norm.{kind}")
            copied[f"{theirs}.ln_2.{kind}"] = state.pop(f"{ours}.feed_forward_norm.{kind}")
            fused = [state.pop(f"{ours}.attention.{n}.{kind}") for n in ("query", "key", "value")]
            linear = {
                "attn.c_attn": torch.cat(fused),
                "attn.c_proj": state.pop(f"{ours}.attention.output.{kind}"),
                "mlp.c_fc": state.pop(f"{ours}.feed_forward.up.{kind}"),
                "mlp.c_proj": state.pop(f"{ours}.feed_forward.down.{kind}"),
            }
            for name, tensor in linear.items():
                copied[f"{theirs}.{name}.{kind}"] = tensor.T if kind == "weight" else tensor
    assert not state, f"not copied: {sorted(state)}"
    missing, unexpected = reference.load_state_dict(copied, strict=False)
    assert set(missing) <= {"lm_head.weight"} and not unexpected
    return reference


def perturbed(model: Transformer) -> Transformer:
    """The model in evaluation mode with larger weights, norms off 1 and biases off 0.

    At initialisation logits are close to the embeddings' products and biases have no effect; a
    wrong part of the network would hardly show.
    """
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for parameter in model.parameters():
            scale = 0.15 if parameter.ndim == 2 else 0.3
            parameter.add_(scale * torch.randn(parameter.shape, generator=generator))
    return model.eval()


@pytest.fixture
def tokens() -> torch.Tensor:
    """Ids (2, 40) for the small vocabularies."""
    return torch.randint(0, 97, (2, 40), generator=torch.Generator().manual_seed(5))

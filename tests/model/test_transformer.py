from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import GPT2LMHeadModel, LlamaForCausalLM

from model.attention import Attention
from model.config import ModelConfig
from model.transformer import Transformer, init_weights


@torch.no_grad()
def test_logits_equal_llama(
    llama: Transformer, reference_llama: LlamaForCausalLM, tokens: Tensor
) -> None:
    expected = reference_llama(tokens).logits
    assert expected.std() > 0.5
    torch.testing.assert_close(llama(tokens), expected, atol=1e-5, rtol=0)


@torch.no_grad()
def test_logits_equal_gpt2(
    gpt2: Transformer, reference_gpt2: GPT2LMHeadModel, tokens: Tensor
) -> None:
    expected = reference_gpt2(tokens).logits
    assert expected.std() > 0.5
    torch.testing.assert_close(gpt2(tokens), expected, atol=1e-5, rtol=0)


def test_gradients_equal_llama(
    llama: Transformer, reference_llama: LlamaForCausalLM, tokens: Tensor
) -> None:
    for logits in (llama(tokens), reference_llama(tokens).logits):
        F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
    pairs = [
        (llama.token_embedding, reference_llama.model.embed_tokens),
        (llama.blocks[0].attention.key, reference_llama.model.layers[0].self_attn.k_proj),
        (llama.blocks[2].feed_forward.down, reference_llama.model.layers[2].mlp.down_proj),
    ]
    for ours, theirs in pairs:
        torch.testing.assert_close(ours.weight.grad, theirs.weight.grad, atol=1e-6, rtol=1e-4)


def test_grouped_attention_by_brute_force(llama_config: ModelConfig) -> None:
    """Loops over heads, queries and keys; no RoPE, no fused kernel."""
    attention = Attention(llama_config, layer=0)
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.normal_(0, 0.3, generator=generator)
        x = torch.randn(1, 6, 32, generator=generator)
        q = (x[0] @ attention.query.weight.T).view(6, 4, 8)
        k = (x[0] @ attention.key.weight.T).view(6, 2, 8)
        v = (x[0] @ attention.value.weight.T).view(6, 2, 8)
        mixed = torch.zeros(6, 4, 8)
        for head in range(4):
            for t in range(6):
                scores = [float(q[t, head] @ k[s, head // 2]) / math.sqrt(8) for s in range(t + 1)]
                total = sum(math.exp(score) for score in scores)
                for s, score in enumerate(scores):
                    mixed[t, head] += math.exp(score) / total * v[s, head // 2]
        expected = mixed.view(6, 32) @ attention.output.weight.T
        torch.testing.assert_close(attention(x)[0], expected, atol=1e-5, rtol=0)


@torch.no_grad()
def test_a_token_changes_nothing_before_it(model: Transformer, tokens: Tensor) -> None:
    before = model(tokens)
    changed = tokens.clone()
    changed[:, 17] = (changed[:, 17] + 1) % 97
    after = model(changed)
    assert torch.equal(before[:, :17], after[:, :17])
    assert (before[:, 17:] - after[:, 17:]).abs().amax(dim=2).min() > 1e-4


@torch.no_grad()
def test_rows_of_a_batch_do_not_mix(model: Transformer, tokens: Tensor) -> None:
    together = model(tokens)
    for row in range(2):
        alone = model(tokens[row : row + 1])[0]
        torch.testing.assert_close(together[row], alone, atol=1e-5, rtol=0)


@torch.no_grad()
def test_head_at_chosen_positions(model: Transformer, tokens: Tensor) -> None:
    last = model.head(model.forward_hidden(tokens)[:, -1])
    torch.testing.assert_close(last, model(tokens)[:, -1], atol=1e-6, rtol=0)


def test_untied_head_is_a_parameter_of_its_own(llama_config: ModelConfig, tokens: Tensor) -> None:
    model = Transformer(replace(llama_config, tied_embeddings=False), seed=1)
    assert model.output_head.weight.shape == (97, 32)
    with torch.no_grad():
        model.output_head.weight.zero_()
    assert model(tokens).abs().max() == 0
    assert model.token_embedding.weight.abs().max() > 0


def test_initial_weights(config: ModelConfig) -> None:
    wide = replace(config, n_embd=128, ffn_hidden=256)
    model = Transformer(wide)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            residual = name.endswith(("attention.output.weight", "feed_forward.down.weight"))
            std = 0.02 / math.sqrt(2 * 3) if residual else 0.02
            assert parameter.std().item() == pytest.approx(std, rel=0.05), name
            assert abs(parameter.mean().item()) < std / 10, name
        else:
            expected = 0.0 if name.endswith("bias") else 1.0
            assert torch.equal(parameter, torch.full_like(parameter, expected)), name


def test_initial_loss_is_that_of_the_uniform_model(config: ModelConfig, tokens: Tensor) -> None:
    logits = Transformer(config)(tokens)
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    assert loss.item() == pytest.approx(math.log(97), rel=0.02)


def test_initialisation_is_its_seed_s_alone(config: ModelConfig) -> None:
    torch.manual_seed(1)
    first = Transformer(config, seed=7).state_dict()
    torch.manual_seed(2)
    untouched = torch.get_rng_state()
    again = Transformer(config)
    init_weights(again, seed=7)
    assert torch.equal(torch.get_rng_state(), untouched)
    assert all(torch.equal(first[name], tensor) for name, tensor in again.state_dict().items())
    other = Transformer(config, seed=8).state_dict()
    assert not torch.equal(first["token_embedding.weight"], other["token_embedding.weight"])


def test_biases_only_where_wanted(config: ModelConfig) -> None:
    names = [n for n, _ in Transformer(config).named_parameters() if n.endswith("bias")]
    assert bool(names) == config.bias
    if config.bias:
        # two norms, four projections and two matrices a block; the final norm
        assert len(names) == 3 * 8 + 1


def test_every_parameter_gets_a_gradient(model: Transformer, tokens: Tensor) -> None:
    logits = model(tokens)
    F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
    for name, parameter in model.named_parameters():
        if name.endswith("attention.key.bias"):
            continue  # the same for all keys: softmax cancels it
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


def test_dropout_can_be_changed_and_acts_in_training_only(
    config: ModelConfig, tokens: Tensor
) -> None:
    model = Transformer(config)
    plain = model(tokens)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.5
    assert not torch.allclose(model(tokens), plain, atol=1e-3)
    torch.manual_seed(3)
    first = model(tokens)
    torch.manual_seed(3)
    assert torch.equal(model(tokens), first)
    assert torch.equal(model.eval()(tokens), plain)


def test_dropout_of_the_config_reaches_attention_and_residuals(llama_config: ModelConfig) -> None:
    model = Transformer(replace(llama_config, dropout=0.25))
    rates = [module.p for module in model.modules() if isinstance(module, nn.Dropout)]
    assert rates == [0.25] * (1 + 3 * 3)


@torch.no_grad()
def test_bf16_agrees_with_fp32_on_the_most_probable_token(
    model: Transformer, tokens: Tensor
) -> None:
    full = model(tokens)
    short = model.to(torch.bfloat16)(tokens)
    assert short.dtype == torch.bfloat16
    agree = (full.argmax(-1) == short.argmax(-1)).float().mean().item()
    assert agree >= 0.9


def test_too_long_and_wrongly_shaped_input_is_refused(model: Transformer) -> None:
    with pytest.raises(ValueError, match=r"41 new ones are more than context_length = 40"):
        model(torch.zeros(1, 41, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"shape \(3,\); \(B, T\)"):
        model(torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"shape \(1, 0\)"):
        model(torch.zeros(1, 0, dtype=torch.int64))

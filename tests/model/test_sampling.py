from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from transformers import (
    LlamaForCausalLM,
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
    SuppressTokensLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from model.config import ModelConfig
from model.sampling import (
    SamplingOptions,
    apply_repetition_penalty,
    draw,
    generate,
    keep_top_k,
    keep_top_p,
    next_token_logits,
    refill_length,
)
from model.transformer import Transformer

INF = float("inf")
GREEDY = SamplingOptions(temperature=0.0, repetition_penalty=1.0, max_new_tokens=20)
RANDOM = SamplingOptions(
    temperature=1.5, top_k=0, top_p=1.0, repetition_penalty=1.0, max_new_tokens=50, seed=4
)


def random_logits(seed: int, size: int = 300) -> Tensor:
    return 4 * torch.randn(size, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("penalty", [0.7, 1.1, 1.8])
def test_repetition_penalty_equals_transformers(penalty: float) -> None:
    logits, seen = random_logits(0), torch.tensor([3, 7, 7, 299, 3, 0])
    expected = RepetitionPenaltyLogitsProcessor(penalty)(seen[None], logits[None].clone())[0]
    assert torch.equal(apply_repetition_penalty(logits, seen, penalty), expected)


def test_repetition_penalty_by_hand() -> None:
    logits = torch.tensor([2.0, -2.0, 1.0, 0.0])
    penalised = apply_repetition_penalty(logits, torch.tensor([0, 1, 1, 3]), 2.0)
    assert penalised.tolist() == [1.0, -4.0, 1.0, 0.0]
    assert logits.tolist() == [2.0, -2.0, 1.0, 0.0]


@pytest.mark.parametrize("k", [1, 5, 299, 300, 1000])
def test_top_k_equals_transformers(k: int) -> None:
    logits = random_logits(1)
    expected = TopKLogitsWarper(k)(None, logits[None].clone())[0]
    assert torch.equal(keep_top_k(logits, k), expected)


def test_top_k_keeps_ties_and_0_is_off() -> None:
    logits = torch.tensor([1.0, 3.0, 2.0, 2.0])
    assert keep_top_k(logits, 2).tolist() == [-INF, 3.0, 2.0, 2.0]
    assert keep_top_k(logits, 0).tolist() == logits.tolist()


@pytest.mark.parametrize("p", [1e-6, 0.1, 0.5, 0.9, 0.999, 1.0])
@pytest.mark.parametrize("k", [0, 20])
def test_top_p_equals_transformers(p: float, k: int) -> None:
    for seed in range(20):
        logits = keep_top_k(random_logits(seed), k)
        expected = TopPLogitsWarper(p)(None, logits[None].clone())[0] if p < 1 else logits
        assert torch.equal(keep_top_p(logits, p), expected)


def test_top_p_by_hand() -> None:
    logits = torch.tensor([0.1, 0.5, 0.15, 0.25]).log()
    kept = {p: (keep_top_p(logits, p) > -INF).nonzero().flatten().tolist() for p in (0.4, 0.6, 0.8)}
    assert kept == {0.4: [1], 0.6: [1, 3], 0.8: [1, 2, 3]}


def test_top_p_that_is_met_exactly_takes_no_further_token() -> None:
    equal = torch.zeros(4)  # a quarter each, exactly
    assert (keep_top_p(equal, 0.5) == 0).sum() == 2
    assert torch.equal(keep_top_p(equal, 0.5), TopPLogitsWarper(0.5)(None, equal[None])[0])


def test_whole_chain_equals_transformers() -> None:
    options = SamplingOptions(temperature=0.7, top_k=30, top_p=0.8, repetition_penalty=1.3)
    forbidden = [5, 6]
    chain = LogitsProcessorList(
        [
            SuppressTokensLogitsProcessor(forbidden),
            RepetitionPenaltyLogitsProcessor(1.3),
            TemperatureLogitsWarper(0.7),
            TopKLogitsWarper(30),
            TopPLogitsWarper(0.8),
        ]
    )
    for seed in range(50):
        logits = random_logits(seed)
        seen = torch.randint(0, 300, (40,), generator=torch.Generator().manual_seed(seed))
        expected = chain(seen[None], logits[None].clone())[0]
        ours = next_token_logits(logits, seen, options, torch.tensor(forbidden))
        assert torch.equal(ours, expected)


def test_draws_follow_the_probabilities() -> None:
    probabilities = torch.tensor([0.5, 0.0, 0.3, 0.2])
    generator = torch.Generator().manual_seed(0)
    counts = Counter(draw(probabilities.log(), 1.0, generator) for _ in range(5000))
    assert counts[1] == 0
    for token, p in enumerate(probabilities.tolist()):
        # four standard deviations of a binomial count
        assert abs(counts[token] - 5000 * p) <= 4 * (5000 * p * (1 - p)) ** 0.5


@pytest.mark.parametrize("penalty", [1.0, 1.3])
def test_greedy_text_equals_transformers(
    llama: Transformer, reference_llama: LlamaForCausalLM, penalty: float
) -> None:
    prompt = [5, 17, 60, 2]
    expected = reference_llama.generate(
        torch.tensor([prompt]),
        max_new_tokens=30,
        do_sample=False,
        repetition_penalty=penalty,
        eos_token_id=None,
        pad_token_id=0,
    )[0, 4:].tolist()
    options = replace(GREEDY, repetition_penalty=penalty, max_new_tokens=30)
    assert list(generate(llama, prompt, options, stop_ids=[])) == expected
    assert len(set(expected)) > 3


@pytest.mark.parametrize("prompt_length", [1, 33, 39, 40, 41, 90])
@torch.no_grad()
def test_beyond_the_context_equals_the_same_window_without_a_cache(
    model: Transformer, prompt_length: int
) -> None:
    context = model.config.context_length
    generator = torch.Generator().manual_seed(prompt_length)
    prompt = torch.randint(0, 97, (prompt_length,), generator=generator).tolist()
    ids, seen_from = list(prompt), 0
    for _ in range(60):
        if len(ids) - seen_from > context:
            seen_from = len(ids) - refill_length(context)
        ids.append(int(model(torch.tensor([ids[seen_from:]]))[0, -1].argmax()))
    options = replace(GREEDY, max_new_tokens=60)
    assert list(generate(model, prompt, options, stop_ids=[])) == ids[prompt_length:]


def test_refill_keeps_three_quarters_and_at_least_one() -> None:
    assert [refill_length(n) for n in (1, 2, 8, 40, 768)] == [1, 2, 6, 30, 576]


@pytest.mark.parametrize("context_length", [1, 2, 3, 5])
def test_tiny_contexts_work(llama_config: ModelConfig, context_length: int) -> None:
    model = Transformer(replace(llama_config, context_length=context_length))
    assert len(list(generate(model, [1, 2, 3, 4], RANDOM, []))) == RANDOM.max_new_tokens


def test_the_seed_decides(model: Transformer) -> None:
    first = list(generate(model, [1, 2], RANDOM, stop_ids=[]))
    torch.manual_seed(99)
    assert list(generate(model, [1, 2], RANDOM, stop_ids=[])) == first
    assert list(generate(model, [1, 2], replace(RANDOM, seed=5), stop_ids=[])) != first


def test_stops_before_the_stop_token(model: Transformer) -> None:
    free = list(generate(model, [1, 2], RANDOM, stop_ids=[]))
    stop = free[10]
    assert list(generate(model, [1, 2], RANDOM, stop_ids={stop})) == free[: free.index(stop)]


def test_forbidden_tokens_are_never_drawn(model: Transformer) -> None:
    options = replace(RANDOM, max_new_tokens=200)
    allowed = {3, 50, 51}
    forbidden = [token for token in range(97) if token not in allowed]
    assert set(generate(model, [1], options, [], forbidden)) == allowed
    assert set(generate(model, [1], GREEDY, [], forbidden)) <= allowed


def test_penalty_spares_the_stop_token(model: Transformer) -> None:
    """Two tokens may be drawn: one of the prompt, and a slightly less probable new one."""
    prompt = [8, 9, 30]
    with torch.no_grad():
        logits = model(torch.tensor([prompt]))[0, -1]
    ranking = logits.argsort(descending=True).tolist()
    old = next(token for token in ranking if token in prompt)
    new = next(token for token in ranking[ranking.index(old) :] if token not in prompt)
    forbidden = set(range(97)) - {old, new}
    heavy = replace(GREEDY, repetition_penalty=50.0, max_new_tokens=1)
    assert list(generate(model, prompt, heavy, [], forbidden)) == [new]
    assert list(generate(model, prompt, heavy, [old], forbidden)) == []


def test_no_tokens_wanted(model: Transformer) -> None:
    assert list(generate(model, [1], replace(GREEDY, max_new_tokens=0), [])) == []


def test_leaves_the_caller_s_modes_alone(model: Transformer) -> None:
    model.train()
    stream = generate(model, [1, 2], GREEDY, stop_ids=[])
    next(stream)
    assert model.training and all(block.training for block in model.blocks)
    assert not torch.is_inference_mode_enabled() and torch.is_grad_enabled()
    stream.close()
    assert not torch.is_inference_mode_enabled()
    assert model(torch.tensor([[1, 2]])).requires_grad


def test_dropout_does_not_reach_generation(llama_config: ModelConfig) -> None:
    model = Transformer(replace(llama_config, dropout=0.5)).train()
    drawn = list(generate(model, [1, 2, 3], GREEDY, []))
    assert drawn == list(generate(model.eval(), [1, 2, 3], GREEDY, []))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], GREEDY, []), "the prompt is empty"),
        (([97], GREEDY, []), r"prompt: ids \[97\] are outside 0 to 96"),
        (([1], GREEDY, [-1]), r"stop_ids: ids \[-1\]"),
        (([1], GREEDY, [], [200]), r"forbidden_ids: ids \[200\]"),
        (([1], GREEDY, [], range(97)), "nothing is left to draw"),
    ],
)
def test_arguments_are_checked_at_the_call(
    llama: Transformer, arguments: tuple, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        generate(llama, *arguments)


def test_diverged_weights_are_named(llama: Transformer) -> None:
    with torch.no_grad():
        llama.final_norm.weight.fill_(float("nan"))
    with pytest.raises(ValueError, match="logits are not finite"):
        next(generate(llama, [1], RANDOM, []))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"temperature": -0.1}, r"temperature = -0.1 must be 0 \(greedy\) or above"),
        ({"temperature": float("nan")}, "temperature = nan"),
        ({"top_k": -1}, "top_k = -1 must be an integer, 0"),
        ({"top_p": 0.0}, "top_p = 0.0 must be above 0 and at most 1"),
        ({"repetition_penalty": 0.0}, "repetition_penalty = 0.0 must be above 0"),
        ({"max_new_tokens": 1.5}, "max_new_tokens = 1.5 must be an integer"),
        ({"seed": -1}, "seed = -1"),
    ],
)
def test_options_are_checked(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SamplingOptions(**change)

"""From logits to tokens: the logits' processing as pure functions, and generation with a KV cache.

Order, as in ``transformers``: forbidden tokens, repetition penalty, temperature, top-k, top-p; each
function takes and gives logits (vocab_size,) fp32 on the CPU, with −inf for what may not be drawn.
The last step is on the CPU so that one seed gives one text wherever the model runs.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from model.kv_cache import KVCache
from model.transformer import Transformer

FORBIDDEN = -math.inf


@dataclass(frozen=True)
class SamplingOptions:
    """How tokens are drawn.

    ``temperature`` 0 takes the most probable token (greedy); ``top_k`` 0, ``top_p`` 1 and
    ``repetition_penalty`` 1 switch the step off. ``max_new_tokens`` counts generated tokens.
    """

    temperature: float = 0.8
    top_k: int = 50
    top_p: float = 0.95
    repetition_penalty: float = 1.1
    max_new_tokens: int = 256
    seed: int = 0

    def __post_init__(self) -> None:
        problems = []

        def require(holds: bool, name: str, allowed: str) -> None:
            if not holds:
                problems.append(f"{name} = {getattr(self, name)!r} must be {allowed}")

        require(0 <= self.temperature < math.inf, "temperature", "0 (greedy) or above, and finite")
        require(_is_count(self.top_k), "top_k", "an integer, 0 (off) or above")
        require(0 < self.top_p <= 1, "top_p", "above 0 and at most 1 (off)")
        require(0 < self.repetition_penalty < math.inf, "repetition_penalty", "above 0; 1 is off")
        require(_is_count(self.max_new_tokens), "max_new_tokens", "an integer, 0 or above")
        require(_is_count(self.seed), "seed", "an integer, 0 or above")
        if problems:
            raise ValueError("sampling options: " + "; ".join(problems))


def forbid(logits: Tensor, forbidden_ids: Tensor) -> Tensor:
    """Logits (V,) with −inf at ``forbidden_ids`` (N,) int64."""
    return logits.index_fill(0, forbidden_ids, FORBIDDEN)


def apply_repetition_penalty(logits: Tensor, seen_ids: Tensor, penalty: float) -> Tensor:
    """Makes the tokens ``seen_ids`` (N,) less probable, once each however often they occur.

    A positive logit is divided by the penalty and a negative one multiplied (CTRL; Keskar et al.
    2019): dividing a negative one would make the token *more* probable.
    """
    seen = logits[seen_ids]
    # Every value is taken from the untouched logits, so a repeated id writes the same value again.
    return logits.index_copy(0, seen_ids, torch.where(seen < 0, seen * penalty, seen / penalty))


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """Only the ``k`` largest logits (V,), and those equal to the smallest of them."""
    if not 0 < k < logits.shape[0]:
        return logits
    smallest = logits.topk(k).values[-1]
    return logits.masked_fill(logits < smallest, FORBIDDEN)


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """The smallest set of most probable tokens whose probabilities sum to at least ``p``.

    Nucleus sampling (Holtzman et al. 2020). At least one token stays.
    """
    if p >= 1:
        return logits
    possible = (logits > FORBIDDEN).nonzero().squeeze(1)  # after top-k few: sorting gets cheap
    ascending, order = logits[possible].sort()
    below = ascending.softmax(dim=0).cumsum(dim=0) <= 1 - p
    below[-1] = False
    return logits.index_fill(0, possible[order[below]], FORBIDDEN)


def next_token_logits(
    logits: Tensor, seen_ids: Tensor, options: SamplingOptions, forbidden_ids: Tensor | None = None
) -> Tensor:
    """Raw logits (V,) to processed ones, in fp32: see the module's docstring.

    With temperature 0 only forbidden tokens and the penalty apply: the rest keeps the largest.
    """
    logits = logits.float()
    if forbidden_ids is not None and forbidden_ids.numel():
        logits = forbid(logits, forbidden_ids)
    if options.repetition_penalty != 1 and seen_ids.numel():
        logits = apply_repetition_penalty(logits, seen_ids, options.repetition_penalty)
    if options.temperature == 0:
        return logits
    logits = keep_top_k(logits / options.temperature, options.top_k)
    return keep_top_p(logits, options.top_p)


def draw(logits: Tensor, temperature: float, generator: torch.Generator) -> int:
    """One token id from processed logits (V,): the largest at temperature 0, else at random."""
    if temperature == 0:
        return int(logits.argmax())
    return int(torch.multinomial(logits.softmax(dim=0), 1, generator=generator))


def refill_length(context_length: int) -> int:
    """Tokens that stay in sight when the text outgrows the context: its last three quarters.

    Sliding by one token would cost a whole prefill for every new token, because all positions
    change. So a quarter is given up at once, and the next refill is a quarter of the context away.
    """
    return max(1, context_length - context_length // 4)


def generate(
    model: Transformer,
    prompt_ids: Sequence[int],
    options: SamplingOptions,
    stop_ids: Collection[int],
    forbidden_ids: Collection[int] = (),
) -> Iterator[int]:
    """New token ids, one by one as they are drawn; equal inputs and seed give equal ids.

    Ends after ``options.max_new_tokens`` or when one of ``stop_ids`` is drawn, which isn't given
    out. ``forbidden_ids`` are never drawn (padding, ids beyond the tokenizer's vocabulary). The
    repetition penalty counts prompt and new tokens, and spares ``stop_ids``: in a long chat the end
    of an answer would otherwise get less probable with the second answer. When prompt and new
    tokens outgrow the context, the model sees the last :func:`refill_length` of them from then on.

    Arguments are checked at the call. The model's training mode is as before between two tokens.
    """
    vocab_size = model.config.vocab_size
    prompt, stop, forbidden = list(prompt_ids), set(stop_ids), sorted(set(forbidden_ids))
    if not prompt:
        raise ValueError("the prompt is empty; start it with at least one token, as <|endoftext|>")
    for name, ids in (("prompt", prompt), ("stop_ids", stop), ("forbidden_ids", forbidden)):
        outside = [token for token in ids if not 0 <= token < vocab_size]
        if outside:
            raise ValueError(f"{name}: ids {outside[:5]} are outside 0 to {vocab_size - 1}")
    if len(forbidden) == vocab_size:
        raise ValueError("forbidden_ids name the whole vocabulary; nothing is left to draw")
    return _generate(model, prompt, options, stop, torch.tensor(forbidden, dtype=torch.int64))


def _generate(
    model: Transformer,
    ids: list[int],
    options: SamplingOptions,
    stop_ids: set[int],
    forbidden_ids: Tensor,
) -> Iterator[int]:
    generator = torch.Generator(device="cpu").manual_seed(options.seed)
    wanted = len(ids) + options.max_new_tokens
    cache = model.new_cache(capacity=min(model.config.context_length, wanted))
    seen = dict.fromkeys(token for token in ids if token not in stop_ids)
    unread = len(ids)  # tokens at the end of ids that are not in the cache yet
    for _ in range(options.max_new_tokens):
        if cache.length + unread > model.config.context_length:
            cache.truncate(0)
            unread = refill_length(model.config.context_length)
        raw = _last_logits(model, ids[-unread:], cache)
        seen_ids = torch.tensor(list(seen), dtype=torch.int64)
        logits = next_token_logits(raw, seen_ids, options, forbidden_ids)
        token = draw(logits, options.temperature, generator)
        if token in stop_ids:
            return
        yield token
        ids.append(token)
        seen[token] = None
        unread = 1


# Inference mode is entered for each step and not around the loop: a generator that is suspended
# inside a `with` would leave its caller in that mode.
@torch.inference_mode()
def _last_logits(model: Transformer, tokens: list[int], cache: KVCache) -> Tensor:
    """Logits (V,) fp32 on the CPU after ``tokens``, which are added to the cache."""
    was_training = model.training
    if was_training:
        model.eval()
    try:
        batch = torch.tensor([tokens], dtype=torch.int64, device=cache.keys.device)
        logits = model.head(model.forward_hidden(batch, cache)[0, -1]).float().cpu()
    finally:
        if was_training:
            model.train()
    if not torch.isfinite(logits).all():
        raise ValueError("the model's logits are not finite; its weights have diverged")
    return logits


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0

"""The tokenizer: its training corpus, its training, and the encoder that everything else uses."""

from pipelines.tokenizer.encoder import SPECIAL_TOKENS, TextTokenizer

__all__ = ["SPECIAL_TOKENS", "TextTokenizer"]

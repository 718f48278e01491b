"""Language identification: label and *normalised* probability of the ``langid`` package.

The package's plain ``classify`` returns a log-probability, which can't be compared with a
threshold between 0 and 1; only an identifier built with ``norm_probs=True`` can.
"""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=1)
def _identifier():
    from langid.langid import LanguageIdentifier, model

    return LanguageIdentifier.from_modelstring(model, norm_probs=True)


def identify(text: str) -> tuple[str, float]:
    """``(label, probability)`` over langid's 97 languages, probability in 0 … 1."""
    label, probability = _identifier().classify(text)
    return label, float(probability)

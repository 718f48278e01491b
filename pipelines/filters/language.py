"""Language identification: label and *normalised* probability of the ``langid`` package.

The package's plain ``classify`` returns a log-probability, which can't be compared with a
threshold between 0 and 1; only an identifier built with ``norm_probs=True`` can.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np


@lru_cache(maxsize=1)
def _identifier():
    from langid.langid import LanguageIdentifier, model

    return LanguageIdentifier.from_modelstring(model, norm_probs=True)


def identify(text: str) -> tuple[str, float]:
    """``(label, probability)`` over langid's 97 languages, probability in 0 … 1."""
    label, probability = _identifier().classify(text)
    return label, float(probability)


@dataclass(frozen=True)
class ModelTables:
    """langid's model for compiled code: an automaton over bytes and naive Bayes over its output.

    ``next_state`` (states · 256,) uint16; the features that a state emits are
    ``outputs[output_starts[s]:output_starts[s + 1]]``, rows of ``weights`` (features, labels)
    float64; ``priors`` (labels,) float64.
    """

    next_state: np.ndarray
    output_starts: np.ndarray
    outputs: np.ndarray
    weights: np.ndarray
    priors: np.ndarray
    labels: tuple[str, ...]


@lru_cache(maxsize=1)
def model_tables() -> ModelTables:
    """The model that the installed package brings."""
    identifier = _identifier()
    next_state = np.array(identifier.tk_nextmove, np.uint16)
    states = len(next_state) // 256
    emitted = [identifier.tk_output.get(state, ()) for state in range(states)]
    return ModelTables(
        next_state,
        np.cumsum([0, *map(len, emitted)]).astype(np.int32),
        np.array([feature for features in emitted for feature in features], np.int32),
        identifier.nb_ptc.astype(np.float64),
        identifier.nb_pc.astype(np.float64),
        tuple(map(str, identifier.nb_classes)),
    )

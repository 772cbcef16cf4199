"""The models that are compared, and their activations: each model is loaded once and reads each text once."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from residuum.activations.store import ActivationStore
from residuum.errors import SettingError, StoreError
from residuum.maths.profiles import relative_depths
from residuum.probing.diff_texts import Text

if TYPE_CHECKING:
    from residuum.models.loading import Model

Sources = Sequence[Any] | Mapping[str, Any]
"""Models, their folders or names, or stores; the base comes first."""


@dataclass(frozen=True, eq=False)
class NamedSource:
    """A model (or its folder or name) or the store of what it read, under the name that the tables use."""

    name: str
    thing: Model | ActivationStore | str

    @property
    def gives_attention(self) -> bool:
        """Whether attention can be read; a model that is loaded here can be asked for it."""
        if isinstance(self.thing, ActivationStore):
            return self.thing.n_heads > 0
        return isinstance(self.thing, str) or self.thing.gives_attention


@dataclass(frozen=True, eq=False)
class ReadModel:
    """What a model made of each text."""

    name: str
    stores: tuple[ActivationStore, ...]

    @property
    def n_layers(self) -> int:
        """The blocks of the model, whether or not all were read."""
        store = self.stores[0]
        return int(store.manifest.model.get("n_layers") or max(store.layers))

    @property
    def depths(self) -> Float[np.ndarray, " layer"]:
        """The relative depth of each layer that was read."""
        return relative_depths(self.stores[0].layers, self.n_layers)


def named_sources(sources: Sources) -> list[NamedSource]:
    """The base and the others under their names: given ones (a mapping, or `NAME=MODEL`), else the models' own."""
    pairs = sources.items() if isinstance(sources, Mapping) else [_name_and_source(source) for source in sources]
    named = [NamedSource(name or _own_name(thing), thing) for name, thing in ((n, _opened(t)) for n, t in pairs)]
    if len(named) < 2:
        raise SettingError(f"Found {len(named)} model to compare; give the base and at least one other.")
    names = [source.name for source in named]
    if twice := [name for name in names if names.count(name) > 1]:
        raise SettingError(f"Two models are called {twice[0]}; name them, such as base=FOLDER and tuned=FOLDER.")
    return named


def read_models(
    sources: Sequence[NamedSource],
    texts: Sequence[Text],
    folder: Path,
    *,
    attention: bool,
    device: str = "auto",
    say: Callable[[str], object] = lambda line: None,
    **extraction: Any,
) -> list[ReadModel]:
    """Let every model read every text into a store in `folder`; the first text with its attention, if wanted.

    One model is held at a time. What was read before, in this run or in another with that folder, is not read again.
    """
    from residuum.models.loading import check_configs

    check_configs(source.thing for source in sources)
    read = []
    for source in sources:
        say(f"{source.name} reads {sum(text.corpus.n_words for text in texts):,} words.")
        stores = _stores(source, texts, folder, attention, device, extraction)
        read.append(ReadModel(source.name, tuple(_renamed(store, source.name) for store in stores)))
    return read


def _stores(
    source: NamedSource, texts: Sequence[Text], folder: Path, attention: bool, device: str, extraction: dict[str, Any]
) -> list[ActivationStore]:
    if isinstance(source.thing, ActivationStore):
        return [_fitting(source.thing, texts)]
    from residuum.activations.extraction import extract
    from residuum.models.loading import as_model

    model = as_model(source.thing, device=device, attention=attention, max_memory=extraction.get("max_memory"))
    plain_name = re.sub(r"[^\w.-]+", "-", source.name)
    own = folder / f"{plain_name}-{model.fingerprint[:8]}"
    return [
        extract(
            model,
            text.corpus,
            own / f"{text.unit}s-{text.corpus.text_fingerprint[:8]}",
            unit=text.unit,
            attention=attention and number == 0,
            **extraction,
        )
        for number, text in enumerate(texts)
    ]


def _fitting(store: ActivationStore, texts: Sequence[Text]) -> ActivationStore:
    """The store itself, if it is over the words of the only text."""
    if len(texts) > 1:
        raise SettingError(
            f"{store.path} holds what a model made of one text, but the tasks need {len(texts)}; give the model itself."
        )
    text = texts[0]
    if store.unit != text.unit:
        raise StoreError(f"{store.path} has a row for each {store.unit}, but {text.tasks[0].name} is of {text.unit}s.")
    pairs = zip(store.sentences, text.corpus.sentences, strict=False)
    differing = next((number for number, (a, b) in enumerate(pairs, 1) if a != b), None)
    if differing is not None or len(store.sentences) != len(text.corpus):
        where = (
            f"sentence {differing} differs" if differing else f"{len(store.sentences)} and {len(text.corpus)} sentences"
        )
        raise StoreError(
            f"{store.path} and {text.corpus.name} are over different words ({where}); give the corpus that the store "
            "was extracted from, with the same limit, or the model itself."
        )
    return store


def _name_and_source(source: Any) -> tuple[str, Any]:
    """`NAME=MODEL` in two; a folder whose own name has such a sign stays whole."""
    if isinstance(source, str) and "=" in source and not Path(source).exists():
        name, _, rest = source.partition("=")
        return name, rest
    return "", source


def _opened(source: Any) -> Model | ActivationStore | str:
    if not isinstance(source, str | os.PathLike):
        return source
    folder = Path(source)
    return ActivationStore.open(folder) if (folder / "manifest.json").exists() else os.fspath(source)


def _own_name(source: Model | ActivationStore | str) -> str:
    if not isinstance(source, str):
        return source.name
    from residuum.models.loading import short_name

    return short_name(source)


def _renamed(store: ActivationStore, name: str) -> ActivationStore:
    manifest = replace(store.manifest, model={**store.manifest.model, "name": name})
    return replace(store, manifest=manifest)

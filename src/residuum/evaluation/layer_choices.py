"""Which layers are scored together: all, each alone, or some; and which of two models' layers go together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from residuum.errors import SettingError
from residuum.maths.losses import layer_map
from residuum.maths.retrieval import LayerPair
from residuum.models.loading import parse_layers


@dataclass(frozen=True)
class LayerChoice:
    """Layers whose representations are averaged: pairs of a layer of the source's model and one of the target's."""

    name: str
    pairs: tuple[LayerPair, ...]

    @property
    def layer(self) -> int | None:
        """The source's layer where it is the only one."""
        return self.pairs[0][0] if len(self.pairs) == 1 else None


def layer_choices(layers: str | Sequence[str] | Sequence[int], source: int, target: int) -> list[LayerChoice]:
    """The choices of `layers` for models of `source` and `target` blocks, without repeats.

    `all` is every block; the embeddings (layer 0) are left out. `each` is every layer alone, 0 included. Else numbers
    and ranges, `1,3,5-7`; `3:6` puts layer 3 of the source's model beside layer 6 of the target's. Several choices are
    separated by `;` or given as a list of texts. Models of different depth are put side by side by their relative
    depth.
    """
    parts = layers.split(";") if isinstance(layers, str) else _texts(layers)
    choices = [choice for part in parts for choice in _parse(part.strip(), source, target)]
    return list({choice.pairs: choice for choice in choices}.values())


def _texts(layers: Sequence[str] | Sequence[int]) -> list[str]:
    numbers = [str(layer) for layer in layers if isinstance(layer, int)]
    texts = [layer for layer in layers if isinstance(layer, str)]
    if (numbers and texts) or not layers:
        raise SettingError(
            f"layers is {list(layers)!r}; expected numbers, or choices such as ['all', 'each', '1,3,5']."
        )
    return [",".join(numbers)] if numbers else texts


def _parse(text: str, source: int, target: int) -> Iterator[LayerChoice]:
    if text == "all":
        yield LayerChoice("all", tuple(_side_by_side(source, target)[1:]))
    elif text == "each":
        yield from (LayerChoice(_name(pair), (pair,)) for pair in _side_by_side(source, target))
    else:
        pairs = [pair for part in text.split(",") for pair in _numbers(part.strip(), source, target)]
        yield LayerChoice(text, tuple(dict.fromkeys(pairs)))


def _side_by_side(source: int, target: int) -> list[LayerPair]:
    """Every layer of the shallower model with the one at the same relative depth of the deeper."""
    shallow, deep = sorted((source, target))
    pairs = [(0, 0), *layer_map("uniform", shallow, deep).items()]
    return pairs if source <= target else [(b, a) for a, b in pairs]


def _numbers(part: str, source: int, target: int) -> list[LayerPair]:
    if ":" not in part:
        common = parse_layers(part, min(source, target))
        return [(layer, layer) for layer in common]
    first, _, second = part.partition(":")
    own, other = parse_layers(first, source), parse_layers(second, target)
    if len(own) != len(other):
        raise SettingError(f"Cannot read layers {part!r}: {len(own)} layers beside {len(other)}; expected as many.")
    return list(zip(own, other, strict=True))


def _name(pair: LayerPair) -> str:
    return str(pair[0]) if pair[0] == pair[1] else f"{pair[0]}:{pair[1]}"

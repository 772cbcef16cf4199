"""What may enter the maths: numpy or torch arrays of finite numbers, upcast where they are too narrow."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from residuum.errors import DataError

# A fourth power of any float32 number, summed over words and neurons, stays inside float64; larger numbers
# may not.
LARGEST = 1e60


def as_float_array(values: Any) -> Float[np.ndarray, "..."]:
    """The numbers as float32 or float64, from numpy or torch; narrower floats and integers are upcast."""
    if hasattr(values, "detach"):  # numpy has no bfloat16, and half precision is upcast anyway
        tensor = values.detach().cpu()
        values = (tensor.float() if tensor.is_floating_point() and tensor.itemsize < 4 else tensor).numpy()
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise DataError(
            f"Found an array of {array.dtype}; expected real numbers. Convert it to float32 or float64 first."
        )
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)


def as_matrix(values: Any, name: str = "The array") -> Float[np.ndarray, "word neuron"]:
    """The numbers as a finite `words × neurons` matrix; `name` begins the message when they are not."""
    array = as_float_array(values)
    if array.ndim != 2 or 0 in array.shape:
        raise DataError(
            f"{name} has shape {array.shape}; expected words × neurons, both at least 1. "
            "Reshape it, and leave out empty corpora and layers."
        )
    require_finite([array], first_word=0, name=name)
    return array


def require_finite(
    layers: Sequence[Float[np.ndarray, "word _"] | None], *, first_word: int, name: str = "The data"
) -> None:
    """Raise a DataError that names word, layer and neuron of the first number that is NaN or too large."""
    for index, layer in enumerate(layers):
        if layer is None or layer.size == 0 or float(np.abs(layer).max()) < LARGEST:
            continue
        word, neuron = np.argwhere(~(np.abs(layer.astype(np.float64)) < LARGEST))[0]
        raise DataError(
            f"{name} holds {layer[word, neuron]} at word {first_word + word} (row), layer {index}, "
            f"neuron {neuron} (column); expected finite numbers below {LARGEST:g}. "
            "Look for a half-precision overflow in the model, or rescale the activations."
        )


SINGLE = float(np.finfo(np.float32).eps)
HALF, BRAIN = 2.0**-10, 2.0**-7
"""ε of float16 and of bfloat16."""
DOUBLE = 16 * float(np.finfo(np.float64).eps)
"""Means of float64 numbers are themselves a few roundings off."""

Neurons = Float[np.ndarray, " neuron"]


def constant_neurons(scatter: Neurons, floor: Neurons, resolution: float = SINGLE) -> Bool[np.ndarray, " neuron"]:
    """Which of the neurons that stand side by side are constant, by their S and by what rounding may leave of it."""
    typical = np.median(scatter) if scatter.size else 0.0
    return scatter <= np.maximum(floor, resolution**2 * typical)


def rounding_floor(n: int, mean: Neurons, resolution: float = SINGLE) -> Neurons:
    """The scatter n·(ε μ)² of n words that differ from their mean by no more than the resolution of their numbers."""
    return n * (resolution * mean) ** 2


def resolution_of(dtype: np.dtype) -> float:
    """ε of numbers of this type; activations are float32, and whatever is narrower was float32 once."""
    return DOUBLE if dtype == np.float64 else SINGLE


def precision_of(array: Float[np.ndarray, "word neuron"]) -> float:
    """ε of the narrowest type that holds these numbers exactly: activations keep it however they are stored.

    A model in bfloat16 leaves 8 bits in what is read as float32. Whole numbers are exact, so they count as float32.
    """
    some = array[:64]
    single = some.astype(np.float32)
    if array.dtype == np.float64 and not np.array_equal(single, some):
        return DOUBLE
    if not single.size or np.array_equal(single, np.rint(single)):
        return SINGLE
    bits = np.ascontiguousarray(single).view(np.uint32)
    return next((epsilon for epsilon, low in ((BRAIN, 0xFFFF), (HALF, 0x1FFF)) if not (bits & low).any()), SINGLE)

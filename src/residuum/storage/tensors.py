"""Tensors in safetensors files that tell when a bit of them has changed since they were written."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import xxhash
from safetensors import SafetensorError, safe_open

from residuum.errors import ModelError, StoreError
from residuum.storage.files import whole_file

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

CHECKSUM = "xxh3_128"


def write_tensors(path: Path, tensors: Mapping[str, np.ndarray | Tensor], *, forced: bool = True) -> None:
    """Write tensors (of numpy or of torch) to a file that is whole or absent and bears their checksum.

    `forced` is as in `whole_file`.
    """
    plain = {name: _plain(tensor) for name, tensor in tensors.items()}
    if any(hasattr(tensor, "detach") for tensor in plain.values()):
        from safetensors.torch import save_file
    else:
        from safetensors.numpy import save_file
    with whole_file(path, forced=forced) as temporary:
        save_file(plain, temporary, metadata={CHECKSUM: _checksum(plain)})


def read_tensors(path: Path, framework: Literal["numpy", "pt"] = "numpy", *, remedy: str) -> dict[str, Any]:
    """Read what `write_tensors` wrote, as arrays or as torch's tensors; what is damaged or altered is refused."""
    try:
        with safe_open(path, framework=framework) as file:
            said = (file.metadata() or {}).get(CHECKSUM)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
    except (OSError, SafetensorError, TypeError, AttributeError, ValueError) as error:
        raise StoreError(f"{path} is damaged or missing ({error}). {remedy}") from None
    if said is not None and said != _checksum(tensors):
        raise StoreError(f"{path} has been altered (its checksum differs). {remedy}")
    return tensors


def stored_weights(folder: str | Path, without: Sequence[str] = ()) -> int | None:
    """How many weights the safetensors of a folder hold, by their headers alone; None where there are no such files.

    Tensors whose name has one of the parts `without` are not counted.
    """
    paths = sorted(Path(folder).glob("*.safetensors")) if Path(folder).is_dir() else []
    weights = 0
    for path in paths:
        try:
            with safe_open(path, framework="numpy") as file:
                names = [name for name in file.keys() if not any(part in name for part in without)]  # noqa: SIM118
                weights += sum(math.prod(file.get_slice(name).get_shape()) for name in names)
        except (OSError, SafetensorError) as error:
            raise ModelError(f"The weights in {path} are damaged ({error}); copy the model again.") from None
    return weights if paths else None


def stored_bytes(folder: str | Path) -> int:
    """What the tensors in the safetensors of a folder take, in the number formats in which they are stored."""
    files = sorted(Path(folder).glob("*.safetensors")) if Path(folder).is_dir() else []
    return sum(file.stat().st_size for file in files)


def stored_kinds(folder: str | Path) -> dict[str, str]:
    """The number format of each tensor in the safetensors of a folder (`F32`, `I64`), by their headers alone."""
    kinds: dict[str, str] = {}
    for path in sorted(Path(folder).glob("*.safetensors")) if Path(folder).is_dir() else ():
        with safe_open(path, framework="numpy") as file:
            kinds |= {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
    return kinds


def _plain(tensor: Any) -> Any:
    """One block of memory, on the CPU."""
    if hasattr(tensor, "detach"):
        return tensor.detach().cpu().contiguous()
    import numpy as np

    return np.asarray(tensor, order="C")


def _checksum(tensors: Mapping[str, Any]) -> str:
    """A hash of names, types, shapes and values (against damage, not against forgery)."""
    digest = xxhash.xxh3_128()
    for name in sorted(tensors):
        tensor = tensors[name]
        kind = str(tensor.dtype).removeprefix("torch.")
        digest.update(f"{name} {kind} {tuple(tensor.shape)}".encode())
        digest.update(_bytes(tensor))
    return digest.hexdigest()


def _bytes(tensor: Any) -> memoryview:
    if hasattr(tensor, "detach"):
        import torch

        return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data
    import numpy as np

    return np.ascontiguousarray(tensor).reshape(-1).view(np.uint8).data

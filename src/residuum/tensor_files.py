"""Tensors in safetensors files that tell when a bit of them has changed since they were written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import xxhash
from safetensors import SafetensorError, safe_open

from residuum.errors import StoreError
from residuum.files import whole_file

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

CHECKSUM = "xxh3_128"


def write_tensors(path: Path, tensors: Mapping[str, np.ndarray | Tensor]) -> None:
    """Write tensors (of numpy or of torch) to a file that is whole or absent and bears their checksum."""
    plain = {name: _plain(tensor) for name, tensor in tensors.items()}
    if any(hasattr(tensor, "detach") for tensor in plain.values()):
        from safetensors.torch import save_file
    else:
        from safetensors.numpy import save_file
    with whole_file(path) as temporary:
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

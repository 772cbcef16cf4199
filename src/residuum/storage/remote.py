"""Folders behind an address such as s3://bucket/acts, read and written through a copy on this machine (fsspec)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import xxhash

from residuum.errors import ResiduumError, SettingError, StoreError
from residuum.storage.files import checksum, whole_file


def is_address(place: object) -> bool:
    """Whether a place is an address rather than a path; `file://` is one, too."""
    return isinstance(place, str) and "://" in place


def local_path(place: str | os.PathLike[str]) -> Path | None:
    """The path that a place is, or that a `file://` address names; None for what lies elsewhere."""
    if not isinstance(place, str | os.PathLike):
        raise SettingError(f"{place!r:.80} is no place; expected a path or an address such as s3://bucket/acts.")
    text = os.fspath(place)
    if not is_address(text):
        return Path(text)
    return Path(text.removeprefix("file://")) if text.startswith("file://") else None


def cache_folder(*key: str) -> Path:
    """The folder of this machine that belongs to an address (and, say, to what was found there)."""
    root = os.environ.get("RESIDUUM_CACHE") or Path.home() / ".cache" / "residuum"
    return Path(root) / "remote" / xxhash.xxh3_128_hexdigest("\n".join(key).encode())


def fetch(address: str, name: str, folder: Path) -> Path:
    """Copy one file of a remote folder to a folder here, whole or not at all."""
    target = folder / name
    with _clear_errors(address), whole_file(target) as temporary:
        files, place = _files(address)
        files.get_file(f"{place}/{name}", str(temporary))
    return target


def fetch_versioned(address: str, name: str) -> Path:
    """The folder for the copy of a remote folder, by the content of one file of it, which is copied there."""
    fresh = fetch(address, name, cache_folder(address))
    folder = cache_folder(address, checksum(fresh))
    with whole_file(folder / name) as temporary:
        temporary.write_bytes(fresh.read_bytes())
    return folder


def send(folder: Path, names: Iterable[str], address: str) -> None:
    """Copy files of a folder here to a remote folder, in this order."""
    with _clear_errors(address):
        files, place = _files(address)
        files.makedirs(place, exist_ok=True)
        for name in names:
            files.put_file(str(folder / name), f"{place}/{name}")


def _files(address: str) -> tuple[Any, str]:
    """The file system that an address belongs to, and the folder in it."""
    import fsspec

    files, place = fsspec.core.url_to_fs(address)
    return files, place.rstrip("/")


@contextmanager
def _clear_errors(address: str) -> Iterator[None]:
    scheme = address.partition("://")[0]
    try:
        yield
    except ResiduumError:
        raise
    except (ImportError, ValueError) as error:
        raise SettingError(f"{address} cannot be opened ({error}); install what reads {scheme}://.") from None
    except FileNotFoundError as error:
        raise StoreError(f"{address} has no such file ({error}).") from None
    except Exception as error:  # clients of object stores have errors of their own, such as missing credentials
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise StoreError(f"{address} cannot be reached ({reason}).") from None

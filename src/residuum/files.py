"""Files that are whole or absent, whatever happens while they are written."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import xxhash
from safetensors import SafetensorError

from residuum.errors import StoreError

TEMPORARY = ".part"


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a temporary name to write to; it becomes `path` at the end, on disk, or vanishes if anything failed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY}")
    with clear_disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            _sync(temporary)
            temporary.replace(path)
            _sync(path.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file that is whole or absent."""
    with whole_file(path) as temporary:
        temporary.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def read_json(path: Path) -> Any:
    """Read a JSON file; a missing or damaged one is a StoreError that names it."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StoreError(f"{path} does not exist.") from None
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} cannot be read as JSON ({error}); it is damaged or of another kind.") from None


def checksum(path: Path) -> str:
    """A hash of a file's content (128-bit XXH3: against damage, not against forgery)."""
    digest = xxhash.xxh3_128()
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


def remove_temporaries(folder: Path) -> None:
    """Clear what a killed process left half-written."""
    for leftover in folder.glob(f".*{TEMPORARY}"):
        leftover.unlink(missing_ok=True)


@contextmanager
def clear_disk_errors(path: Path) -> Iterator[None]:
    """Turn the operating system's complaints about writing into one clear line."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        number = _error_number(error)
        if number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise StoreError(
                f"The disk is full: {path} could not be written and was removed. Free some space and run the same "
                "command again; what was finished is kept."
            ) from error
        if number in (errno.EACCES, errno.EROFS, errno.EPERM):
            raise StoreError(f"No permission to write {path}; choose another folder.") from error
        if number in (errno.ENOTDIR, errno.EEXIST, errno.EISDIR):
            raise StoreError(f"{path} cannot be written: a file or folder of that name is in the way.") from error
        raise


def _error_number(error: OSError | SafetensorError) -> int | None:
    """The system's error number, which safetensors gives only in words."""
    if isinstance(error, OSError):
        return error.errno
    said = re.search(r"os error (\d+)", str(error))
    return int(said[1]) if said else None


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

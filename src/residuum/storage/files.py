"""Files that are whole or absent, whatever happens while they are written."""

from __future__ import annotations

import errno
import json
import os
import platform
import re
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import xxhash

from residuum.errors import ResiduumError, StoreError

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None

TEMPORARY = ".part"
LOST = (errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.ENODEV, errno.ENXIO)
"""What the system says of a disk that breaks, or a network drive that is gone, while a file is written."""
SEAL = "xxh3"
"""The name under which a JSON file holds the checksum of all else in it."""
LEFTOVERS = (f".*{TEMPORARY}", ".tmp??????")
"""What a killed process may leave: our own names, and those that safetensors writes to before it renames."""
_held: dict[Path, tuple[int | None, threading.Thread]] = {}
"""The folders that this process writes to, each with the descriptor of its lock and the thread that took it."""
_holding = threading.Lock()
_UMASK = os.umask(0o022)
os.umask(_UMASK)  # which can only be read by setting it


@contextmanager
def whole_file(path: Path, *, forced: bool = True) -> Iterator[Path]:
    """Give a temporary name to write to; it becomes `path` at the end, on disk, or vanishes if anything failed.

    `forced=False` does not wait for the disk: a killed process loses nothing, a power cut may.
    """
    temporary = _temporary(path)
    with clear_disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            _let_others_read(temporary)
            if forced:
                _sync(temporary)
            temporary.replace(path)
            if forced:
                _sync(path.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


@contextmanager
def lone_file(path: Path) -> Iterator[Path]:
    """`whole_file` in a folder that no run owns: what killed processes left of this very file is cleared first."""
    _remove_abandoned(path)
    with whole_file(path) as temporary:
        yield temporary


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write named values as JSON: a file that is whole or absent, and tells when it was changed since."""
    text = json.dumps({**values, SEAL: _seal(values)}, ensure_ascii=False, indent=1)
    with whole_file(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def read_json(path: Path) -> Any:
    """Read a JSON file; a missing, damaged or changed one is a StoreError that names it.

    One that was not written here has no checksum, and is read as it is.
    """
    try:
        text = path.read_text(encoding="utf-8")
        value = json.loads(text)
        if "\\ud" in text.lower():  # half a surrogate pair is JSON, but no text that can be written or hashed
            json.dumps(value, ensure_ascii=False).encode()
        changed = isinstance(value, dict) and SEAL in value and value.pop(SEAL) != _seal(value)
    except FileNotFoundError:
        raise StoreError(f"{path} does not exist.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(f"{path} cannot be read as JSON ({error}); it is damaged or of another kind.") from None
    if changed:
        raise StoreError(f"{path} is damaged or was edited: its checksum is that of other values.")
    return value


def _seal(values: Mapping[str, Any]) -> str:
    """The checksum of named values in their order, which JSON gives back with the same text."""
    return xxhash.xxh3_64_hexdigest(json.dumps(values, ensure_ascii=False).encode())


def reserve_space(path: Path) -> None:
    """Take from the disk all that a file which was just mapped may fill; a full disk is then an error at once.

    A file that is made by mapping it has holes. Where the disk is full, writing to one kills the process (SIGBUS).
    """
    if not hasattr(os, "posix_fallocate"):  # macOS and Windows
        return
    size = path.stat().st_size
    with clear_disk_errors(path), path.open("r+b") as file:
        try:
            if size:
                os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):  # file systems that cannot
                raise


def note_checksum(path: Path) -> None:
    """Write a file's checksum beside it, by which `is_as_noted` tells damage."""
    write_json(path.with_suffix(".json"), {"checksum": checksum(path)})


def is_as_noted(path: Path) -> bool:
    """Whether a file is there with the checksum that was noted when it was made."""
    note = path.with_suffix(".json")
    if not (path.exists() and note.exists()):
        return False
    try:
        found = read_json(note)
    except StoreError:
        return False
    return isinstance(found, dict) and found.get("checksum") == checksum(path)


def checksum(path: Path) -> str:
    """A hash of a file's content (128-bit XXH3: against damage, not against forgery)."""
    digest = xxhash.xxh3_128()
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Give a temporary folder to fill; it becomes `path` at the end, on disk, or vanishes if anything failed."""
    _remove_abandoned(path)
    temporary = _temporary(path)
    with clear_disk_errors(path):
        shutil.rmtree(temporary, ignore_errors=True)  # of another process that had our number
        try:
            temporary.mkdir(parents=True)
            yield temporary
            for file in temporary.rglob("*.safetensors"):
                _let_others_read(file)
            for part in (temporary, *temporary.rglob("*")):
                _sync(part)
            remove_folder(path)
            temporary.rename(path)
            _sync(path.parent)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise


def remove_folder(folder: Path) -> None:
    """Remove a folder, if it is there, at one stroke: half of it is never taken for the whole."""
    if not folder.exists():
        return
    doomed = folder.with_name(f".{folder.name}.old.{os.getpid()}{TEMPORARY}")
    shutil.rmtree(doomed, ignore_errors=True)
    with clear_disk_errors(folder):
        folder.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


@contextmanager
def files_for(folder: Path) -> Iterator[Path]:
    """Give a temporary folder to fill; its files go to `folder` at the end, each whole, or none if anything failed.

    The folder belongs to a run: what a killed process left half-written there is cleared first.
    """
    temporary = folder / f".files.{os.getpid()}{TEMPORARY}"
    with clear_disk_errors(folder):
        remove_temporaries(folder)
        try:
            temporary.mkdir(parents=True, exist_ok=True)
            yield temporary
            for file in sorted(path for path in temporary.rglob("*") if path.is_file()):
                _let_others_read(file)
                _sync(file)
                place = folder / file.relative_to(temporary)
                place.parent.mkdir(exist_ok=True)
                file.replace(place)
            _sync(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def folder_name(name: str) -> str:
    """A name of a model, a language or a text as that of one folder: no path, and never the folder above."""
    return re.sub(r"[^\w.+-]+|^\.+", "-", name)


def remove_temporaries(folder: Path) -> None:
    """Clear what a killed process left half-written."""
    for leftover in [found for pattern in LEFTOVERS for found in folder.glob(pattern)]:
        _remove(leftover)


def private_folder() -> Path:
    """A folder of this user's own among the temporary ones: nobody else can have put anything there."""
    folder = Path(tempfile.gettempdir()) / f"residuum-{os.getuid() if hasattr(os, 'getuid') else 'user'}"
    with clear_disk_errors(folder):
        folder.mkdir(mode=0o700, exist_ok=True)
        facts = folder.lstat()
    foreign = hasattr(os, "getuid") and (facts.st_uid != os.getuid() or facts.st_mode & 0o077)
    if folder.is_symlink() or foreign:
        raise StoreError(f"{folder} belongs to, or is open to, others; set TMPDIR to a folder of your own.")
    return folder


def hold_folder(folder: Path) -> None:
    """Refuse a folder that another process or thread is writing to; else keep others off it until `release_folder`.

    The system ends the hold with the process, however that ends. Of the processes of one training only the first holds.
    """
    place, here = folder.resolve(), threading.current_thread()
    if os.environ.get("RANK", "0") != "0":
        return
    with _holding:
        descriptor, owner = _held.get(place, (None, here))
        if owner is not here and owner.is_alive():
            raise StoreError(f"Another thread is writing to {folder}; wait for it, or choose another folder.")
        if place not in _held:
            with clear_disk_errors(folder):
                folder.mkdir(parents=True, exist_ok=True)
                descriptor = None if fcntl is None else os.open(folder, os.O_RDONLY)
        if fcntl is not None and descriptor is not None and place not in _held:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                raise StoreError(
                    f"Another process is writing to {folder}; wait until it has ended, or choose another folder."
                ) from None
            except OSError:  # a file system that has no locks
                os.close(descriptor)
                descriptor = None
        _held[place] = descriptor, here


def release_folder(folder: Path) -> None:
    """Let other processes write to a folder again."""
    descriptor, _ = _held.pop(folder.resolve(), (None, None))
    if descriptor is not None:
        os.close(descriptor)


@contextmanager
def released_on_failure() -> Iterator[None]:
    """Let others write to the folders that this thread took in here, if what it did there fails."""
    before, here = set(_held), threading.current_thread()
    try:
        yield
    except BaseException:
        for place, (_, owner) in list(_held.items()):
            if owner is here and place not in before:
                release_folder(place)
        raise


@contextmanager
def clear_disk_errors(path: Path) -> Iterator[None]:
    """Turn the operating system's complaints about writing into one clear line."""
    try:
        yield
    except ResiduumError:
        raise
    except Exception as error:  # safetensors and tokenizers have errors of their own, the latter of no kind at all
        # What is written in Rust, and copies of whole folders, give the system's error number only in words.
        said = re.search(r"(?:os error |\[Errno )(\d+)", str(error))
        number = getattr(error, "errno", None) or (int(said[1]) if said else None)
        if number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise StoreError(
                f"The disk is full: {path} could not be written and was removed. Free some space and run the same "
                "command again; what was finished is kept."
            ) from error
        if number in (errno.EACCES, errno.EROFS, errno.EPERM):
            raise StoreError(f"No permission to write {path}; choose another folder.") from error
        if number in LOST:
            raise StoreError(
                f"{path} could not be written: {os.strerror(number)}. The disk or the network drive does not answer; "
                "run the same command again once it does. What was finished is kept."
            ) from error
        if number in (errno.ENOTDIR, errno.EEXIST, errno.EISDIR):
            raise StoreError(f"{path} cannot be written: a file or folder of that name is in the way.") from error
        if number in (errno.ENAMETOOLONG, errno.ELOOP, errno.ENOENT):
            raise StoreError(f"{path} cannot be written: {os.strerror(number)}. Choose another folder.") from error
        raise


def _temporary(path: Path) -> Path:
    # Workers on several machines write to one folder, and their process numbers may be the same.
    return path.with_name(f".{path.name}.{platform.node()}.{os.getpid()}{TEMPORARY}")


def _remove_abandoned(path: Path) -> None:
    """Clear the temporary names of one file or folder that processes of this machine had which are there no more."""
    mine = re.compile(rf"\.{re.escape(path.name)}\.({re.escape(platform.node())}|old)\.(\d+){re.escape(TEMPORARY)}")
    with clear_disk_errors(path):
        for leftover in list(path.parent.glob(f".*{TEMPORARY}")):
            if (found := mine.fullmatch(leftover.name)) and not _is_running(int(found[2])):
                _remove(leftover)


def _is_running(process: int) -> bool:
    """Whether a process of this machine is there."""
    if fcntl is None:  # on Windows to ask is to end it
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # another user's
        pass
    return True


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _let_others_read(path: Path) -> None:
    """Give a file the mode of any new file: safetensors 0.8 gives its own to the owner alone, whatever the umask."""
    if path.is_file():
        path.chmod(0o666 & ~_UMASK)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

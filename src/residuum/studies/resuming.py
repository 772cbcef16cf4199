"""Which study a folder holds: told by its settings, and by what its models and data hold rather than where they lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from residuum.errors import StoreError
from residuum.storage.results import changed_settings, finished_run, read_config, without_places, write_config
from residuum.studies.kits import Kit

COMMAND = "study"


def study_config(name: str, kit: Kit) -> dict[str, Any]:
    """What tells a study from others, with fingerprints of its models and its data."""
    return {
        "study": name,
        "scale": kit.scale.name,
        "examples": kit.scale.examples,
        "models": {model: {"model": source, "files": _files(source)} for model, source in kit.models.items()},
        "data": kit.data.identity,
        "tasks": list(kit.data.tasks),
        "seed": kit.seed,
    }


def known_by_content(kit: Kit) -> Kit:
    """The kit with its models under the names by which its folder knows them, where their folders were renamed."""
    kept = {} if kit.fresh else read_config(kit.out)
    models = kept.get("models") if kept.get("command") == COMMAND else None
    known = {
        one["files"]: str(name)
        for name, one in (models.items() if isinstance(models, Mapping) else ())
        if isinstance(one, Mapping) and one.get("files") and isinstance(one["files"], str)
    }
    named = {known.get(_files(source), name): source for name, source in kit.models.items()}
    return replace(kit, models=named) if len(named) == len(kit.models) else kit


def begin_study(out: Path, config: Mapping[str, Any], *, fresh: bool) -> None:
    """Begin or go on with a study in its folder; another study there is an error.

    Models and data may lie elsewhere than before, or hold something else than before, but not both: that is a mistake
    more often than a wish.
    """
    kept = {} if fresh else read_config(out)
    if kept and kept.pop("command", None) == COMMAND:
        wanted = {key: _kept_if_same(kept.get(key), value) for key, value in config.items()}
        if changes := changed_settings(kept, wanted):
            raise StoreError(f"{out} holds another run ({changes}); choose another folder or pass --fresh.")
    changed = without_places(kept) != without_places(config)
    finished_run(out, COMMAND, config, fresh=fresh or (bool(kept) and changed))
    write_config(out, COMMAND, config)


def _kept_if_same(kept: Any, wanted: Any) -> Any:
    """What was kept where it is the same thing: in its place or in what it holds, of several models all of them."""
    if isinstance(wanted, Mapping) and "files" in wanted:
        return kept if _place(kept) == _place(wanted) or without_places(kept) == without_places(wanted) else wanted
    if isinstance(wanted, Mapping) and isinstance(kept, Mapping):
        return {name: _kept_if_same(kept.get(name), value) for name, value in wanted.items()}
    return wanted


def _place(said: Any) -> Any:
    return said.get("model", said.get("folder")) if isinstance(said, Mapping) else said


def _files(source: str) -> str:
    from residuum.models.surgery import files_fingerprint

    return files_fingerprint(source)

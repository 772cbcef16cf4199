"""Cards of the models that are written (README.md with the front matter that model hubs read), and sending them there.

The front matter says only what is known: the pipeline by what the folder holds, the base model with its owner, the
licence and language from the base model's own card, scores as they were measured.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from residuum.errors import ModelError, SettingError
from residuum.storage.files import read_json, whole_file
from residuum.storage.schemas import yaml_values

CARD = "README.md"
SENTENCES = "sentence-transformers"
PIPELINES = {
    "ForMaskedLM": "fill-mask",
    "ForCausalLM": "text-generation",
    "LMHeadModel": "text-generation",
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForMultipleChoice": "multiple-choice",
    "ForQuestionAnswering": "question-answering",
}
"""What the head of a network is for, by the end of its class name."""
_CACHED = re.compile(r"models--(.+?)--(.+)")
_LANGUAGE = re.compile(r"[a-z]{2,3}|code|multilingual")


@dataclass(frozen=True)
class CardScore:
    """One measured number: its task, its data and its metric (by the hub's name where the hub has one)."""

    task: str
    dataset: str
    metric: str
    value: float


def write_card(
    folder: str | Path,
    title: str,
    sections: Mapping[str, str],
    *,
    source: str | Path | None = None,
    **matter: Any,
) -> None:
    """Write the card of the model in a folder: a title, sections (the first may have no heading), and its front matter.

    `source` is the model that it was made of; `matter` are options of `front_matter`.
    """
    parts = [front_matter(folder, source, title=title, **matter), f"# {plain(title)}"]
    parts += [f"## {heading}\n\n{text}" if heading else text for heading, text in sections.items() if text]
    with whole_file(Path(folder) / CARD) as path:
        path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def front_matter(
    folder: str | Path,
    source: str | Path | None = None,
    *,
    title: str = "",
    languages: Sequence[str] = (),
    datasets: Sequence[str] = (),
    scores: Sequence[CardScore] = (),
    tags: Sequence[str] = (),
    library: str | None = None,
) -> str:
    """What a hub reads of a model folder, between two lines `---`.

    `datasets` are names on the hub; others are left out, as are languages without a code of two or three letters.
    """
    base = card_facts(source) if source is not None else {}
    pipeline = None if library == "residuum" else pipeline_of(folder)
    known: dict[str, Any] = {
        "library_name": library or (SENTENCES if pipeline == "sentence-similarity" else "transformers"),
        "pipeline_tag": pipeline,
        "base_model": None if source is None else hub_id(source),
        "license": base.get("license"),
        "license_name": base.get("license_name"),
        "license_link": base.get("license_link"),
        "language": [name for name in languages if _LANGUAGE.fullmatch(name)] or base.get("language"),
        "datasets": [name for name in datasets if is_hub_id(name)],
        "metrics": list(dict.fromkeys(score.metric for score in scores)),
        "tags": ["residuum", *tags],
    }
    if scores and pipeline is not None:
        from huggingface_hub import EvalResult
        from huggingface_hub.repocard_data import eval_results_to_model_index

        results = [
            EvalResult(pipeline, score.dataset, score.dataset, score.metric, score.value, task_name=score.task)
            for score in scores
        ]
        known["model-index"] = eval_results_to_model_index(title or Path(folder).name, results)
    stated = {key: value for key, value in known.items() if value}
    return f"---\n{yaml.safe_dump(stated, sort_keys=False, allow_unicode=True).strip()}\n---"


def pipeline_of(folder: str | Path) -> str | None:
    """The pipeline that reads a folder, by the head that its config names and its modules; None where none does.

    A sentence-transformers model makes sentence vectors unless it has the head of a task.
    """
    config = read_json(Path(folder) / "config.json")
    named = (config.get("architectures") or [""])[0]
    found = next((tag for end, tag in PIPELINES.items() if named.endswith(end)), None)
    if (Path(folder) / "modules.json").is_file() and found in (None, "fill-mask", "text-generation"):
        return "sentence-similarity"
    has_head = "For" in named or config.get("is_encoder_decoder")
    return found or (None if has_head or not named else "feature-extraction")


def hub_id(source: str | Path) -> str | None:
    """The hub's name of a model, with its owner: the name itself, that of a cached copy, or what a local card says."""
    path = Path(source)
    if not path.exists():
        name = str(source).partition("@")[0]
        return name if is_hub_id(name) else None
    for part in reversed(path.absolute().parts):
        if match := _CACHED.fullmatch(part):
            return f"{match[1]}/{match[2]}"
    base = card_facts(source).get("base_model")
    base = base[0] if isinstance(base, list) and base else base
    return base if isinstance(base, str) and is_hub_id(base) else None


def card_facts(source: str | Path) -> dict[str, Any]:
    """The front matter of a model's card, where it is here or in the hub's cache; nothing where it cannot be read."""
    path = Path(source) / CARD
    if not Path(source).exists() and is_hub_id(str(source).partition("@")[0]):
        from huggingface_hub import try_to_load_from_cache

        name, _, revision = str(source).partition("@")
        cached = try_to_load_from_cache(name, CARD, revision=revision or None)
        path = Path(cached) if isinstance(cached, str) else path
    if not path.is_file():
        return {}
    text = path.read_text(encoding="utf-8", errors="replace")
    parts = text.split("---", 2)
    if not text.startswith("---") or len(parts) < 3:
        return {}
    with suppress(ModelError):  # what somebody else wrote, of which a little is repeated
        return yaml_values(parts[1], path, ModelError)
    return {}


def is_hub_id(name: str) -> bool:
    """Whether a text can be the name of something on the hub."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return True


def plain(text: str) -> str:
    """A name as text: it adds no lines and no HTML to a card."""
    return html.escape(" ".join(text.split()), quote=False)


def check_hub(target: str | None) -> None:
    """Refuse, before anything is computed, a place on the hub that cannot be written: `owner/name`, or with @branch."""
    if target is None:
        return
    name = target.partition("@")[0]
    if "/" not in name or not is_hub_id(name):
        raise SettingError(f"push_to_hub is {target!r}; expected owner/name, or owner/name@branch.")
    from huggingface_hub import HfApi

    try:
        HfApi().whoami()
    except Exception as error:  # no token, no network, an expired token: the library raises many kinds
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(f"{target} cannot be written: {reason} Log in first: hf auth login.") from error


def push_to_hub(folder: str | Path, target: str | None, *, private: bool = True) -> str | None:
    """Send a model folder with its card to `owner/name` (or a branch of it, after @); return its address.

    Without a target nothing is sent. A repository that is not there yet is made, private unless told otherwise.
    Checkpoints and tables stay here.
    """
    if target is None:
        return None
    from huggingface_hub import HfApi

    name, _, branch = target.partition("@")
    try:
        api = HfApi()
        api.create_repo(name, private=private, exist_ok=True)
        if branch:
            api.create_branch(name, branch=branch, exist_ok=True)
        sent = api.upload_folder(
            repo_id=name,
            folder_path=str(folder),
            revision=branch or None,
            commit_message="Upload a model made with Residuum",
            ignore_patterns=["checkpoints/**", "activations/**", "*.parquet", "*.csv"],
        )
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(f"{folder} could not be sent to {target}: {reason}") from error
    return str(sent)


def push_each(folders: Sequence[str | Path], target: str | None) -> None:
    """Send one model folder to `owner/name`, or each of several to `owner/name-FOLDER`."""
    if target is None:
        return
    name, at, branch = target.partition("@")
    for folder in folders:
        push_to_hub(folder, target if len(folders) == 1 else f"{name}-{Path(folder).name}{at}{branch}")

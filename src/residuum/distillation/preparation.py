"""From settings to all that a run needs: teacher, students, batches, losses. Everything is checked on the way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from residuum.corpus.streams import check_text, text_lines
from residuum.distillation.essential import EssentialNeurons, essential_neurons
from residuum.distillation.monitoring import Monitor
from residuum.distillation.networks import LanguageModel, language_model
from residuum.distillation.objective import Objective, Projections
from residuum.distillation.presets import ATTENTION_TERMS, HEAD_TERMS, HEADLESS
from residuum.distillation.settings import DistillSettings, LayerChoice, MeasuredMap
from residuum.distillation.steps import Step, Student
from residuum.distillation.students import Initialisation, build_student, share_parts, student_config, whole_shape
from residuum.distillation.teaching import Memory, Teacher
from residuum.distillation.texts import (
    Encoder,
    LanguageBatches,
    PairwiseBatches,
    check_tokenizer,
    held_out_lines,
    translation_pairs,
)
from residuum.errors import ModelError, SettingError
from residuum.maths.losses import LayerMap, layer_map, measured_map, published_uniform
from residuum.models.loading import (
    check_no_fresh_weights,
    clear_loading_errors,
    load_tokenizer,
    resolve_device,
    weights_fingerprint,
)
from residuum.models.onnx_graphs import check_packages
from residuum.models.vocabularies import Vocabulary, count_pieces, cut_vocabulary
from residuum.storage.results import clear_content_errors, read_run
from residuum.training import ParameterGroup, check_abilities, trainable_groups

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PreTrainedTokenizerBase

NEURON_BATCHES = 32  # batches of text from which essential neurons are chosen


@dataclass(frozen=True, eq=False)
class Prepared:
    """A distillation before its first step."""

    settings: DistillSettings
    teacher: Teacher
    tokenizer: PreTrainedTokenizerBase
    students: list[Student]
    vocabularies: dict[str, Vocabulary]  # of each student, where trimmed
    objective: Objective
    batches: LanguageBatches | PairwiseBatches
    step: Step
    monitor: Monitor

    @property
    def modules(self) -> dict[str, nn.Module]:
        """What is trained and kept in checkpoints."""
        modules: dict[str, nn.Module] = {student.name: student.model.module for student in self.students}
        for student in self.students:
            if next(student.projections.parameters(), None) is not None:
                modules[f"projections of {student.name}"] = student.projections
        if self.step.discriminator is not None:
            modules["discriminator"] = self.step.discriminator
        return modules

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Every (language, student), languages in the order of the texts."""
        return language_student_pairs(self.settings)

    def parameter_groups(self) -> list[ParameterGroup]:
        """Each parameter once. `published` stepped tied weights twice, which twice the rate stands for.

        The thesis' plain AdamW decays all parameters; `corrected` leaves out vectors.
        """
        groups = trainable_groups(*self.modules.values())
        if self.settings.recipe != "corrected":
            groups = [ParameterGroup([p for group in groups for p in group.parameters])]
        if self.settings.recipe != "published" or not self.settings.tie:
            return groups
        tied = {id(s.model.head.decoder.weight) for s in self.students if s.model.head is not None}
        twice = [p for group in groups for p in group.parameters if id(p) in tied]
        rest = [
            ParameterGroup([p for p in group.parameters if id(p) not in tied], group.rate, group.weight_decay)
            for group in groups
        ]
        return [group for group in (*rest, ParameterGroup(twice, rate=2.0)) if group.parameters]


def prepare(settings: DistillSettings, device: str = "auto") -> Prepared:
    """Check texts and settings, load the teacher, build the students."""
    place = resolve_device(device)
    _check_machine(settings, place)
    for source in settings.texts.values():
        check_text(source)
    held_out = {language: held_out_lines(source, settings.text) for language, source in settings.texts.items()}
    translations = {pair: translation_pairs(files) for pair, files in settings.contrast.pairs.items()}
    monitored = {
        pair: translation_pairs(files)[: settings.evaluation.lines] for pair, files in settings.evaluation.pairs.items()
    }
    model, tokenizer = load_teacher(settings)
    model.module.to(device=place)  # pyright: ignore[reportCallIssue]
    objective = make_objective(settings, model)
    vocabularies = _vocabularies(settings, tokenizer, translations)
    encoders = _encoders(settings, model, tokenizer, vocabularies)
    students = _students(settings, model, objective, encoders, vocabularies, place)
    batches = LanguageBatches(settings.texts, encoders, settings.text, translations)
    cache = Path(settings.teacher_cache) if settings.teacher_cache else None
    memory = None if settings.recipe == "corrected" else Memory()
    teacher = Teacher(model, objective, weights_fingerprint(model.module), cache, memory)
    return Prepared(
        settings=settings,
        teacher=teacher,
        tokenizer=tokenizer,
        students=students,
        vocabularies=vocabularies,
        objective=objective,
        batches=batches
        if settings.recipe == "corrected"
        else PairwiseBatches(batches, language_student_pairs(settings)),
        step=Step(teacher, students, objective, settings.contrast, _discriminator(settings, objective, students)),
        monitor=Monitor(students, encoders, held_out, monitored, place),
    )


def load_teacher(settings: DistillSettings) -> tuple[LanguageModel, PreTrainedTokenizerBase]:
    """The teacher, frozen, in eval mode; with its head if a term of the loss needs one."""
    import transformers

    name = settings.teacher
    needs_head = bool(set(settings.loss.weights) & set(HEAD_TERMS))
    attention = bool(set(settings.loss.weights) & set(ATTENTION_TERMS))
    with clear_loading_errors(name):
        config = transformers.AutoConfig.from_pretrained(name)
        causal = config.model_type in transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
        masked = config.model_type in transformers.models.auto.modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
        kind: Any = transformers.AutoModelForMaskedLM if masked or not causal else transformers.AutoModelForCausalLM
        options = {"dtype": torch.float32, "use_safetensors": True, "output_loading_info": True}
        module, info = kind.from_pretrained(name, **options)
        if info["missing_keys"]:
            if needs_head:
                raise ModelError(
                    f"{name} has no language-model head (its weights lack {sorted(info['missing_keys'])[0]}), which "
                    f"mlm and soft need; choose a preset without them: {', '.join(HEADLESS)}."
                )
            module, info = transformers.AutoModel.from_pretrained(name, **options)
    check_no_fresh_weights(module, info, name)
    tokenizer = load_tokenizer(name, trust_remote_code=False)
    module.eval().requires_grad_(False)
    model = language_model(module, attention=attention)
    check_tokenizer(tokenizer, causal=model.causal, embeddings=module.config.vocab_size)
    if model.causal and tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return model, tokenizer


def make_objective(settings: DistillSettings, teacher: LanguageModel) -> Objective:
    """The loss of the settings, for this teacher."""
    shape = whole_shape(teacher, settings.shape, settings.initialise)
    n_layers = student_config(teacher, shape, tie=settings.tie).num_hidden_layers
    choice = settings.loss.layer_map if settings.layer_map is None else settings.layer_map
    used = [term for term in ATTENTION_TERMS if settings.loss.weights.get(term)]
    if used and shape.heads != teacher.n_heads:
        raise SettingError(
            f"{used[0]} compares head by head, but the students have {shape.heads} heads and the teacher has "
            f"{teacher.n_heads}; keep the number of heads (essential neurons keep whole heads, fewer of them in a "
            "narrower student) or choose a loss without attention."
        )
    return Objective(
        weights=settings.loss.weights,
        layers=chosen_map(choice, n_layers, teacher.n_layers, published=settings.recipe == "published"),
        temperature=settings.loss.temperature,
        recipe=settings.recipe,
        causal=teacher.causal,
    )


def chosen_map(choice: LayerChoice | str, student: int, teacher: int, *, published: bool) -> LayerMap:
    """The layer map of a setting: by name, as a list, or measured by a `compare` run."""
    if isinstance(choice, MeasuredMap):
        return _measured(choice, student, teacher)
    if published and choice == "uniform":
        return published_uniform(student, teacher)
    return layer_map(choice, student, teacher)


def language_student_pairs(settings: DistillSettings) -> list[tuple[str, str]]:
    """Every (language, student) in the order of algorithm 1: languages outside, students inside."""
    return [
        (language, name)
        for language in settings.texts
        for name, student in settings.learners.items()
        if language in student.languages
    ]


def _check_machine(settings: DistillSettings, place: torch.device) -> None:
    """Whether what the settings ask for is installed and can be done here."""
    if settings.onnx:
        check_packages()
    check_abilities(settings.optimiser.precision, settings.report_to, place)


def _measured(choice: MeasuredMap, student: int, teacher: int) -> LayerMap:
    run = read_run(choice.run)
    frame = run.tables.get("similarity")
    if frame is None:
        raise SettingError(f"layer_map.run: {choice.run} is no run of `compare`.")
    with clear_content_errors(run.command, run.folder):
        return measured_map(_similarities(choice, frame, student, teacher))


def _similarities(choice: MeasuredMap, frame: pd.DataFrame, student: int, teacher: int) -> np.ndarray:
    """The measured similarity of every layer of the student with every layer of the teacher."""
    rows = frame[
        (frame["measure"] == choice.measure)
        & (frame["model_a"] == choice.student)
        & (frame["model_b"] == choice.teacher)
    ]
    table = rows.pivot_table(index="layer_a", columns="layer_b", values="value")
    wanted = list(range(1, student + 1)), list(range(1, teacher + 1))
    if not set(wanted[0]) <= set(table.index) or not set(wanted[1]) <= set(table.columns):
        raise SettingError(
            f"layer_map.run: {choice.run} does not compare {choice.student} (layers 1–{student}) with {choice.teacher} "
            f"(layers 1–{teacher}) by {choice.measure}; it has {', '.join(sorted(set(frame['model_a'])))}."
        )
    similarities = table.loc[wanted[0], wanted[1]].to_numpy(dtype=np.float64)
    if not np.isfinite(similarities).all():
        raise SettingError(f"layer_map.run: {choice.run} has similarities that are no numbers; choose another measure.")
    return similarities


def _vocabularies(
    settings: DistillSettings,
    tokenizer: PreTrainedTokenizerBase,
    translations: dict[str, list[tuple[str, str]]],
) -> dict[str, Vocabulary]:
    """The pieces of each student: those of its languages, of all where embeddings are shared."""
    if not settings.vocabulary.trim:
        return {}
    counts = {
        language: count_pieces(tokenizer, (text for _, text in text_lines(source)))
        for language, source in settings.texts.items()
    }
    for pair, lines in translations.items():  # they are trained on too
        for side, language in enumerate(pair.split("-")):
            counts[language] = counts[language] + count_pieces(tokenizer, (line[side] for line in lines))
    minimum = settings.vocabulary.minimum_count
    if settings.sharing != "none":
        shared = cut_vocabulary(tokenizer, np.sum(list(counts.values()), axis=0), minimum)
        return dict.fromkeys(settings.learners, shared)
    return {
        name: cut_vocabulary(tokenizer, np.sum([counts[language] for language in one.languages], axis=0), minimum)
        for name, one in settings.learners.items()
    }


def _encoders(
    settings: DistillSettings,
    teacher: LanguageModel,
    tokenizer: PreTrainedTokenizerBase,
    vocabularies: dict[str, Vocabulary],
) -> dict[str, Encoder]:
    from residuum.models.loading import from_transformers

    window = from_transformers(teacher.base, tokenizer).window or settings.text.max_length
    special = np.array(tokenizer.all_special_ids)
    encoders = {}
    for language in settings.texts:
        pieces = np.arange(len(tokenizer))
        for name, one in settings.learners.items():
            if language in one.languages and name in vocabularies:
                pieces = np.intersect1d(pieces, vocabularies[name].kept)
        encoders[language] = Encoder(
            tokenizer=tokenizer,
            settings=settings.text,
            language=language,
            pieces=np.setdiff1d(pieces, special),
            soft_positions=settings.soft_positions,
            max_length=min(window, settings.text.max_length),
            causal=teacher.causal,
            seed=settings.seed,
        )
    return encoders


def _students(
    settings: DistillSettings,
    teacher: LanguageModel,
    objective: Objective,
    encoders: dict[str, Encoder],
    vocabularies: dict[str, Vocabulary],
    device: torch.device,
) -> list[Student]:
    start = _initialisation(settings, teacher, encoders, device)
    shape = whole_shape(teacher, settings.shape, settings.initialise)
    models = [
        build_student(
            teacher,
            shape,
            start,
            tie=settings.tie,
            vocabulary=vocabularies.get(name),
            attention=objective.needs_attention,
        )
        for name in settings.learners
    ]
    share_parts(models, settings.sharing if settings.sharing != "all" else "none")
    # Students of one vocabulary hold one and the same table of ids and one slice of the teacher's decoder.
    pieces = {id(one): _pieces_of(one, teacher, device) for one in (None, *vocabularies.values())}
    students = []
    for (name, one), model in zip(settings.learners.items(), models, strict=True):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            projections = Projections(objective, model.hidden_size, teacher.hidden_size)
        new_ids, decoder = pieces[id(vocabularies.get(name))]
        students.append(Student(name, model, tuple(one.languages), projections.to(device), new_ids, decoder))
    return students


def _pieces_of(pieces: Vocabulary | None, teacher: LanguageModel, device: torch.device) -> tuple[Any, Any]:
    """Old id → new id, and the teacher's decoder of the kept pieces."""
    decoder = None if teacher.head is None else teacher.head.projection
    if pieces is None:
        return None, decoder
    new_ids = torch.from_numpy(pieces.new_ids(teacher.module.config.vocab_size)).to(device)
    kept = torch.from_numpy(pieces.kept).to(device)
    return new_ids, None if decoder is None else decoder.pieces(kept)


def _initialisation(
    settings: DistillSettings, teacher: LanguageModel, encoders: dict[str, Encoder], device: torch.device
) -> Initialisation:
    shape = whole_shape(teacher, settings.shape, settings.initialise)
    config = student_config(teacher, shape, tie=settings.tie)
    published = settings.recipe == "published"
    layers = chosen_map(settings.initialise_map, config.num_hidden_layers, teacher.n_layers, published=published)
    if settings.initialise != "random" and len(layers) < config.num_hidden_layers:
        raise SettingError(
            "initialise_map is 'last', which leaves layers without weights; choose uniform, top or bottom."
        )
    neurons = None
    if settings.initialise == "neurons":
        neurons = _chosen_neurons(settings, teacher, encoders, config, device)
    return Initialisation(settings.initialise, layers, head=not published, neurons=neurons, seed=settings.seed)


def _chosen_neurons(
    settings: DistillSettings, teacher: LanguageModel, encoders: dict[str, Encoder], config: Any, device: torch.device
) -> EssentialNeurons:
    inner = settings.shape.intermediate_size or _inner_size(teacher.module.config)
    batches = _plain_batches(settings, encoders, device)
    return essential_neurons(teacher, batches, config.hidden_size, config.num_attention_heads, inner)


def _inner_size(config: Any) -> int:
    return getattr(config, "intermediate_size", None) or config.hidden_dim


def _plain_batches(
    settings: DistillSettings, encoders: dict[str, Encoder], device: torch.device
) -> Iterator[dict[str, Tensor]]:
    for language, source in settings.texts.items():
        texts = (text for _, text in text_lines(source))
        for _ in range(NEURON_BATCHES):
            if not (block := list(islice(texts, settings.text.batch_size))):
                break
            yield {name: tensor.to(device) for name, tensor in encoders[language].plain(block).items()}


def _discriminator(settings: DistillSettings, objective: Objective, students: list[Student]) -> nn.Module | None:
    if not objective.uses("adversarial"):
        return None
    width = students[0].model.hidden_size
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        return nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, len(settings.texts)))

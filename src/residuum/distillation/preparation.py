"""From settings to all that a run needs: teacher, students, batches, losses. Everything is checked on the way."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from residuum.corpus.streams import TextOptions, check_text, text_lines
from residuum.distillation.monitoring import Monitor
from residuum.distillation.networks import LanguageModel, has_known_head, language_model
from residuum.distillation.objective import DistillationObjective, Projections
from residuum.distillation.settings import (
    ATTENTION_TERMS,
    HEAD_TERMS,
    HEADLESS,
    DistillSettings,
    LayerMapChoice,
    MeasuredMap,
    Preset,
)
from residuum.distillation.steps import DistillationStep, Student
from residuum.distillation.students import (
    Initialisation,
    build_student,
    essential_neurons,
    share_parts,
    student_config,
    whole_shape,
)
from residuum.distillation.teaching import LastOutput, Teacher, TeacherGroup
from residuum.distillation.texts import (
    LanguageBatches,
    LineEncoder,
    PairwiseBatches,
    ScheduledBatches,
    batch_sizes,
    check_tokenizer,
    held_out_lines,
    translation_pairs,
)
from residuum.errors import ModelError, SettingError
from residuum.maths.losses import LayerMap, layer_map, measured_map, published_uniform
from residuum.maths.vocabulary_losses import Projection
from residuum.models.loading import (
    check_blocks,
    check_no_fresh_weights,
    clear_loading_errors,
    evaluating,
    from_transformers,
    load_tokenizer,
    resolve_device,
    weights_fingerprint,
)
from residuum.models.onnx_graphs import check_packages
from residuum.models.sentences import check_layout_width, lines_as_read, read_sentence_layout
from residuum.models.vocabularies import Vocabulary, count_pieces, cut_vocabulary
from residuum.storage.results import clear_content_errors, read_run
from residuum.training.optimisation import ParameterGroup, trainable_groups
from residuum.training.processes import check_abilities, process_count

if TYPE_CHECKING:
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
    objective: DistillationObjective
    batches: LanguageBatches | PairwiseBatches | ScheduledBatches
    step: DistillationStep
    monitor: Monitor

    @property
    def modules(self) -> dict[str, nn.Module]:
        """What is trained and saved in checkpoints."""
        modules: dict[str, nn.Module] = {student.name: student.model.module for student in self.students}
        for student in self.students:
            if next(student.projections.parameters(), None) is not None:
                modules[f"projections of {student.name}"] = student.projections
        if self.step.discriminator is not None:
            modules["discriminator"] = self.step.discriminator
        return modules

    @property
    def teachers(self) -> list[LanguageModel]:
        """Every teacher once: the one for all languages and those of single languages."""
        members = [member for group in self.step.groups.values() for member in group.members]
        return list({id(one.model): one.model for one in (self.teacher, *members)}.values())

    def scores(self, teacher: LanguageModel | None = None) -> dict[str, float]:
        """The scores of the students as they are now, or of a teacher on the same data."""
        with evaluating(self.modules.values()):
            return self.monitor.scores(teacher)

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


def prepare(settings: DistillSettings) -> Prepared:
    """Check texts and settings, load the teacher, build the students."""
    device = resolve_device(settings.device)
    if settings.onnx:
        check_packages()
    check_abilities(settings.optimiser.precision, settings.report_to, device)
    for source in settings.texts.values():
        check_text(source, TextOptions(**settings.text.reading))
    held_out = {language: held_out_lines(source, settings.text) for language, source in settings.texts.items()}
    translations = {pair: translation_pairs(files) for pair, files in settings.translations.items()}
    monitored = {
        pair: translation_pairs(files)[: settings.evaluation.lines] for pair, files in settings.evaluation.pairs.items()
    }
    model, tokenizer = load_teacher(settings.teacher, settings.loss)
    model.module.to(device=device)  # pyright: ignore[reportCallIssue]
    objective = make_objective(settings, model)
    vocabularies = _vocabularies(settings, tokenizer, translations)
    encoders = _encoders(settings, model, tokenizer, vocabularies)
    cache = Path(settings.teacher_cache) if settings.teacher_cache else None
    teacher = _teacher(settings, model, objective, cache)
    groups = _teacher_groups(settings, teacher, tokenizer, cache)
    students = _students(settings, model, groups, objective, encoders, vocabularies, device)
    if (
        layout := read_sentence_layout(settings.teacher)
    ) is not None:  # before hours of training, not when students are written
        check_layout_width(layout, students[0].model.hidden_size)
    sizes = batch_sizes(settings.texts, settings.text)
    batches: Any = LanguageBatches(settings.texts, encoders, settings.text, translations, sizes)
    if settings.recipe != "corrected":
        batches = PairwiseBatches(batches, settings.language_student_pairs)
    if settings.schedules:
        moves = settings.optimiser.steps * settings.turns * settings.optimiser.accumulation
        batches = ScheduledBatches(batches, moves * process_count())
    if settings.optimiser.compile:
        taught_by = [teacher, *(member for group in groups.values() for member in group.members)]
        networks = [one.model.base for one in taught_by] + [student.model.base for student in students]
        for network in {id(network): network for network in networks}.values():
            network.compile(dynamic=True)  # one program for batches of every length
    discriminator = None
    if objective.uses("adversarial"):
        width = students[0].model.hidden_size
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            discriminator = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, len(settings.texts)))
    return Prepared(
        settings=settings,
        teacher=teacher,
        tokenizer=tokenizer,
        students=students,
        vocabularies=vocabularies,
        objective=objective,
        batches=batches,
        step=DistillationStep(
            teacher,
            students,
            objective,
            settings.contrast,
            discriminator,
            translated=bool(settings.translations),
            first_token=layout is not None and layout.pooling == ("cls",),
            groups=groups,
            shares={language: size / settings.text.batch_size for language, size in sizes.items()},
        ),
        monitor=Monitor(students, encoders, held_out, monitored, device, groups),
    )


def _teacher(
    settings: DistillSettings, model: LanguageModel, objective: DistillationObjective, cache: Path | None
) -> Teacher:
    last = None if settings.recipe == "corrected" else LastOutput()
    return Teacher(model, objective, weights_fingerprint(model.module), cache, last)


def _teacher_groups(
    settings: DistillSettings, teacher: Teacher, tokenizer: PreTrainedTokenizerBase, cache: Path | None
) -> dict[str, TeacherGroup]:
    """The teachers of languages that have their own, each loaded once; they must be built as the one for all is."""
    loaded = {settings.teacher: teacher}
    whole = teacher.model
    for name in (name for names in settings.teachers.values() for name in names):
        if name in loaded:
            continue
        model, pieces = load_teacher(name, settings.loss)
        shapes = [(type(m.module), m.n_layers, m.hidden_size, m.n_heads) for m in (whole, model)]
        if shapes[0] != shapes[1] or pieces.get_vocab() != tokenizer.get_vocab():
            raise ModelError(
                f"{name} and {settings.teacher} differ in architecture, size or vocabulary; teachers of one run must "
                "be copies of one model that were trained further, or on another seed."
            )
        model.module.to(device=next(whole.module.parameters()).device)  # pyright: ignore[reportCallIssue]
        loaded[name] = _teacher(settings, model, teacher.objective, cache)
    return {language: TeacherGroup([loaded[name] for name in names]) for language, names in settings.teachers.items()}


def load_teacher(name: str, loss: Preset) -> tuple[LanguageModel, PreTrainedTokenizerBase]:
    """The teacher, frozen, in eval mode; without its head where that is missing or unknown and no term needs it."""
    import transformers

    needs_head = bool(set(loss.weights) & set(HEAD_TERMS))
    attention = bool(set(loss.weights) & set(ATTENTION_TERMS))
    with clear_loading_errors(name):
        config = transformers.AutoConfig.from_pretrained(name)
        check_blocks(config, name)
        causal = config.model_type in transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
        masked = config.model_type in transformers.models.auto.modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
        kind: Any = transformers.AutoModelForMaskedLM if masked or not causal else transformers.AutoModelForCausalLM
        options = {"dtype": torch.float32, "use_safetensors": True, "output_loading_info": True}
        if not (needs_head or masked or causal):
            kind = transformers.AutoModel
        module, info = kind.from_pretrained(name, **options)
        if needs_head and info["missing_keys"]:
            raise ModelError(
                f"{name} has no language-model head (its weights lack {sorted(info['missing_keys'])[0]}), which "
                f"mlm and soft need; choose a preset without them: {', '.join(HEADLESS)}."
            )
        if not needs_head and (info["missing_keys"] or not has_known_head(module)):
            module, info = transformers.AutoModel.from_pretrained(name, **options)
    check_no_fresh_weights(module, info, name)
    tokenizer = load_tokenizer(name, trust_remote_code=False)
    module.eval().requires_grad_(False)
    model = language_model(module, attention=attention)
    check_tokenizer(tokenizer, causal=model.causal, embeddings=module.config.vocab_size)
    if model.causal and tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return model, tokenizer


def make_objective(settings: DistillSettings, teacher: LanguageModel) -> DistillationObjective:
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
    layers = chosen_map(choice, n_layers, teacher.n_layers, published=settings.recipe == "published")
    if settings.layer_weights is not None and len(settings.layer_weights) != len(layers):
        raise SettingError(
            f"layer_weights has {len(settings.layer_weights)} numbers, but the layer map compares {len(layers)} layers "
            f"({', '.join(f'{m} with {n}' for m, n in layers.items())}); give one number per compared layer."
        )
    return DistillationObjective(
        weights=settings.loss.weights,
        layers=layers,
        divergence=settings.divergence,
        layer_weights=settings.layer_weights,
        schedules=settings.schedules,
        temperature=settings.loss.temperature,
        recipe=settings.recipe,
        causal=teacher.causal,
    )


def chosen_map(choice: LayerMapChoice | str, student: int, teacher: int, *, published: bool) -> LayerMap:
    """The layer map of a setting: by name, as a list, or measured by a `compare` run."""
    if isinstance(choice, MeasuredMap):
        return _measured(choice, student, teacher)
    if published and choice == "uniform":
        return published_uniform(student, teacher)
    return layer_map(choice, student, teacher)


def _measured(choice: MeasuredMap, student: int, teacher: int) -> LayerMap:
    """The layer map from the measured similarity of every student layer with every teacher layer."""
    run = read_run(choice.run)
    frame = run.tables.get("similarity")
    if frame is None:
        raise SettingError(f"layer_map.run: {choice.run} is no run of `compare`.")
    with clear_content_errors(run.command, run.folder):
        rows = frame[
            (frame["measure"] == choice.measure)
            & (frame["model_a"] == choice.student)
            & (frame["model_b"] == choice.teacher)
        ]
        table = rows.pivot_table(index="layer_a", columns="layer_b", values="value")
        own, other = list(range(1, student + 1)), list(range(1, teacher + 1))
        if not set(own) <= set(table.index) or not set(other) <= set(table.columns):
            raise SettingError(
                f"layer_map.run: {choice.run} does not compare {choice.student} (layers 1–{student}) with "
                f"{choice.teacher} (layers 1–{teacher}) by {choice.measure}; it has "
                f"{', '.join(sorted(set(frame['model_a'])))}."
            )
        similarities = table.loc[own, other].to_numpy(dtype=np.float64)
        if not np.isfinite(similarities).all():
            raise SettingError(
                f"layer_map.run: {choice.run} has similarities that are not finite; choose another measure."
            )
        return measured_map(similarities)


def _vocabularies(
    settings: DistillSettings,
    tokenizer: PreTrainedTokenizerBase,
    translations: dict[str, list[tuple[str, str]]],
) -> dict[str, Vocabulary]:
    """The pieces of each student: those of its languages, of all where embeddings are shared."""
    if not settings.vocabulary.trim:
        return {}
    options, layout = TextOptions(**settings.text.reading), read_sentence_layout(settings.teacher)
    prompts = [] if layout is None else layout.prompt_texts
    counts = {
        language: count_pieces(tokenizer, lines_as_read((text for _, text in text_lines(source, options)), layout))
        for language, source in settings.texts.items()
    }
    for pair, lines in translations.items():  # they are trained on too
        for side, language in enumerate(pair.split("-")):
            counts[language] = counts[language] + count_pieces(tokenizer, (line[side] for line in lines))
    minimum = settings.vocabulary.minimum_count
    if settings.sharing != "none":
        shared = cut_vocabulary(tokenizer, np.sum(list(counts.values()), axis=0), minimum, prompts)
        return dict.fromkeys(settings.learners, shared)
    return {
        name: cut_vocabulary(tokenizer, np.sum([counts[language] for language in languages], axis=0), minimum, prompts)
        for name, languages in settings.learners.items()
    }


def _encoders(
    settings: DistillSettings,
    teacher: LanguageModel,
    tokenizer: PreTrainedTokenizerBase,
    vocabularies: dict[str, Vocabulary],
) -> dict[str, LineEncoder]:
    window = from_transformers(teacher.base, tokenizer).window or settings.text.max_length
    special = np.array(tokenizer.all_special_ids)
    encoders = {}
    for language in settings.texts:
        pieces = np.arange(len(tokenizer))
        for name, languages in settings.learners.items():
            if language in languages and name in vocabularies:
                pieces = np.intersect1d(pieces, vocabularies[name].kept)
        encoders[language] = LineEncoder(
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
    groups: dict[str, TeacherGroup],
    objective: DistillationObjective,
    encoders: dict[str, LineEncoder],
    vocabularies: dict[str, Vocabulary],
    device: torch.device,
) -> list[Student]:
    """The students; one whose first language has a teacher of its own starts from that (the first of several)."""
    start = _initialisation(settings, teacher, encoders, device)
    shape = whole_shape(teacher, settings.shape, settings.initialise)
    models = [
        build_student(
            groups[languages[0]].members[0].model if languages[0] in groups else teacher,
            shape,
            start,
            tie=settings.tie,
            vocabulary=vocabularies.get(name),
            attention=objective.needs_attention,
        )
        for name, languages in settings.learners.items()
    ]
    if settings.optimiser.gradient_checkpointing:
        for model in models:
            model.module.gradient_checkpointing_enable({"use_reentrant": False})
    share_parts(models, settings.sharing if settings.sharing != "all" else "none")
    # Students of one vocabulary hold one and the same table of ids (old → new) and one slice of the teacher's decoder.
    decoder = None if teacher.head is None else teacher.head.projection
    whole = {language: projection for language, group in groups.items() if (projection := group.projection())}
    pieces: dict[int, tuple[Any, Any, dict[str, Projection]]] = {id(None): (None, decoder, whole)}
    for cut in {id(cut): cut for cut in vocabularies.values()}.values():
        new_ids = torch.from_numpy(cut.new_ids(teacher.module.config.vocab_size)).to(device)
        kept = torch.from_numpy(cut.kept).to(device)
        sliced = {language: projection.pieces(kept) for language, projection in whole.items()}
        pieces[id(cut)] = (new_ids, None if decoder is None else decoder.pieces(kept), sliced)
    students = []
    for (name, languages), model in zip(settings.learners.items(), models, strict=True):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            projections = Projections(objective, model.hidden_size, teacher.hidden_size)
        new_ids, of_teacher, of_languages = pieces[id(vocabularies.get(name))]
        students.append(Student(name, model, languages, projections.to(device), new_ids, of_teacher, of_languages))
    return students


def _initialisation(
    settings: DistillSettings, teacher: LanguageModel, encoders: dict[str, LineEncoder], device: torch.device
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
        whole = teacher.module.config
        inner = settings.shape.intermediate_size or getattr(whole, "intermediate_size", None) or whole.hidden_dim
        reading = TextOptions(**settings.text.reading)
        texts = {name: (text for _, text in text_lines(source, reading)) for name, source in settings.texts.items()}
        blocks = (
            (encoders[language], block)
            for language, lines in texts.items()
            for _ in range(NEURON_BATCHES)
            if (block := list(islice(lines, settings.text.batch_size)))
        )
        batches = ({name: t.to(device) for name, t in encode.plain(block).items()} for encode, block in blocks)
        neurons = essential_neurons(teacher, batches, config.hidden_size, config.num_attention_heads, inner)
    return Initialisation(settings.initialise, layers, head=not published, neurons=neurons, seed=settings.seed)

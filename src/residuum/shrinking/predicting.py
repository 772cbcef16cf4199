"""`predict`: a network and a classifier that reads a few of its neurons, here and as other programs run them."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from residuum.activations.extraction import Extraction, Room
from residuum.activations.settings import ReadingSettings
from residuum.corpus import Corpus
from residuum.corpus.text_files import MAX_LINE_BYTES
from residuum.errors import CorpusError, ModelError, SettingError, StoreError
from residuum.models.alignment import Aligner
from residuum.models.loading import Batch, Model, Reading, check_weights, first_layers, load_model, probe_batch
from residuum.models.onnx_graphs import NAMES, write_graph
from residuum.settings import command
from residuum.shrinking.classifier import Classifier, Unit, read_classifier
from residuum.shrinking.settings import PredictSettings

BATCH = 32
BATCH_TOKENS = 8192  # a batch with longer sentences is read in parts
NO_LABEL = "_"
SMALL = 1e-4
"""The scale at which tanh passes its input on: tanh(SMALL · x) = SMALL · x to within 1e-5 of it, for |x| up to 50."""
LARGE = 100.0
"""What is added before a ReLU, so that it passes everything on."""

Text = str | Sequence[str]
"""A text whose words are separated by spaces, or its words; of a task on pairs: the two segments."""


@command(PredictSettings)
def predict(settings: PredictSettings) -> Iterator[Any]:
    """Label texts, as they come, with what `transfer` wrote to `folder`: one label per text, or one list per text.

    Texts are read `batch_size` at a time, so a stream of any length is answered while it runs. Without texts, those
    of standard input are answered as `residuum predict` prints them.
    """
    check_weights([settings.folder], settings.max_memory)
    predictor = load_predictor(settings.folder, device=settings.device)
    if settings.texts is None:
        yield from label_lines(predictor, text_lines(sys.stdin.buffer), batch_size=settings.batch_size)
        return
    stream = iter(settings.texts)
    while batch := list(islice(stream, settings.batch_size)):
        yield from predictor.predict(batch, batch_size=settings.batch_size)


def load_predictor(folder: str | Path, *, device: str = "auto") -> Predictor:
    """Read a folder that `transfer` wrote; nothing else is needed, not even the model that it came from."""
    folder = Path(folder)
    classifier, unit = read_classifier(folder)
    model = load_model(folder, device=device)
    if classifier.top_layer > model.n_layers or classifier.indices.max() >= min(model.widths):
        raise StoreError(f"The classifier and the model in {folder} do not belong together; copy the folder again.")
    return Predictor(first_layers(model, classifier.top_layer), classifier, unit)


@dataclass(frozen=True, eq=False)
class Predictor:
    """A network, the classifier on its neurons, and what it labels."""

    model: Model
    classifier: Classifier
    unit: Unit

    def predict(self, texts: Iterable[Text], *, batch_size: int = BATCH) -> list[Any]:
        """The label of each text (a number in a regression), or of a word task a list with the label of each word.

        A word without any sub-word of the tokenizer has the label None.
        """
        return self.predict_corpus(corpus_of(texts, unit=self.unit.unit, pairs=self.unit.pairs), batch_size=batch_size)

    def predict_corpus(self, corpus: Corpus, *, batch_size: int = BATCH) -> list[Any]:
        """The same for the sentences of a corpus, which are read longest first, `batch_size` at a time."""
        return self._answers(corpus, batch_size, lambda x: self.classifier.decide(x).tolist())

    def scores(self, texts: Iterable[Text], *, batch_size: int = BATCH) -> list[Any]:
        """The scores W x + b of each text, or of a word task a list with those of each word."""
        corpus = corpus_of(texts, unit=self.unit.unit, pairs=self.unit.pairs)
        return self._answers(corpus, batch_size, lambda x: list(self.classifier.scores(x)))

    def _answers(self, corpus: Corpus, batch_size: int, answer: Any) -> list[Any]:
        """What `answer` gives for the chosen neurons of each sentence, or of each word of it."""
        order = sorted(range(len(corpus)), key=lambda i: -len(corpus.sentences[i]))
        bare = replace(corpus, labels={}, sentence_labels={}, choices=None).select(order)
        settings = ReadingSettings(
            pooling=self.unit.pooling, unit=self.unit.unit, position=self.unit.position, batch_tokens=BATCH_TOKENS
        )
        extraction = Extraction(self._reader, bare, list(self.classifier.by_layer()), settings)
        answers: list[Any] = [None] * len(order)
        room = Room()
        for first in range(0, len(order), batch_size):
            chosen = order[first : first + batch_size]
            alignments = extraction.align(self._aligner, first, first + len(chosen))
            buffers = extraction.buffers(alignments, room)
            extraction.fill(alignments, buffers)
            rows = answer(np.concatenate(buffers.hidden, axis=1))
            for i, place in enumerate(chosen):
                if self.unit.unit == "sentence":
                    answers[place] = rows[i]
                else:
                    words: list[Any] = [None] * alignments[i].n_words
                    in_sentence = rows[buffers.first_row[i] : buffers.first_row[i + 1]]
                    for word, label in zip(alignments[i].kept.tolist(), in_sentence, strict=True):
                        words[word] = label
                    answers[place] = words
        return answers

    @cached_property
    def _aligner(self) -> Aligner:
        return Aligner(self.model.tokenizer, self.model.window)

    @cached_property
    def _reader(self) -> Model:
        """The network as one whose layers have the chosen neurons only."""
        chosen = self.classifier.by_layer()
        widths = tuple(len(chosen.get(layer, ())) for layer in range(len(self.model.widths)))
        read = self.model.reader
        columns = {  # a layer that is chosen whole is not copied
            layer: None if len(indices) == self.model.widths[layer] else torch.from_numpy(indices)
            for layer, indices in chosen.items()
        }

        def read_chosen(module: nn.Module, batch: Batch, layers: Sequence[int], attention: bool) -> Reading:
            whole = read(module, batch, layers, attention)
            hidden = [
                states if (indices := columns[layer]) is None else states.index_select(-1, indices.to(states.device))
                for layer, states in zip(layers, whole.hidden, strict=True)
            ]
            return Reading(hidden, whole.attention)

        return replace(self.model, widths=widths, reader=read_chosen)

    def __getstate__(self) -> dict[str, Any]:
        return {"model": self.model, "classifier": self.classifier, "unit": self.unit}  # caches hold closures


def probabilities(scores: Float[np.ndarray, "row class"]) -> Float[np.ndarray, "row class"]:
    """softmax(W x + b), row by row."""
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def corpus_of(texts: Iterable[Text], *, unit: str, pairs: bool = False, name: str = "texts") -> Corpus:
    """The corpus of some texts. Words are separated by white space, unless they come as a list."""
    if isinstance(texts, str):
        raise SettingError("Found one text; expected a list of texts.")
    texts_given = list(texts)
    if pairs:
        segments = [_segments(text, number) for number, text in enumerate(texts_given)]
        return Corpus(name, [first for first, _ in segments], pairs=[second for _, second in segments])
    sentences = [_words(text, number) for number, text in enumerate(texts_given)]
    empty = next((number for number, words in enumerate(sentences) if not words), None)
    if unit == "sentence" and empty is not None:
        raise CorpusError(f"Text {empty} is empty; expected at least one word.")
    return Corpus(name, sentences)


def _words(text: Text, number: int) -> list[str]:
    if isinstance(text, str):
        return text.split()
    if isinstance(text, bytes) or not isinstance(text, Iterable):
        raise CorpusError(f"Text {number} is {str(text)[:60]!r}; expected text, or a list of words.")
    words = list(text)
    if wrong := [word for word in words if not isinstance(word, str) or not word or word.isspace()]:
        raise CorpusError(f"Text {number} has the word {wrong[0]!r}; expected words that are not empty.")
    return words


def _segments(text: Text, number: int) -> tuple[list[str], list[str]]:
    parts = [text] if isinstance(text, str) or not isinstance(text, Iterable) else list(text)
    if len(parts) != 2 or not all(isinstance(part, str) and part.split() for part in parts):
        raise CorpusError(f"Text {number} is {str(text)[:60]!r}; expected two segments: the task is about pairs.")
    return parts[0].split(), parts[1].split()


def label_lines(predictor: Predictor, lines: Iterable[str], *, batch_size: int = BATCH) -> Iterator[str]:
    """What `residuum predict` prints: one answer per line, `batch_size` lines at a time.

    Words: one line `word<tab>tag` per word and an empty line after the sentence, as in column files. Sentences: the
    label or number. An empty line is answered by an empty one.
    """
    numbered = enumerate((line.rstrip("\r\n") for line in lines), 1)
    while batch := list(islice(numbered, batch_size)):
        texts = [_text_of_line(line, number, predictor.unit) for number, line in batch if line.strip()]
        answers = iter(predictor.predict(texts, batch_size=batch_size))
        for _, line in batch:
            answer = next(answers) if line.strip() else ""
            if isinstance(answer, list):
                tags = [NO_LABEL if tag is None else tag for tag in answer]
                answer = "".join(f"{word}\t{tag}\n" for word, tag in zip(line.split(), tags, strict=True))
            yield answer if isinstance(answer, str) else f"{answer:.4f}"


def _text_of_line(line: str, number: int, unit: Unit) -> str | tuple[str, ...]:
    if not unit.pairs:
        return line
    segments = tuple(line.split("\t"))
    if len(segments) != 2 or not all(segment.strip() for segment in segments):
        raise CorpusError(
            f"Line {number} has {len(segments)} segments; expected two with a tab between: the task is about pairs."
        )
    return segments


def text_lines(stream: BinaryIO) -> Iterator[str]:
    """The lines of a stream of bytes as they come, without line ends and byte order mark: UTF-8, and none too long."""
    number = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            raise CorpusError(f"Line {number} is longer than {MAX_LINE_BYTES:,} bytes; expected one text per line.")
        if b"\0" in line:
            raise CorpusError(f"Line {number} is not text: byte {line.index(0) + 1} is zero; expected UTF-8 text.")
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            raise CorpusError(
                f"Line {number} is not UTF-8: byte 0x{line[error.start]:02x} at position {error.start + 1} of it "
                f"({error.reason}); convert the text to UTF-8 first, for instance with iconv."
            ) from error
        yield (text.removeprefix("\ufeff") if number == 1 else text).removesuffix("\n").removesuffix("\r")


@torch.inference_mode()
def with_head(network: Any, classifier: Classifier, unit: Unit) -> Any:
    """The network as a model of transformers whose own head gives W x + b of its last hidden state.

    Heads with a hidden layer (a pooler with tanh, a dense layer with ReLU) are set so that it passes its input on.
    Whether the head gives the same scores is checked; what has another kind of head is refused.
    """
    from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification

    n_rows, labels = len(classifier.bias), classifier.labels
    config = copy.deepcopy(network.config)
    config.num_labels = n_rows
    if labels:
        config.id2label, config.label2id = dict(enumerate(labels)), {label: i for i, label in enumerate(labels)}
    config.problem_type = "single_label_classification" if labels else "regression"
    auto = AutoModelForTokenClassification if unit.unit == "word" else AutoModelForSequenceClassification
    try:
        with torch.random.fork_rng(devices=[]):
            model: Any = auto.from_config(config).eval().to(network.device)
    except ValueError as error:
        raise ModelError(f"transformers has no such head for {type(network).__name__} ({error}).") from error
    model.base_model.load_state_dict(network.state_dict(), strict=False)
    weight = torch.zeros(n_rows, config.hidden_size)
    weight[:, torch.from_numpy(classifier.indices)] = torch.from_numpy(classifier.weight)
    _set_head(model, weight, torch.from_numpy(classifier.bias))
    batch = probe_batch(network)
    states = network(**batch).last_hidden_state.cpu()
    expected = (states if unit.unit == "word" else states[:, 0]) @ weight.T + torch.from_numpy(classifier.bias)
    if not torch.allclose(model(**batch).logits.cpu(), expected, rtol=1e-3, atol=1e-3):
        raise ModelError(
            f"{type(model).__name__} cannot hold the classifier: its head is not linear. Use --save-as residuum."
        )
    return model


def _set_head(model: Any, weight: Tensor, bias: Tensor) -> None:
    """Write W and b into the head; layers before its last one pass their input on."""
    last: Any = getattr(model, "classifier", None) or getattr(model, "score", None)
    hidden, pooler, shift = None, getattr(model.base_model, "pooler", None), 0.0
    if hasattr(last, "out_proj"):
        last, hidden = last.out_proj, getattr(last, "dense", None)
    elif hasattr(model, "pre_classifier"):
        hidden, shift = model.pre_classifier, LARGE
    elif pooler is not None and type(model).__name__.endswith("ForSequenceClassification"):
        hidden = pooler.dense
    if not isinstance(last, nn.Linear) or last.bias is None:
        raise ModelError(f"The head of {type(model).__name__} is not a linear map with a bias; use --save-as residuum.")
    scale = 1.0 if hidden is None or shift else SMALL
    if hidden is not None:
        hidden.weight.copy_(scale * torch.eye(weight.shape[1]))
        hidden.bias.fill_(shift)
    last.weight.copy_(weight / scale)
    last.bias.copy_(bias - shift * weight.sum(dim=1))


def write_onnx(predictor: Predictor, folder: Path) -> float:
    """Write `model.onnx` and return its largest difference from the network in torch, which is at most 1e-4.

    Its inputs are what the tokenizer gives (`token_type_ids` too where that has them, so pairs are read as pairs). It
    gives batch × token × class. The scores of a word or sentence are those of the token that stands for it; the
    scores of a mean over tokens are the mean of their scores. Of words that are the largest values of their
    sub-words, which no scores of tokens can tell, `word_ids` are one input more (the word in which a token has
    characters, −1 for none), and the second axis is that of words.
    """
    model = predictor.model
    of_words = predictor.unit.unit == "word" and predictor.unit.pooling == "max"
    graph = _WordScores(predictor) if of_words else _TokenScores(predictor)
    return write_graph(graph, model.module, model.tokenizer, folder, "scores", graph.names)


class _TokenScores(nn.Module):
    """W x + b of every token, x being the chosen neurons."""

    def __init__(self, predictor: Predictor) -> None:
        super().__init__()
        self.network = predictor.model.module
        self.chosen = predictor.classifier.by_layer()
        self.linear = nn.Linear(predictor.classifier.n_neurons, len(predictor.classifier.bias))
        self.linear.weight = nn.Parameter(torch.from_numpy(predictor.classifier.weight))
        self.linear.bias = nn.Parameter(torch.from_numpy(predictor.classifier.bias))
        self.reader = predictor.model.reader
        typed = "token_type_ids" in predictor.model.tokenizer.model_input_names
        self.names: tuple[str, ...] = (*NAMES, "token_type_ids") if typed else NAMES

    def forward(self, *inputs: Tensor) -> Tensor:
        """Batch × token × class."""
        return self.linear(self.neurons(*inputs))

    def neurons(self, *inputs: Tensor) -> Tensor:
        """Batch × token × chosen neuron."""
        batch = dict(zip(self.names, inputs, strict=False))
        hidden = self.reader(self.network, batch, list(self.chosen), False).hidden
        parts = [
            states.index_select(-1, torch.from_numpy(indices))
            for states, indices in zip(hidden, self.chosen.values(), strict=True)
        ]
        return torch.cat(parts, dim=-1)


class _WordScores(_TokenScores):
    """W x + b of every word, x being the largest value of each chosen neuron over the word's tokens."""

    def __init__(self, predictor: Predictor) -> None:
        super().__init__(predictor)
        self.names = (*self.names, "word_ids")

    def forward(self, *inputs: Tensor) -> Tensor:
        """Batch × word × class; as many places as tokens, the bias alone where there is no word."""
        *known, words = inputs
        states = self.neurons(*known)
        # A text with tokens of no word has fewer words than tokens: its last place is free to take those tokens.
        places = torch.where(words < 0, words.shape[1] - 1, words)[..., None].expand_as(states)
        lowest = torch.full_like(states, torch.finfo(states.dtype).min)
        largest: Any = _ScatterMax.apply(lowest, places, states)
        return self.linear(torch.where(largest > lowest, largest, torch.zeros_like(states)))


class _ScatterMax(torch.autograd.Function):
    """`scatter_reduce` with the largest value as one node; the exporter's own has shapes that ONNX Runtime warns of."""

    @staticmethod
    def forward(ctx: Any, base: Tensor, places: Tensor, states: Tensor) -> Tensor:
        """`base` with the largest of itself and of the states that go to each place."""
        return base.scatter_reduce(1, places, states, "amax")

    @staticmethod
    def symbolic(g: Any, base: Any, places: Any, states: Any) -> Any:
        """The same in ONNX."""
        return g.op("ScatterElements", base, places, states, axis_i=1, reduction_s="max").setType(base.type())

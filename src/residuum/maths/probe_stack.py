"""Many probes, one Adam step: the weights of all probes that see the same batch lie in one buffer.

Layout. Row = one class of one probe. Rows are sorted by number of classes, then by feature view, so that

- the probes of one view are one matrix (row × neuron): one product gives their logits, one their gradients;
- the probes with equally many classes are one array (probe × class × word): one softmax serves them all;
- all weights and biases are one flat vector: one fused Adam kernel serves them all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.optim.adam import adam

Columns = slice | Int[np.ndarray, " _"]


@dataclass(frozen=True, eq=False)
class StackedProbe:
    """What a stack must know of one probe: `view` names its columns, `n_classes` is 0 for regression."""

    target: str
    view: int
    n_classes: int
    l1: float
    l2: float

    @property
    def n_rows(self) -> int:
        """Rows of its weight: one per class, one for a regression."""
        return max(self.n_classes, 1)


@dataclass(frozen=True, eq=False)
class _Segment:
    """Neighbouring probes of one view and one number of classes: one weight matrix."""

    view: int
    rows: slice
    weight: Float[Tensor, "row neuron"]
    gradient: Float[Tensor, "row neuron"]
    l1: Float[Tensor, "row 1"]
    l2: Float[Tensor, "row 1"]
    n_probes: int


@dataclass(frozen=True, eq=False)
class _Family:
    """Neighbouring probes with equally many classes: one softmax."""

    n_classes: int
    rows: slice
    targets: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class _Room:
    """Where logits of a batch become errors: all rows, and the same as segments and families see them."""

    whole: Float[Tensor, "row word"]
    of_segments: list[Tensor]
    of_families: list[Tensor]


@dataclass(frozen=True, eq=False)
class _AdamState:
    """Parameters that one kernel steps: with their gradients, Adam's two moments and its count of steps."""

    parameters: Float[Tensor, " parameter"]
    gradients: Float[Tensor, " parameter"]
    first: Float[Tensor, " parameter"]
    second: Float[Tensor, " parameter"]
    steps: Float[Tensor, ""]
    decay: float

    @staticmethod
    def of(parameters: Tensor, gradients: Tensor, decay: float) -> "_AdamState":
        first, second = torch.zeros_like(parameters), torch.zeros_like(parameters)
        return _AdamState(parameters, gradients, first, second, torch.zeros(()), decay)

    def step(self, learning_rate: float) -> None:
        # torch.optim.Adam does the same, but first imports the compiler: two seconds in every short run.
        adam(
            [self.parameters],
            [self.gradients],
            [self.first],
            [self.second],
            max_exp_avg_sqs=[],
            state_steps=[self.steps],
            fused=True,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=learning_rate,
            weight_decay=self.decay,
            eps=1e-8,
            maximize=False,
        )


class ProbeStack:
    """Probes that are trained on the same batches in the same order.

    Loss of each probe: mean over the batch of the cross-entropy (or squared error) + λ1‖θ‖₁ + λ2‖θ‖₂², where
    θ is the weight without the bias; `published` takes λ2‖θ‖₂ instead, as the papers' own code did.
    """

    def __init__(
        self,
        probes: Sequence[StackedProbe],
        views: Sequence[Columns],
        weights: Sequence[Float[np.ndarray, "_ _"]],
        biases: Sequence[Float[np.ndarray, " _"]],
        *,
        learning_rate: float,
        penalty: str,
    ):
        self._views = [view if isinstance(view, slice) else torch.from_numpy(view) for view in views]
        self._penalty, self._learning_rate = penalty, learning_rate
        self._places = sorted(range(len(probes)), key=lambda i: (probes[i].n_classes, probes[i].view))
        ordered = [probes[i] for i in self._places]
        initial = [torch.from_numpy(weights[i]) for i in self._places]
        self._rows = [probe.n_rows for probe in ordered]
        parts = [*initial, *(torch.from_numpy(biases[i]) for i in self._places)]
        self._parameters = torch.cat([part.reshape(-1) for part in parts]).float()
        self._gradients = torch.zeros_like(self._parameters)
        n_rows = sum(self._rows)
        self._weights, self._bias = self._parameters[:-n_rows], self._parameters[-n_rows:]
        self._weight_gradients, self._bias_gradient = self._gradients[:-n_rows], self._gradients[-n_rows:]
        self._segments = self._make_segments(ordered, [len(weight[0]) for weight in initial])
        self._families = _make_families(ordered)
        self._biases = [self._bias[segment.rows, None] for segment in self._segments]
        self._rooms: dict[int, _Room] = {}
        penalties = {(probe.l1, probe.l2) for probe in probes}
        self._shared = penalties.pop() if len(penalties) == 1 and penalty == "squared" else None
        # All parameters are one state or, where weights decay, which biases do not, two.
        decay = 2 * self._shared[1] if self._shared else 0.0
        self._states = [_AdamState.of(self._parameters, self._gradients, 0.0)]
        if decay:
            weights_state = _AdamState.of(self._weights, self._weight_gradients, decay)
            self._states = [weights_state, _AdamState.of(self._bias, self._bias_gradient, 0.0)]

    @torch.no_grad()
    def step(self, x: Float[Tensor, "word neuron"], targets: Mapping[str, Tensor]) -> None:
        """One Adam step of every probe on one batch."""
        views = [x[:, view] if isinstance(view, slice) else x.index_select(1, view) for view in self._views]
        error = self._room(len(x))
        for segment, bias, logits in zip(self._segments, self._biases, error.of_segments, strict=True):
            torch.addmm(bias, segment.weight, views[segment.view].T, out=logits)
        for family, logits in zip(self._families, error.of_families, strict=True):
            _subtract_truth(logits, family, [targets[name] for name in family.targets])
        kept = self._penalise()
        for segment, errors in zip(self._segments, error.of_segments, strict=True):
            segment.gradient.addmm_(errors, views[segment.view], beta=kept, alpha=1 / len(x))
        torch.mean(error.whole, dim=1, out=self._bias_gradient)
        for state in self._states:
            state.step(self._learning_rate)

    def trained(self) -> list[tuple[Float[np.ndarray, "_ _"], Float[np.ndarray, " _"]]]:
        """Weight and bias of each probe, in the order in which the probes were given."""
        parameters = [(np.empty((0, 0), np.float32), np.empty(0, np.float32))] * len(self._places)
        for place, stop, n_rows in zip(self._places, np.cumsum(self._rows).tolist(), self._rows, strict=True):
            rows = slice(stop - n_rows, stop)
            segment = next(s for s in self._segments if s.rows.start <= rows.start < s.rows.stop)
            local = slice(rows.start - segment.rows.start, rows.stop - segment.rows.start)
            parameters[place] = (segment.weight[local].numpy().copy(), self._bias[rows].numpy().copy())
        return parameters

    def _make_segments(self, ordered: list[StackedProbe], widths: list[int]) -> list[_Segment]:
        segments, row, offset = [], 0, 0
        for group in _runs([(probe.n_classes, probe.view) for probe in ordered]):
            probes, width = ordered[group], widths[group.start]
            n_rows = sum(probe.n_rows for probe in probes)
            flat = slice(offset, offset + n_rows * width)
            segments.append(
                _Segment(
                    view=probes[0].view,
                    rows=slice(row, row + n_rows),
                    weight=self._parameters[flat].view(n_rows, width),
                    gradient=self._gradients[flat].view(n_rows, width),
                    l1=_per_row([probe.l1 for probe in probes], probes),
                    l2=_per_row([probe.l2 for probe in probes], probes),
                    n_probes=len(probes),
                )
            )
            row, offset = row + n_rows, flat.stop
        return segments

    def _room(self, n_words: int) -> _Room:
        """The room of a batch, made once for each length: the whole ones', and the last one's."""
        if n_words not in self._rooms:
            whole = torch.empty(len(self._bias), n_words)
            of_segments = [whole[segment.rows] for segment in self._segments]
            self._rooms[n_words] = _Room(whole, of_segments, [whole[family.rows] for family in self._families])
        return self._rooms[n_words]

    def _penalise(self) -> float:
        """Write the penalty's gradient over the last one; gives the factor that it still lacks.

        Where all penalties are the same, λ1 comes in with the product that is added next, and 2 λ2 θ as Adam's
        weight decay: neither then takes a pass over the weights of its own.
        """
        if self._shared is None:
            for segment in self._segments:  # λ1 sign(θ) + 2 λ2 θ, or λ2 θ / ‖θ‖₂
                torch.sign(segment.weight, out=segment.gradient)
                segment.gradient.mul_(segment.l1)
                if self._penalty == "squared":
                    segment.gradient.addcmul_(segment.weight, segment.l2, value=2)
                else:
                    norms = segment.weight.view(segment.n_probes, -1).norm(dim=1).clamp_min(1e-30)
                    per_row = norms.repeat_interleave(len(segment.l2) // segment.n_probes)[:, None]
                    segment.gradient.addcmul_(segment.weight, segment.l2 / per_row)
            return 1.0
        if self._shared[0]:
            torch.sign(self._weights, out=self._weight_gradients)
        return self._shared[0]


def _make_families(ordered: list[StackedProbe]) -> list[_Family]:
    families, row = [], 0
    for group in _runs([probe.n_classes for probe in ordered]):
        probes = ordered[group]
        n_rows = sum(probe.n_rows for probe in probes)
        names = tuple(probe.target for probe in probes)
        families.append(_Family(probes[0].n_classes, slice(row, row + n_rows), names))
        row += n_rows
    return families


def _runs(keys: Sequence[object]) -> list[slice]:
    """Slices of neighbouring equal keys."""
    starts = [i for i, key in enumerate(keys) if i == 0 or key != keys[i - 1]]
    return [slice(a, b) for a, b in zip(starts, [*starts[1:], len(keys)], strict=True)]


def _per_row(values: list[float], probes: list[StackedProbe]) -> Float[Tensor, "row 1"]:
    rows = [value for value, probe in zip(values, probes, strict=True) for _ in range(probe.n_rows)]
    return torch.tensor(rows, dtype=torch.float32)[:, None]


def _subtract_truth(error: Float[Tensor, "row word"], family: _Family, truths: list[Tensor]) -> None:
    """Turn logits into the gradient of the loss by them, in place: softmax − one-hot, or 2(ŷ − y)."""
    truth = torch.stack(truths)
    if family.n_classes == 0:
        error.sub_(truth).mul_(2)
        return
    blocks = error.view(len(truths), family.n_classes, -1)
    torch.softmax(blocks, dim=1, out=blocks)
    blocks.scatter_add_(1, truth[:, None], torch.full((1, 1, 1), -1.0).expand(len(truths), 1, blocks.shape[2]))

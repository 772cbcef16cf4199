"""BERTScore of all pairs at once, against a loop over pairs; and cosine retrieval among 100,000 candidates.

    RESIDUUM_DATA=… RESIDUUM_MODELS=… python benchmarks/retrieval.py

1,000 × 1,000 sentences (Tatoeba German–English), the 12 blocks of gte-small (12 × 384), 2 threads. The peer goes over
pairs as the program bert-score does: states are computed once, then batches of 64 pairs are padded, multiplied and
reduced for all layers together; it does 2,000 pairs and is scaled to a million. Both times leave out the model's own.
Values are compared where the peer pads nothing: a padded one sets a floor of 0 under its maxima.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
from measure import THREADS, data, in_fresh_process, line, peak_memory, report
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from residuum.maths.retrieval import TokenStates

PEER_PAIRS, BATCH = 2000, 64
LAYERS = range(1, 13)
CANDIDATES = 100_000


def main() -> None:
    ours, peer = in_fresh_process(__file__, "ours"), in_fresh_process(__file__, "peer")
    print(
        f"   {peer['pairs']:,.0f} pairs × {len(LAYERS)} layers: loop {peer['seconds']:.0f} s (from {PEER_PAIRS:,} "
        f"pairs), all at once {ours['seconds']:.1f} s; the model itself {ours['encoding']:.1f} s",
        flush=True,
    )
    holds = [
        line("BERTScore: loop over pairs / all at once", peer["seconds"] / ours["seconds"], 20, at_least=True),
        line("largest difference from the loop", peer["difference"] * 1e6, 100, "millionths"),
        line("peak memory of the whole process, model included", ours["peak_mb"] / 1024, 2, "GB"),
    ]
    cosine = in_fresh_process(__file__, "cosine")
    print(f"   {CANDIDATES:,} × {CANDIDATES:,} cosines, both directions: {cosine['seconds']:.0f} s")
    holds.append(line("memory of 100,000 candidates / that of their vectors", cosine["ratio"], 2.5))
    sys.exit(not all(holds))


def measure_ours() -> None:
    """All pairs in all layers together and in each layer alone."""
    from residuum.maths.retrieval import bertscore_ranks

    source, target, encoding = token_states()
    start = time.perf_counter()
    bertscore_ranks(source, target, [[(n, n) for n in LAYERS], *([(n, n)] for n in LAYERS)])
    report(seconds=time.perf_counter() - start, encoding=encoding)


def measure_peer() -> None:
    """The loop over some pairs, scaled to all; and its largest difference from ours where it pads nothing."""
    from residuum.maths.retrieval import bertscore

    source, target, _ = token_states()
    chosen = np.random.default_rng(0).integers(len(source), size=(PEER_PAIRS, 2)).tolist()
    held = [[_sentence(tokens, i) for i in range(len(tokens))] for tokens in (source, target)]
    start = time.perf_counter()
    for first in range(0, len(chosen), BATCH):
        batch = chosen[first : first + BATCH]
        greedy_matching([held[0][i] for i, _ in batch], [held[1][j] for _, j in batch])
    seconds = (time.perf_counter() - start) * len(source) * len(target) / PEER_PAIRS
    scores = {n: bertscore(source, target, (n, n)) for n in (LAYERS[0], LAYERS[-1])}
    differences = [
        abs(float(greedy_matching([held[0][i]], [held[1][j]])[n - LAYERS[0], 0] - scores[n][i, j]))
        for i, j in chosen[:200]
        for n in scores
    ]
    report(seconds=seconds, difference=max(differences), pairs=len(source) * len(target))


def token_states() -> tuple[TokenStates, TokenStates, float]:
    """Both sides of the pairs in the blocks of the model, and the seconds that it took."""
    from residuum.evaluation.encoding import encode, scratch
    from residuum.evaluation.pairs import read_pairs
    from residuum.models.loading import load_model

    torch.set_num_threads(THREADS)
    (pairs,) = read_pairs(data("crosslingual", "tatoeba", "tatoeba.deu-eng"))
    model = load_model(Path(os.environ["RESIDUUM_MODELS"], "gte-small"))
    start = time.perf_counter()
    with scratch(2 * 10**9) as space, torch.inference_mode():
        source, target = (
            encode(model, texts, list(LAYERS), space, tokens=True, special_tokens=True, source="tatoeba").tokens
            for texts in (pairs.source, pairs.target)
        )
    assert source is not None
    assert target is not None
    return source, target, time.perf_counter() - start


def _sentence(tokens: TokenStates, i: int) -> tuple[Tensor, Tensor]:
    """All layers of a sentence (token × layer × neuron) and the weights of its tokens."""
    rows = slice(*tokens.first[i : i + 2].tolist())
    return torch.stack([tokens.states[n][rows] for n in LAYERS], dim=1), torch.from_numpy(tokens.counted[rows]).float()


def greedy_matching(sources: list[tuple[Tensor, Tensor]], targets: list[tuple[Tensor, Tensor]]) -> Tensor:
    """F of a batch of pairs in all layers: pad, normalise, multiply, mask, take maxima, average."""
    (x, wx, mx), (y, wy, my) = (_padded(side) for side in (sources, targets))
    layers_first = [states.permute(2, 0, 1, 3).flatten(0, 1) for states in (x, y)]
    product = torch.bmm(layers_first[0], layers_first[1].transpose(1, 2))
    similarity = product.view(len(LAYERS), len(x), x.shape[1], y.shape[1]) * (mx[:, :, None] * my[:, None, :])
    precision = (similarity.amax(dim=2) * (wy / wy.sum(dim=1, keepdim=True))).sum(dim=2)
    recall = (similarity.amax(dim=3) * (wx / wx.sum(dim=1, keepdim=True))).sum(dim=2)
    return 2 * precision * recall / (precision + recall)


def _padded(side: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor, Tensor]:
    states = pad_sequence([states for states, _ in side], batch_first=True, padding_value=2.0)
    weights = pad_sequence([weights for _, weights in side], batch_first=True)
    lengths = torch.tensor([len(weights) for _, weights in side])
    mask = (torch.arange(states.shape[1]) < lengths[:, None]).float()
    return states / states.norm(dim=-1, keepdim=True), weights, mask


def measure_cosine() -> None:
    from residuum.maths.retrieval import cosine_ranks

    torch.set_num_threads(THREADS)
    generator = torch.Generator().manual_seed(0)
    source = torch.randn(CANDIDATES, 384, generator=generator)
    target = source + 2 * torch.randn(CANDIDATES, 384, generator=generator)
    size = 2 * source.numel() * 4 / 2**20
    with peak_memory() as peak:
        start = time.perf_counter()
        forward, _ = cosine_ranks(source, target)
        elapsed = time.perf_counter() - start
    assert 0.5 < forward.hits.mean() <= 1
    report(seconds=elapsed, ratio=(peak() + size) / size)


if __name__ == "__main__":
    if "RESIDUUM_MODELS" not in os.environ:
        sys.exit("Set RESIDUUM_MODELS to the folder that holds gte-small to run this benchmark.")
    {"ours": measure_ours, "peer": measure_peer, "cosine": measure_cosine}.get(" ".join(sys.argv[1:]), main)()

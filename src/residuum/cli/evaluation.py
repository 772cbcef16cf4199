"""Commands that score models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from residuum.cli.app import evaluate_app
from residuum.cli.arguments import column, gigabytes, named_texts, quiet_libraries
from residuum.cli.estimates import only_estimated
from residuum.cli.options import Device, Estimate, Fresh, Limit, MaxMemory, ModelName, Out, Seed
from residuum.errors import SettingError


@evaluate_app.command("retrieval")
def evaluate_retrieval(
    models_and_pairs: Annotated[
        list[str],
        typer.Argument(
            help="One model for both languages, or one for each; then the pairs of sentences: a folder with files such "
            "as tatoeba.tur-eng.tur and .eng, a table of two columns, or a text file (see --translations).",
            metavar="MODEL [MODEL_TRG] PAIRS",
        ),
    ],
    out: Out,
    score: Annotated[str, typer.Option(help="cosine, bertscore, or both separated by a comma.")] = "cosine,bertscore",
    layers: Annotated[
        str,
        typer.Option(
            help="'all' blocks averaged, 'each' layer alone, or numbers such as 1,3,5-7 (3:6 is layer 3 of the first "
            "model with 6 of the second); several choices are separated by ';'."
        ),
    ] = "all",
    translations: Annotated[
        Path | None, typer.Option(help="The text file of the second language, where PAIRS is one of the first.")
    ] = None,
    only: Annotated[
        str | None, typer.Option(help="Pairs of a folder, such as tur-eng,swh-eng; all by default.")
    ] = None,
    text: Annotated[str, typer.Option(help="A table's column of the first language, by name or number from 0.")] = "0",
    pair: Annotated[str, typer.Option(help="A table's column of the second language.")] = "1",
    special_tokens: Annotated[
        bool, typer.Option(help="Whether [CLS], [SEP] and their like count in the mean that `cosine` compares.")
    ] = True,
    resamples: Annotated[int, typer.Option(help="Bootstrap samples of each interval.", min=2)] = 1000,
    max_memory: Annotated[
        float | None,
        typer.Option(
            help="Gigabytes that may be held: means and token states that find no room beside the models wait in "
            "files, larger models are refused. Without it 2 for states alone.",
            min=0,
        ),
    ] = None,
    seed: Seed = 0,
    device: Device = "auto",
    limit: Limit = None,
    estimate: Estimate = False,
    fresh: Fresh = False,
) -> None:
    """Let every sentence look for its translation among all others, in both directions."""
    from residuum.evaluation import evaluate_retrieval as run
    from residuum.evaluation import read_pairs
    from residuum.evaluation.costs import retrieval_cost

    *models, pairs = models_and_pairs
    if not 1 <= len(models) <= 2:
        raise typer.BadParameter(f"found {len(models)} models and pairs; expected one or two models, then the pairs.")
    quiet_libraries()
    sentences = read_pairs(
        pairs,
        translations,
        only=only.split(",") if only else None,
        text=column(text),
        pair=column(pair),
        limit=limit,
    )
    settings: dict[str, Any] = {
        "target_model": models[1] if len(models) == 2 else None,
        "score": score,
        "layers": layers,
        "special_tokens": special_tokens,
        "max_memory": gigabytes(max_memory),
        "device": device,
    }
    if only_estimated(estimate, None, lambda: retrieval_cost(models[0], sentences, **settings)):
        return
    result = run(models[0], sentences, resamples=resamples, seed=seed, out=out, fresh=fresh, **settings)
    with result.looked_at():
        for row in result.frame.to_dict("records"):
            typer.echo(
                f"{row['query']} → {row['candidates']}  {row['score']:9}  layers {row['layers']:5}  "
                f"accuracy {row['accuracy']:.3f} ({row['low']:.3f} to {row['high']:.3f})  MRR {row['mrr']:.3f}"
            )
        typer.echo(f"{len(result.frame):,} values are in {out}.")


@evaluate_app.command("perplexity")
def evaluate_perplexity(
    model: ModelName,
    texts: Annotated[
        list[str],
        typer.Argument(
            help="Texts, a sentence a line; NAME=FILE gives one a name, such as tr=news.txt.", metavar="TEXT …"
        ),
    ],
    out: Out,
    masking: Annotated[
        Literal["sampled", "each"],
        typer.Option(help="For masked models: hide a share of the tokens at once, or each token alone (slow)."),
    ] = "sampled",
    share: Annotated[float, typer.Option(help="The share of tokens that is hidden.", min=0, max=1)] = 0.15,
    resamples: Annotated[int, typer.Option(help="Bootstrap samples of each interval.", min=2)] = 1000,
    seed: Seed = 0,
    device: Device = "auto",
    limit: Limit = None,
    max_memory: MaxMemory = None,
    estimate: Estimate = False,
    fresh: Fresh = False,
) -> None:
    """Measure how well a language model predicts texts: masked or causal, as the model is."""
    from residuum.evaluation import evaluate_perplexity as run
    from residuum.evaluation.costs import perplexity_cost

    quiet_libraries()
    named = named_texts(texts)
    settings: dict[str, Any] = {"masking": masking, "share": share, "limit": limit, "device": device, "seed": seed}
    if only_estimated(estimate, max_memory, lambda: perplexity_cost(model, named, **settings), [model]):
        return
    result = run(model, named, resamples=resamples, out=out, fresh=fresh, **settings)
    with result.looked_at():
        for row in result.frame.to_dict("records"):
            between = f"({row['low']:.2f} to {row['high']:.2f})"
            typer.echo(f"{row['text']}: perplexity {row['perplexity']:.2f} {between}, {row['tokens']:,} tokens")
        typer.echo(f"{len(result.frame):,} perplexities are in {out}.")


@evaluate_app.command("correlate")
def evaluate_correlate(
    retrievals: Annotated[
        list[str],
        typer.Argument(
            help="Folders that `evaluate retrieval` wrote, one a model: NAME=FOLDER.", metavar="NAME=FOLDER …"
        ),
    ],
    downstream: Annotated[
        list[str],
        typer.Option(
            help="A model's downstream score, once for each: NAME=0.61, or NAME=FOLDER of an `adapt` run with one "
            "strategy or of an `evaluate adapted` run."
        ),
    ],
    out: Out,
    level: Annotated[float, typer.Option(help="Of the intervals.", min=0.5, max=0.999)] = 0.95,
    fresh: Fresh = False,
) -> None:
    """Ask over several models whether better alignment goes with better scores downstream."""
    from residuum.evaluation import correlate_alignment as run

    runs, scores = named_texts(retrievals), named_texts(downstream)
    if not isinstance(runs, dict) or not isinstance(scores, dict):
        raise SettingError("Retrieval runs and downstream scores are matched by name; write all as NAME=FOLDER.")
    values = {name: _number_or_folder(text) for name, text in scores.items()}
    result = run(runs, values, level=level, out=out, fresh=fresh)
    with result.looked_at():
        for row in result.frame.to_dict("records"):
            typer.echo(
                f"{row['direction']}  {row['score']:9}  layers {row['layers']:5}  {row['measure']} {row['value']:+.3f} "
                f"({row['low']:+.3f} to {row['high']:+.3f})"
            )
        typer.echo(f"{len(result.frame):,} correlations over {result.run.summary['models']} models are in {out}.")


def _number_or_folder(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text

"""Batches: masked as BERT's, the same for any number of processes, without held-out lines."""

import gzip
import json
import lzma
from pathlib import Path

import numpy as np
import pytest
import torch

from residuum.corpus.streams import check_text, text_lines
from residuum.distillation.settings import TextSettings
from residuum.distillation.texts import (
    IGNORED,
    LanguageBatches,
    LineEncoder,
    NumberedLine,
    PairwiseBatches,
    ScheduledBatches,
    batch_sizes,
    check_tokenizer,
    held_out_lines,
    translation_pairs,
)
from residuum.errors import CorpusError, ModelError
from teachers import LINES, tokenizer_of


@pytest.fixture
def encoder():
    tokenizer = tokenizer_of("xlm-roberta")

    def make(causal=False, soft_positions="masked", **changes):
        pieces = np.setdiff1d(np.arange(len(tokenizer)), tokenizer.all_special_ids)
        settings = TextSettings(**{"batch_size": 2, "held_out": 0, "shuffle_buffer": 4, **changes})
        return LineEncoder(tokenizer, settings, "en", pieces, soft_positions, 48, causal, seed=3)

    return make


def test_fifteen_percent_are_predicted_most_of_them_masked(encoder):
    encode = encoder()
    lines = [NumberedLine(number, 0, LINES["en"][0]) for number in range(600)]
    batch = encode(lines)
    chosen = batch["labels"] != IGNORED
    ordinary = ~torch.isin(batch["input_ids"], torch.tensor(encode.tokenizer.all_special_ids)) | chosen
    assert float(chosen.sum() / ordinary.sum()) == pytest.approx(0.15, abs=0.02)
    shown = batch["input_ids"][chosen]
    masked, same = (shown == encode.tokenizer.mask_token_id), shown == batch["labels"][chosen]
    assert float(masked.float().mean()) == pytest.approx(0.8, abs=0.03)
    assert float(same.float().mean()) == pytest.approx(0.1, abs=0.03)
    assert chosen.any(dim=1).all()  # every line has something to predict
    assert not (chosen & (batch["attention_mask"] == 0)).any()


def test_masks_depend_on_the_line_and_the_epoch_not_on_the_batch(encoder):
    encode = encoder()
    lines = [NumberedLine(number, 0, text) for number, text in enumerate(LINES["en"] * 2)]
    whole, parts = encode(lines), [encode(lines[:1]), encode(lines[1:])]
    joined = [row[m.bool()].tolist() for b in parts for row, m in zip(b["input_ids"], b["attention_mask"], strict=True)]
    assert [r[m.bool()].tolist() for r, m in zip(whole["input_ids"], whole["attention_mask"], strict=True)] == joined
    again = encode([NumberedLine(line.number, 1, line.text) for line in lines])
    assert not torch.equal(whole["labels"], again["labels"])
    still = encoder(new_masks_each_epoch=False)
    first, second = (still([NumberedLine(line.number, epoch, line.text) for line in lines]) for epoch in (0, 1))
    assert torch.equal(first["labels"], second["labels"])


def test_a_decoder_predicts_the_next_piece_and_masks_nothing(encoder):
    batch = encoder(causal=True)([NumberedLine(0, 0, LINES["en"][0])])
    assert torch.equal(batch["labels"][0, :-1], batch["input_ids"][0, 1:])
    assert int(batch["labels"][0, -1]) == IGNORED


def test_soft_targets_can_be_compared_at_a_share_of_the_positions(encoder):
    lines = [NumberedLine(number, 0, LINES["en"][0]) for number in range(200)]
    assert float(encoder(soft_positions=0.3)(lines)["soft"].float().mean()) == pytest.approx(0.3, abs=0.03)
    assert encoder(soft_positions="all")(lines)["soft"].all()


def test_two_small_batches_hold_what_one_large_batch_holds(encoder, texts):
    small = LanguageBatches({"en": texts["en"]}, {"en": encoder(batch_size=2)}, TextSettings(batch_size=2, held_out=0))
    large = LanguageBatches({"en": texts["en"]}, {"en": encoder(batch_size=4)}, TextSettings(batch_size=4, held_out=0))
    whole = large(3)["en"]["labels"]
    rows = [row for position in (6, 7) for row in small(position)["en"]["labels"]]
    for row, expected in zip(rows, whole, strict=True):
        assert torch.equal(row[row != IGNORED], expected[expected != IGNORED])
    assert torch.equal(large(3)["en"]["labels"], whole)  # and it can be asked for again


def test_pairs_of_one_language_get_one_batch(encoder, texts):
    settings = TextSettings(batch_size=2, held_out=0)
    languages = {"en": texts["en"], "tr": texts["tr"]}
    batches = LanguageBatches(languages, dict.fromkeys(languages, encoder()), settings)
    pairs = PairwiseBatches(batches, [("en", "a"), ("en", "b"), ("tr", "b")])
    keys = [next(iter(pairs(position))) for position in range(4)]
    assert keys == ["en/a", "en/b", "tr/b", "en/a"]
    assert torch.equal(pairs(0)["en/a"]["input_ids"], pairs(1)["en/b"]["input_ids"])


def test_processes_take_the_same_pair_and_other_lines(encoder, texts, monkeypatch):
    languages = {"en": texts["en"], "tr": texts["tr"]}
    order = [("en", "a"), ("en", "b"), ("tr", "b")]

    def read(size, positions):
        settings = TextSettings(batch_size=size, held_out=0)
        batches = LanguageBatches(languages, dict.fromkeys(languages, encoder()), settings)
        pairs = PairwiseBatches(batches, order)
        return [pairs(position) for position in positions]

    whole = read(4, range(6))
    monkeypatch.setenv("WORLD_SIZE", "2")
    first, second = read(2, range(0, 12, 2)), read(2, range(1, 12, 2))
    for one, a, b in zip(whole, first, second, strict=True):
        (key,) = one
        assert list(a) == list(b) == [key]
        lines = [rows_of(batch[key]) for batch in (one, a, b)]
        assert lines[0] == lines[1] + lines[2]


def test_a_column_of_a_table_is_distilled_and_equal_lines_are_read_once(encoder, tmp_path):
    rows = ["held out .", "one .", "two .", "one .", "held out .", "three ."]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"body": row, "id": n}) + "\n" for n, row in enumerate(rows)), encoding="utf-8")
    for deduplicate, expected in ((False, rows[1:]), (True, ["one .", "two .", "three ."])):
        settings = TextSettings(batch_size=1, held_out=1, column="body", deduplicate=deduplicate)
        assert held_out_lines(str(path), settings) == ["held out ."]
        batches = LanguageBatches({"en": str(path)}, {"en": encoder()}, settings)
        stream = batches.streams["en"].stream
        assert sorted(line.text for line in stream(0)) == sorted(expected)
        assert sorted(line.number for line in stream(1))[-1] == 5


def rows_of(batch):
    return [ids[mask.bool()].tolist() for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True)]


def test_a_column_of_json_lines_gives_the_batches_of_its_text(encoder, texts, tmp_path):
    lines = Path(texts["en"]).read_text(encoding="utf-8").splitlines()
    table = tmp_path / "en.jsonl"
    table.write_text("".join(json.dumps({"id": 1, "body": line}) + "\n" for line in lines), encoding="utf-8")
    by_column = TextSettings(batch_size=2, held_out=1, column="body")
    plain = LanguageBatches({"en": texts["en"]}, {"en": encoder(batch_size=2)}, TextSettings(batch_size=2, held_out=1))
    column = LanguageBatches({"en": str(table)}, {"en": encoder(batch_size=2)}, by_column)
    for position in range(4):
        assert torch.equal(plain(position)["en"]["labels"], column(position)["en"]["labels"])
    assert held_out_lines(str(table), by_column) == lines[:1]


def test_a_line_beyond_the_maximum_length_is_read_in_windows_that_hold_every_token(encoder, tmp_path):
    text = " ".join(LINES["en"] * 6)
    encode = encoder()
    whole = encode.tokenizer(text)["input_ids"]
    first, *body, last = whole
    windows = encode.windows([NumberedLine(0, 0, text)])
    assert [window.window for window in windows] == list(range(len(windows)))
    assert [piece for window in windows for piece in window.ids[1:-1]] == body
    sizes = [len(window.ids) for window in windows]
    assert max(sizes) <= encode.max_length < len(whole)
    assert max(sizes) - min(sizes) <= len(windows)
    assert {(window.ids[0], window.ids[-1]) for window in windows} == {(first, last)}
    labels = encode(windows)["labels"]
    assert not torch.equal(labels[0] != IGNORED, labels[1] != IGNORED)  # masks of their own
    short = NumberedLine(0, 0, LINES["en"][0])
    (same,) = encode.windows([short])
    assert torch.equal(encode([same])["labels"], encode([short])["labels"])
    both = encode.windows([short, NumberedLine(0, 0, text), short])
    assert [line.number for line in both] == [0] * (len(windows) + 2)
    assert both[1:-1] == windows
    (tmp_path / "long.txt").write_text(f"{text}\n{LINES['en'][0]}\n")
    for long_lines, expected in (("windows", len(windows) + 1), ("truncate", 2)):
        settings = TextSettings(batch_size=1, held_out=0, long_lines=long_lines)
        source = {"en": str(tmp_path / "long.txt")}
        batches = LanguageBatches(source, {"en": encoder(long_lines=long_lines)}, settings)
        assert len(list(batches.streams["en"].stream(0))) == expected


def test_languages_share_a_step_by_the_sizes_of_their_texts(tmp_path):
    texts = {}
    for language, lines in (("en", 800), ("sw", 50)):
        (tmp_path / language).write_text("a b c\n" * lines)
        texts[language] = str(tmp_path / language)
    assert batch_sizes(texts, TextSettings(batch_size=17)) == {"en": 17, "sw": 17}
    assert batch_sizes(texts, TextSettings(batch_size=17, sampling=1)) == {"en": 32, "sw": 2}
    assert batch_sizes(texts, TextSettings(batch_size=50, sampling=0.5)) == {"en": 80, "sw": 20}
    with pytest.raises(CorpusError, match=r"text.sampling counts the lines .* streamed from the hub"):
        batch_sizes({"en": "owner/name"}, TextSettings(sampling=0.3))


def test_scheduled_batches_say_how_much_of_the_training_is_done(encoder, texts):
    plain = LanguageBatches({"en": texts["en"]}, {"en": encoder()}, TextSettings(batch_size=2, held_out=0))
    batches = ScheduledBatches(plain, 5)
    assert [batches(position)["progress"] for position in (0, 2, 4)] == [0, 0.5, 1]
    assert torch.equal(batches(1)["en"]["input_ids"], plain(1)["en"]["input_ids"])


def test_text_is_read_packed_or_plain_and_blank_lines_are_dropped(tmp_path):
    body = b"one\n\n  \ntwo \n"
    (tmp_path / "a.txt").write_bytes(body)
    (tmp_path / "b.gz").write_bytes(gzip.compress(body))
    (tmp_path / "c.xz").write_bytes(lzma.compress(body))
    for name in ("a.txt", "b.gz", "c.xz"):
        assert list(text_lines(tmp_path / name)) == [(0, "one"), (3, "two")]
    assert [text for _, text in text_lines(tmp_path)] == ["one", "two"] * 3


def test_held_out_lines_are_not_trained_on(tmp_path):
    (tmp_path / "t.txt").write_text("a\nb\nc\n")
    assert held_out_lines(str(tmp_path / "t.txt"), TextSettings(held_out=2)) == ["a", "b"]
    with pytest.raises(CorpusError, match="none is left to train on"):
        held_out_lines(str(tmp_path / "t.txt"), TextSettings(held_out=3))


def test_lines_held_out_by_hash_stay_held_out_wherever_they_stand(encoder, tmp_path):
    lines = [f"line {n} ." for n in range(400)]
    settings = TextSettings(batch_size=1, held_out=30, held_out_share=0.2)
    parts = []
    for name, rows in (("a.txt", lines), ("b.txt", [*lines[::-1], *lines])):  # another order, every line twice
        (tmp_path / name).write_text("\n".join(rows))
        source = str(tmp_path / name)
        stream = LanguageBatches({"en": source}, {"en": encoder()}, settings).streams["en"].stream
        parts.append((set(held_out_lines(source, settings)), {line.text for line in stream(0)}))
    (measured, learnt), (measured_again, learnt_again) = parts
    assert learnt == learnt_again
    assert len(measured) == 30
    assert not (measured | measured_again) & learnt
    assert 0.14 < 1 - len(learnt) / len(lines) < 0.26  # four standard errors of a share of 0.2
    with pytest.raises(CorpusError, match=r"no line in the share text.held_out_share=1e-09"):
        held_out_lines(source, TextSettings(held_out=2, held_out_share=1e-9))


def test_texts_that_cannot_be_used_are_named(tmp_path):
    with pytest.raises(CorpusError, match="does not exist"):
        check_text(tmp_path / "no" / "such.txt")
    (tmp_path / "blank.txt").write_text("\n")
    with pytest.raises(CorpusError, match="holds no line"):
        check_text(tmp_path / "blank.txt")
    (tmp_path / "two.txt").write_text("a\nb\n")
    with pytest.raises(CorpusError, match="has 0 lines and .* has 2"):
        translation_pairs((str(tmp_path / "blank.txt"), str(tmp_path / "two.txt")))


def test_a_tokenizer_of_another_model_is_refused():
    tokenizer = tokenizer_of("bert")
    with pytest.raises(ModelError, match="do not belong together"):
        check_tokenizer(tokenizer, causal=False, embeddings=len(tokenizer) - 1)
    with pytest.raises(ModelError, match="no mask token"):
        check_tokenizer(tokenizer_of("gpt2"), causal=False, embeddings=10**6)

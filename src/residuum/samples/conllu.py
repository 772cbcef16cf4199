"""Sentences as CoNLL-U (universaldependencies.org/format.html)."""

from residuum.samples.meanings import Meaning, described
from residuum.samples.trees import Sentence


def conllu(sentence: Sentence, sent_id: str, meaning: Meaning) -> str:
    """A sentence with its id, its text and what it means above it, and a blank line below."""
    lines = [f"# sent_id = {sent_id}", f"# text = {sentence.text()}", f"# meaning = {described(meaning)}"]
    rows = sentence.rows
    in_range = False
    for number, row in enumerate(rows, 1):
        if row.fused:
            misc = _misc(rows[number].space_after)
            lines.append(f"{number}-{number + 1}\t{row.fused}\t_\t_\t_\t_\t_\t_\t_\t{misc}")
        inside = bool(row.fused) or in_range
        in_range = bool(row.fused)
        misc = "_" if inside else _misc(row.space_after)
        lines.append(
            f"{number}\t{row.form}\t{row.lemma}\t{row.upos}\t_\t{row.feats}\t{row.head}\t{row.deprel}\t_\t{misc}"
        )
    return "\n".join(lines) + "\n\n"


def _misc(space_after: bool) -> str:
    return "_" if space_after else "SpaceAfter=No"

"""What carries over to other languages? Learn in English, ask in German, Turkish and Swahili; look for translations."""

import sys

import residuum
from residuum.evaluation.pairs import corpus_pairs

size = int(sys.argv[1]) if len(sys.argv) > 1 else 400
teacher = residuum.teacher_folder()

treebanks = {code: residuum.sample("treebank", language=code, size=size) for code in ("en", "de", "tr", "sw")}
probing = residuum.probe_languages(teacher, treebanks, "upos", seeds=1, out="runs/languages")
print(probing.wide.round(3).to_string(index=False))  # accuracy in each language, from ever fewer neurons

texts = {code: residuum.sample("translation", language=f"{code}-en", size=size, split="test") for code in ("de", "tr")}
pairs = [corpus_pairs(text, (code, "en")) for code, text in texts.items()]
found = residuum.evaluate_retrieval(teacher, pairs, layers="each", out="runs/translations")
print(found.frame.query("score == 'cosine' and direction == 'forward'")[["pair", "layers", "accuracy", "low", "high"]])
print(residuum.report(["runs/languages", "runs/translations"], "languages.html"))

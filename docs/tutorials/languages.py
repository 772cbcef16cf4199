# %% [markdown]
# # Small models for my language
#
# One multilingual teacher becomes one small student per language. The students share a space: a sentence of one language
# finds its translation in the other. Plain text is all that is needed, one sentence per line.

# %%
from pathlib import Path

import residuum

texts = {}
for code in ("tr", "sw"):
    corpus = residuum.sample("text", language=code, size=400)
    texts[code] = f"{code}.txt"
    Path(texts[code]).write_text("\n".join(corpus.text(i) for i in range(len(corpus))), encoding="utf-8")
    print(code, "|", corpus.text(0))

# %%
result = residuum.distill(
    residuum.teacher_folder(),
    texts,
    "students",
    preset="monoalignment",
    vocabulary={"trim": True},  # each student keeps only the tokens of its text
    text={"batch_size": 8, "held_out": 50, "max_length": 64},
    optimiser={"steps": 40},
    progress=False,
)
print(result.run.summary["parameters of all students"], "parameters, teacher", result.run.summary["teacher parameters"])
print(result.frame.query("step == step.max()").round(2).to_string(index=False))

# %% [markdown]
# Forty steps take half a minute and teach little; a real run takes `steps=100000`. Do Turkish sentences find their
# Swahili translations?

# %%
pairs = residuum.sample("translation", language="tr-sw", size=100, seed=1)
lines = [f"{pairs.text(i)}\t{pairs.pair_text(i)}\n" for i in range(len(pairs))]
Path("pairs.tsv").write_text("".join(lines), encoding="utf-8")
tr, sw = result.students["tr"], result.students["sw"]
found = residuum.evaluate_retrieval(tr, "pairs.tsv", target_model=sw, layers="each")
print(
    found.frame[["query", "candidates", "score", "layers", "accuracy", "low", "high"]].round(2).to_string(index=False)
)

# %% [markdown]
# Chance is 0.01. Every student is a folder that `AutoModel.from_pretrained` loads. On the command line:
#
# ```bash
# residuum distill TEACHER tr=tr.txt sw=sw.txt --preset monoalignment --vocabulary trim=true --optimiser steps=100000 --out students
# residuum evaluate retrieval students/students/tr pairs.tsv --target-model students/students/sw
# ```
#
# See [distillation](../methods/distillation.md) and [bring your own language](../guides/languages.md).

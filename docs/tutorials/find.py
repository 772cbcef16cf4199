# %% [markdown]
# # Find and cut
#
# Which neurons does a task need, and how small can the model become? The task is to tell the grammatical relation of
# every word (`deprel_main`), the model is the sample teacher.

# %%
import residuum

treebank = residuum.sample("treebank", language="en", size=160)
found = residuum.rank(
    residuum.teacher_folder(), treebank, "deprel_main", "runs/rank", random_twin=False, progress=False
)
print(found.run.summary["answer"])
print(found.minimal[["set", "neurons", "share", "score", "low", "high"]].round(3).to_string(index=False))

# %% [markdown]
# `rank` orders neurons by forward selection and takes the fewest that keep 99 % of the score of all neurons (`keep`). The
# order of random neurons stands beside it: a task that any neurons solve says little about these.

# %%
small = residuum.transfer(residuum.teacher_folder(), treebank, "deprel_main", "small", progress=False)
print(small.frame[["step", "layer", "neurons", "test", "low", "high"]].round(3).to_string(index=False))

# %% [markdown]
# `transfer` drops the layers above those that the task needs and writes a model with a classifier on few neurons. Layers,
# neurons and everything else were chosen on the development part; the table shows the test part. Here the embeddings (layer
# 0) suffice: the sample grammar is simple, 160 sentences are few, and the intervals are wide.

# %%
print(*residuum.predict("small", [["the", "old", "woman", "sees", "a", "dog"]]))

# %% [markdown]
# On the command line:
#
# ```bash
# residuum rank MODEL TREEBANK --task deprel_main --out runs/rank
# residuum transfer MODEL TREEBANK --task deprel_main --out small
# ```
#
# See [ranking neurons](../methods/ranking.md) and [efficient transfer](../methods/transfer.md).

# %% [markdown]
# # Compare two models
#
# Which layers of two models are alike, and how much of that is training? This notebook compares the sample teacher (six
# layers, four languages) with its random twin: the same architecture with random weights. Put the folder or hub name of
# your own model in the place of `residuum.teacher_folder()`, and your treebank in the place of the sample.

# %%
import residuum

text = residuum.sample("treebank", language="en", size=150)
model = residuum.load_model(residuum.teacher_folder())
twin = residuum.load_model(residuum.teacher_folder(), random_init=True)
print(f"{text.n_words:,} words; {model}")

# %% [markdown]
# One pass over the text is enough: `compare` keeps second moments, not activations. `null` adds the value with permuted
# words, which is what chance gives.

# %%
result = residuum.compare([model, twin], text, measures=["cka", "cka_debiased"], groups=5, null=True)
print(result.matrix("cka").loc["teacher", "teacher"].round(2).to_string())

# %% [markdown]
# Neighbouring layers are alike, distant ones less so. How alike is the twin? A likeness that the twin has too says
# nothing about training.

# %%
frame = result.frame.query("measure == 'cka_debiased' and model_a == 'teacher' and layer_a == layer_b")
print(frame.groupby("model_b")[["value", "low", "high", "null"]].mean().round(3).to_string())

# %% [markdown]
# How much does each layer change what it reads? `result.plot()` draws this, and a result on its own in a notebook shows
# its findings in sentences.

# %%
curves = result.curves.query("curve == 'to_next_layer' and measure == 'cka'")
print(curves[["model", "layer", "value", "low", "high"]].round(3).to_string(index=False))

# %% [markdown]
# The same on the command line:
#
# ```bash
# residuum compare MODEL --random-twins --corpus treebank.conllu --measures cka,cka_debiased --null --out runs/alike
# ```
#
# The measures are explained in [similarity](../methods/similarity.md).

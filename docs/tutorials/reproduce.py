# %% [markdown]
# # Reproduce a paper
#
# `study` runs all steps of one paper on your models and decides its claims: each *holds*, *does not hold*, or is
# *inconclusive* where the interval contains the bound. The scale `sample` takes minutes with the sample data and teacher.

# %%
import residuum

result = residuum.study("similarity", "study", steps=["compare", "random"], progress=False)
decided = result.frame.query("verdict in ('holds', 'does not hold')")
print(decided[["where", "verdict", "ours", "low", "high", "rule"]].round(3).to_string(index=False))

# %% [markdown]
# A claim is one sentence of the paper with a rule. Numbers of the paper are shown only for its own models and data.

# %%
for _, claim in decided.iterrows():
    print(f"{claim['verdict']}: {claim['finding']} {claim['quantity']}: {claim['ours']:.3f} (claim: {claim['rule']})")

# %% [markdown]
# `steps` runs only some kinds of steps; leave it out for all of them. With your models and data:
#
# ```bash
# residuum study similarity --scale small --models bert-base-cased --models xlm-roberta-base --data ./data --out study
# residuum study similarity --scale paper --estimate --out study
# ```
#
# See [studies](../methods/studies.md) for the five documents and their claims.

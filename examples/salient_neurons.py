"""Which neurons matter most for a task, and what do they react to? Rank them, and look at the first."""

import sys

import residuum

size = int(sys.argv[1]) if len(sys.argv) > 1 else 400

treebank = residuum.sample("treebank", language="en", size=size)
methods = ["lca", "gaussian", "probeless"]
result = residuum.rank(
    residuum.teacher_folder(), treebank, "upos", methods=methods, seeds=1, cards=3, out="runs/salient"
)

print(result.frame.query("method == 'lca'").head(10))  # the most salient neurons, with their layers
print(result.minimal)  # the fewest that keep the score of all
print(residuum.report("runs/salient", "salient.html"))  # with the words that excite them

"""Which layers of a model are alike, and is that due to training? Compare a model with its random twin."""

import sys

import residuum

size = int(sys.argv[1]) if len(sys.argv) > 1 else 400

text = residuum.sample("treebank", language="en", size=size)
model = residuum.load_model(residuum.teacher_folder())
twin = residuum.load_model(residuum.teacher_folder(), random_init=True)

result = residuum.compare([model, twin], text, measures=["neuron", "cka"], null=True, out="runs/alike")

print(result.matrix("cka").round(2))  # all layers of both
trained = result.frame.query("measure == 'cka' and model_a == model_b and layer_a < layer_b")
print(trained.groupby("model_a")[["value", "low", "high"]].mean().round(3))
print(residuum.report("runs/alike", "alike.html"))

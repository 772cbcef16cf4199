"""What did fine-tuning do to what a model knows? Teach it a task, and probe it before and after."""

import sys

import residuum
from residuum.corpus.tasks import Task

size = int(sys.argv[1]) if len(sys.argv) > 1 else 400
teacher = residuum.teacher_folder()

task = Task("polarity", unit="sentence")  # its labels are those of sentences
reviews = residuum.sample("polarity", language="en", size=2 * size)
tuned = residuum.finetune(teacher, reviews, task, "runs/polarity", epochs=2, batch_size=16, learning_rate=5e-4)
print(tuned.frame)  # scores on dev and test

treebank = residuum.sample("treebank", language="en", size=size)
models = {"before": teacher, "after": tuned.folders[0]}
result = residuum.diff(models, treebank, ["upos"], measures=["cka"], seeds=1, out="runs/change")

print(result.frame[["features", "base", "score", "change", "low", "high"]].round(3))  # layer by layer
print(residuum.report(["runs/polarity", "runs/change"], "change.html"))

"""What is the smallest thing that does my task? Drop layers and neurons, and use what is left."""

import sys

import residuum

size = int(sys.argv[1]) if len(sys.argv) > 1 else 400

treebank = residuum.sample("treebank", language="en", size=size)
result = residuum.transfer(residuum.teacher_folder(), treebank, "upos", "runs/extractor")
print(result.text())  # layers, neurons, score and speed before and after

for tags in residuum.predict("runs/extractor", [["the", "old", "woman", "sees", "a", "dog"]]):
    print(tags)
print(residuum.report("runs/extractor", "extractor.html"))

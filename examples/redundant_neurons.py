"""Which neurons carry unique information, and which does a task need? Cluster them, then probe what is left."""

import sys

import residuum

size = int(sys.argv[1]) if len(sys.argv) > 1 else 400

treebank = residuum.sample("treebank", language="en", size=size)
result = residuum.redundancy(residuum.teacher_folder(), treebank, "upos", out="runs/redundancy")

print(result.frame[["threshold", "neurons", "share", "score", "low", "high"]].round(3))  # by clustering threshold
print(result.reduction[["set", "neurons", "score"]].round(3))  # all neurons beside the smallest sufficient sets
print(residuum.report("runs/redundancy", "redundancy.html"))

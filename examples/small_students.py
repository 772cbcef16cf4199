"""How do I get small aligned models of my languages? Distil a multilingual teacher into one student per language."""

import sys
from pathlib import Path

import residuum

size = int(sys.argv[1]) if len(sys.argv) > 1 else 400
steps = max(size // 8, 2)

texts = {}
for code in ("en", "tr"):
    lines = residuum.sample("text", language=code, size=10 * steps + 40)
    texts[code] = f"texts/{code}.txt"
    Path("texts").mkdir(exist_ok=True)
    Path(texts[code]).write_text("".join(f"{lines.text(i)}\n" for i in range(len(lines))), encoding="utf-8")

result = residuum.distill(
    residuum.teacher_folder(),
    texts,
    "runs/students",
    preset="monoalignment",
    text={"batch_size": 8, "held_out": 20},
    optimiser={"steps": steps},
)
print(result.students)  # one folder per language, which `from_pretrained` loads
print(result.frame.tail())  # perplexity during training
print(residuum.report("runs/students", "students.html"))

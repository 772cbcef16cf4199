"""In a notebook: bars where nobody has a terminal, objects as tables, figures as images, and silence on request."""

import io
import sys
from types import SimpleNamespace

import plotly.graph_objects as go
import pytest
import transformers as hf
from transformers import modeling_gguf_pytorch_utils

from residuum.activations.extraction import extract
from residuum.models.loading import load_model
from residuum.reporting.report import ShownFigure
from residuum.settings import Resumable
from residuum.storage import notebook
from tiny import TEXT, save_model


@pytest.fixture
def kernel(monkeypatch):
    """A process that looks like the kernel of a notebook, without widgets; gives what its cells show."""
    shell, shown = SimpleNamespace(kernel=object()), []

    def display(data, *, raw, display_id):
        shown.append([data["text/plain"]])
        return SimpleNamespace(update=lambda data, *, raw: shown[-1].append(data["text/plain"]))

    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    monkeypatch.setattr(notebook, "find_spec", lambda name: None)
    return shown


def test_a_bar_is_one_output_of_a_notebook_and_its_end_is_kept(capsys, kernel):
    assert notebook.in_notebook()
    with notebook.progress_bar(total=2, shown=True, mininterval=0) as bar:
        bar.update(1)
        bar.update(1)
    assert len(kernel) == 1
    assert any("1/2" in text for text in kernel[0])
    assert "2/2" in kernel[0][-1]
    with notebook.progress_bar(total=2, shown=True, leave=False) as bar:
        bar.update(2)
    assert kernel[1][-1] == ""
    with notebook.progress_bar(total=2, shown=False) as bar:
        bar.update(2)
    assert len(kernel) == 2
    assert capsys.readouterr() == ("", "")  # where a notebook would show it on red, and an export line by line


def test_no_bar_is_written_into_a_log(capsys):
    assert not notebook.in_notebook()
    with notebook.progress_bar([1, 2], shown=True) as bar:
        assert list(bar) == [1, 2]
    assert capsys.readouterr() == ("", "")


def test_what_comes_next_is_said_on_the_output_of_a_notebook(capsys, kernel):
    Resumable().say("next")
    Resumable(progress=False).say("nothing")
    assert capsys.readouterr() == ("next\n", "")


def test_loading_and_reading_are_silent_without_progress(tmp_path, capfd, monkeypatch):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(TEXT[:3]))
    folder = save_model("bert", tmp_path / "model")
    module = hf.AutoModelForMaskedLM.from_pretrained(folder)  # a head that load_model leaves, which it would report
    module.save_pretrained(folder)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    hf.utils.logging.enable_progress_bar()  # whatever ran before in this process
    capfd.readouterr()
    extract(folder, text, tmp_path / "store", progress=False)
    assert capfd.readouterr() == ("", "")
    with notebook.quiet_libraries():
        list(modeling_gguf_pytorch_utils.tqdm([1]))
    assert capfd.readouterr() == ("", "")
    hf.AutoModel.from_pretrained(folder)  # and transformers has its voice back
    assert "Loading weights" in capfd.readouterr().err


def test_models_stores_and_audits_show_what_they_are(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(TEXT[:3]))
    model = load_model(save_model("bert", tmp_path / "model<b>"))
    store = extract(model, text, tmp_path / "store", progress=False)
    page = model._repr_html_()
    assert "&lt;b&gt;" in page
    assert "<b>'" not in page
    for part in ("3 above the embeddings", f"{model.n_parameters:,}", "float32", "48 tokens", "both sides of a word"):
        assert part in page
    assert f"{store.n_rows:,} words" in store._repr_html_()
    audit = store.audit._repr_html_()
    assert f">{store.audit.words:,}<" in audit
    assert "examples" not in audit


def test_a_figure_is_an_image_where_no_script_runs(monkeypatch):
    figure = ShownFigure(go.Figure(go.Scatter(x=[0, 1], y=[1, 2], name="a")))
    figure.update_layout(xaxis_title="layer", yaxis_title="score")
    bundle, shown = figure._repr_mimebundle_()
    assert shown["image/png"]["width"] == 640
    assert figure._repr_html_ is None  # plotly's needs a script
    assert bundle["application/vnd.plotly.v1+json"]["data"][0]["name"] == "a"
    from base64 import b64decode

    from matplotlib.image import imread

    assert imread(io.BytesIO(b64decode(bundle["image/png"]))).shape[0] > 100
    monkeypatch.setattr("residuum.reporting.report.find_spec", lambda name: None)
    assert "plotly" in figure._repr_mimebundle_()[0]["text/html"]

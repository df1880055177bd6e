"""`manylabel demo`: the printed table, the saved models and the self-contained report."""

import math
import re
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

import manylabel as ml
from manylabel import demo
from manylabel.cli import main
from manylabel.datasets import load_digit_attributes


class Outline(HTMLParser):
    """Counts elements, and collects ids, references to ids, references to files, and text."""

    def __init__(self, page):
        super().__init__()
        self.counts, self.ids, self.wanted, self.files, self.text, self.open = {}, [], set(), [], "", []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.counts[tag] = self.counts.get(tag, 0) + 1
        attributes = dict(attributes)
        if "id" in attributes:
            self.ids.append(attributes["id"])
        for name in ("href", "xlink:href", "src", "for"):
            value = attributes.get(name)
            if value is not None:
                (self.wanted.add(value.lstrip("#")) if value[0] == "#" or name == "for" else
                 self.files.append(value))  # fmt: skip
        if tag not in ("meta", "input", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        if tag not in ("meta", "input", "br"):
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_demo_prints_a_table_and_writes_the_page(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    assert main(["demo", "--output", str(tmp_path / "new" / "demo")]) == 0
    folder = tmp_path / "new" / "demo"
    out = capsys.readouterr().out
    sizes = [file.stat().st_size for file in folder.glob("*.safetensors")]
    for title, _ in demo.FAMILIES:
        (line,) = [line for line in out.splitlines() if line.startswith(title)]
        values = [float(value.replace(",", "")) for value in line[28:].split()]
        assert len(values) == 6
        assert all(math.isfinite(value) for value in values)
        _, n_bytes, hamming, subset, micro, macro = values
        assert n_bytes in sizes
        assert 0 < hamming < 0.25  # predicting from label frequencies alone gives about 0.4
        assert hamming < subset < 1
        assert min(micro, macro) > 0.7
    assert str(folder / "report.html") in out.splitlines()[-1]

    page = (folder / "report.html").read_text(encoding="utf-8")
    outline = Outline(page)
    assert outline.open == []
    assert outline.counts["figure"] == 3
    assert outline.counts["svg"] >= 3 + 20 * len(demo.FAMILIES)
    for name in load_digit_attributes(return_names=True)[3]:
        # A name is on the cards, below the weights and beside the chart of recall.
        assert len(re.findall(f">{name}<", page)) >= 3
    assert outline.files == []
    assert len(outline.ids) == len(set(outline.ids))
    assert outline.wanted <= set(outline.ids)
    assert not re.search(r"\bnan\b|\$\w", outline.text)


def test_the_page_holds_several_models_and_escapes_their_titles(tmp_path):
    pytest.importorskip("matplotlib")
    data = demo.load_data()
    results = [
        demo.train(title, ml.DiSMECClassifier(C=C, random_state=0), data, tmp_path)
        for title, C in [("a & b", 1e-4), ("<c>", 1.0)]
    ]
    assert {file.name for file in tmp_path.iterdir()} == {"a-b.safetensors", "-c-.safetensors"}
    page = demo.page(data, results)
    assert "<c>" not in page
    assert page.count('type="radio"') == page.count('class="panel"') == 2
    # The better model is shown first.
    assert re.search(r'id="model-1" checked>', page)
    assert demo.page(data, results) == page


def test_a_model_changed_by_saving_is_an_error(tmp_path, monkeypatch):
    def other(path):
        model = ml.load(path)
        model.intercept_ = model.intercept_ + np.float32(1e-3)
        return model

    monkeypatch.setattr(demo, "load", other)
    with pytest.raises(RuntimeError, match="predictions of DiSMEC changed when the model was saved"):
        demo.train("DiSMEC", ml.DiSMECClassifier(random_state=0), demo.load_data(), tmp_path)


def test_without_matplotlib_nothing_is_trained(tmp_path, capsys, monkeypatch):
    for module in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(demo, "train", lambda *_: pytest.fail("trained"))
    assert main(["demo", "--output", str(tmp_path / "demo")]) == 1
    error = (
        "manylabel: error: the report needs matplotlib, which is not installed; "
        "run: pip install 'manylabel[plot]'\n"
    )
    assert capsys.readouterr() == ("", error)
    assert not (tmp_path / "demo").exists()

"""Measure `TextTagger` on the titles of yso-finna-en: the fit, the file, one text, and changes of labels.

The script reads the folder MANYLABEL_DATA, which has titles with their subjects in ``texts/yso-finna-en``.
The first argument is the number of training titles (default: all). One record has the tagger, and one has
each change of labels. Every change is checked: the scores of all other labels must keep their bits.
"""

import os
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

import numpy as np
import record

import manylabel as ml
from manylabel.tagging import read_texts

SET = "yso-finna-en titles"
N_TEXTS = 3000


def timed(function):
    start = time.perf_counter()
    result = function()
    return result, time.perf_counter() - start


def main():
    if not os.environ.get("MANYLABEL_DATA"):
        sys.exit("MANYLABEL_DATA must be the path of the folder of data sets")
    folder = Path(os.environ["MANYLABEL_DATA"], "texts", "yso-finna-en")
    limit = int(sys.argv[1]) if len(sys.argv) > 1 else None
    rows = list(islice(read_texts(folder / "train.tsv.gz"), limit))
    held = list(read_texts(folder / "test.tsv.gz"))
    texts = [text for text, _ in held[:N_TEXTS]]
    tagger, fit = timed(lambda: ml.TextTagger(n_jobs=-1).fit(rows))
    _, convert = timed(lambda: tagger._new_vectorizer().fit_transform([text for text, _ in rows]))
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "tagger.safetensors")
        tagger.save(path)
        megabytes = path.stat().st_size / 1e6
        tagger, load = timed(lambda: ml.load(path))
        tagger.prepare()
        each = [timed(lambda text=text: tagger.suggest(text))[1] * 1e3 for text in texts]
        _, batch = timed(lambda: tagger.suggest(texts))
        figures = {
            "labels": len(tagger.label_names_),
            "fit s": round(fit, 1),
            "of which texts s": round(convert, 1),
            "MB": round(megabytes, 1),
            "load s": round(load, 3),
            "one text p50 ms": round(float(np.median(each)), 3),
            "one text p95 ms": round(float(np.quantile(each, 0.95)), 3),
            "texts/s": round(len(texts) / batch),
        }
        print(figures)
        record.write("tagger", SET, "TextTagger()", figures)
        measure_changes(tagger, held)


def measure_changes(tagger, held):
    X = tagger.vectorizer_.transform([text for text, _ in held[:200]])
    texts, labels = zip(*held[N_TEXTS:13_000], strict=True)
    names = tagger.label_names_.tolist()
    changes = {
        "rename 1": (lambda: tagger.rename_labels({names[5]: "new name"}), [5]),
        "drop 190": (lambda: tagger.drop_labels(names[10:200]), range(10, 200)),
        "merge 2, on 10,000 texts": (
            lambda: tagger.merge_labels(names[300:302], "both", texts, labels),
            [300, 301],
        ),
        "refit 1, on 10,000 texts": (lambda: tagger.refit_labels([names[400]], texts, labels), [400]),
        "add 20, on 10,000 texts": (
            lambda: tagger.add_labels(texts, [[f"topic {len(text) % 20}"] for text in texts]),
            [],
        ),
    }
    place = {name: at for at, name in enumerate(names)}
    for change, (run, touched) in changes.items():
        before = tagger.classifier_.decision_function(X)
        kept = [name for name in tagger.label_names_ if place.get(name) not in set(touched)]
        old = {name: at for at, name in enumerate(tagger.label_names_)}
        _, seconds = timed(run)
        new = {name: at for at, name in enumerate(tagger.label_names_)}
        common = [name for name in kept if name in new]
        after = tagger.classifier_.decision_function(X)
        same = np.array_equal(
            after[:, [new[name] for name in common]], before[:, [old[name] for name in common]]
        )
        figures = {"s": round(seconds, 3), "other labels": len(common), "same bits": "yes" if same else "no"}
        print(change, figures)
        record.write("tagger_changes", SET, change, figures)


if __name__ == "__main__":
    main()

"""Compare manylabel's backend for Annif with Annif's omikuji backend, in the same project.

The projects have the titles and subjects of ``texts/yso-finna-en`` in the folder MANYLABEL_DATA, and the
analyzer ``snowball(english)``. A process of its own trains each project, makes suggestions, and measures
itself with Annif's own metrics. The backend `manylabel` also learns 1,000 new documents. For omikuji, this
would be a new training. The third project is Annif's omikuji backend on manylabel.compat.omikuji.

The processes run in a virtual environment with ``pip install 'annif[omikuji]'``, whose Python is the option
``--annif``, by default ``.venv-annif/bin/python``. Annif needs the tokenizer punkt_tab of nltk. As the texts
are titles, a tokenizer without abbreviations is made for all projects, without a download.
"""

import argparse
import csv
import gzip
import itertools
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import record

SET = "yso-finna-en titles"
TOPIC = "annif"
BACKENDS = ("manylabel", "omikuji", "omikuji on manylabel")
N_LEARNED = 1000
LIMIT = 100


def make_projects(folder, data, n_train, n_test):
    """Write the vocabulary, the documents and the configuration of all projects."""
    with gzip.open(data / "subjects.tsv.gz", "rt", encoding="utf-8") as file:
        subjects = [line.rstrip("\n").split("\t") for line in file]
    with (folder / "vocabulary.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["uri", "label_en"])
        writer.writerows([uri.strip("<>"), label] for uri, label, *_ in subjects)
    with gzip.open(data / "train.tsv.gz", "rt", encoding="utf-8") as file:
        lines = list(itertools.islice(file, n_train))
    (folder / "train.tsv").write_text("".join(lines), encoding="utf-8")
    with gzip.open(data / "test.tsv.gz", "rt", encoding="utf-8") as file:
        lines = list(itertools.islice(file, n_test + N_LEARNED))
    (folder / "test.tsv").write_text("".join(lines[:n_test]), encoding="utf-8")
    (folder / "new.tsv").write_text("".join(lines[n_test:]), encoding="utf-8")
    sections = []
    for name in BACKENDS:
        backend = "omikuji" if name.startswith("omikuji") else "manylabel"
        settings = "allow_learn=true\n" if backend == "manylabel" else ""
        sections.append(
            f"[{name.replace(' ', '-')}]\nname={name}\nlanguage=en\nbackend={backend}\n"
            f"analyzer=snowball(english)\nvocab=yso\nlimit={LIMIT}\n{settings}"
        )
    (folder / "projects.cfg").write_text("\n".join(sections), encoding="utf-8")


def run(python, folder, name):
    """Return the figures of one project."""
    environment = os.environ | {
        "PYTHONPATH": str(record.ROOT / "python"),
        "NLTK_DATA": str(folder / "nltk_data"),
        "ANNIF_PROJECTS": str(folder / "projects.cfg"),
        "ANNIF_DATADIR": str(folder / "data"),
    }
    figures = {}
    for step in ("train", "suggest", "learn"):
        if step == "learn" and name != "manylabel":
            continue
        call = [python, __file__, "--worker", step, name, str(folder)]
        # omikuji shows a progress bar on the standard error.
        done = subprocess.run(
            call, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True
        )
        figures |= json.loads(done.stdout.splitlines()[-1])
    return figures


def worker(step, name, folder):
    """Do one step of a project in this process, and print its figures."""
    if name == "omikuji on manylabel":
        import manylabel.compat.omikuji

        sys.modules["omikuji"] = manylabel.compat.omikuji
    import annif
    import annif.registry
    from annif.corpus import DocumentFileTSV
    from nltk.tokenize.punkt import PunktParameters, save_punkt_params

    import manylabel.compat.annif  # adds the backend

    annif.logger.setLevel("WARNING")
    punkt = folder / "nltk_data" / "tokenizers" / "punkt_tab"
    if not punkt.exists():
        punkt.mkdir(parents=True)
        save_punkt_params(PunktParameters(), str(punkt / "english"))
    registry = annif.registry.AnnifRegistry(str(folder / "projects.cfg"), str(folder / "data"), False)
    project = registry.get_project(name.replace(" ", "-"))
    if not Path(project.vocab.datadir, project.vocab.INDEX_FILENAME_CSV).exists():
        from annif.vocab.subject_file import VocabFileCSV

        project.vocab.load_vocabulary(VocabFileCSV(str(folder / "vocabulary.csv")))

    def documents(file):
        return DocumentFileTSV(str(folder / file), project.subjects, require_subjects=True)

    start, begin = cpu_seconds(), time.perf_counter()
    if step == "train":
        project.train(documents("train.tsv"))
        # The training file of omikuji is not needed for suggestions.
        files = [p for p in Path(project.datadir).rglob("*") if p.is_file() and "-train" not in p.name]
        figures = {"MB": round(sum(p.stat().st_size for p in files) / 1e6, 1), "files": len(files)}
    elif step == "learn":
        project.learn(documents("new.tsv"))
        figures = {}
    else:
        project.initialize()
        start, begin = cpu_seconds(), time.perf_counter()
        figures = {}
        corpus = documents("test.tsv")
        batches = [project.suggest(batch) for batch in corpus.doc_batches]
    used = {
        "CPU s": round(cpu_seconds() - start, 1),
        "s": round(time.perf_counter() - begin, 1),
        "MB of memory": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }
    figures |= {f"{step} {key}": value for key, value in used.items()}
    if step == "suggest":
        figures |= quality(batches, corpus, project.subjects)
        n_documents = figures["documents"]
        figures["suggestions/CPU s"] = round(n_documents / used["CPU s"])
        figures["suggestions/s"] = round(n_documents / used["s"])
    print(json.dumps(figures))


def quality(batches, corpus, subjects):
    """Return the metrics of Annif."""
    from annif.eval import EvaluationBatch

    evaluation = EvaluationBatch(subjects)
    for batch, documents in zip(batches, corpus.doc_batches, strict=True):
        evaluation.evaluate_many(batch, [document.subject_set for document in documents])
    found = evaluation.results(metrics=["F1@5", "NDCG", "NDCG@5"])
    figures = {"documents": found.pop("Documents evaluated")}
    return figures | {metric: round(100 * value, 2) for metric, value in found.items()}


def cpu_seconds():
    return sum(resource.getrusage(resource.RUSAGE_SELF)[:2])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", type=int, default=120_000, help="number of titles for training")
    parser.add_argument("--test", type=int, default=10_000, help="number of titles for suggestions")
    parser.add_argument("--annif", default=str(record.ROOT / ".venv-annif/bin/python"), metavar="PYTHON")
    parser.add_argument("--only", choices=BACKENDS, action="append", help="only this project")
    parser.add_argument("--dry", action="store_true", help="do not record the figures")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        step, name, folder = options.worker
        worker(step, name, Path(folder))
        return
    if not os.environ.get("MANYLABEL_DATA"):
        sys.exit("MANYLABEL_DATA must be the path of the folder of data sets")
    data = Path(os.environ["MANYLABEL_DATA"], "texts", "yso-finna-en")
    folder = Path(tempfile.mkdtemp(prefix="annif"))
    try:
        make_projects(folder, data, options.train, options.test)
        for name in options.only or BACKENDS:
            figures = run(options.annif, folder, name)
            print(name, figures, flush=True)
            if not options.dry:
                packages = [(options.annif, package) for package in ("annif", "omikuji")]
                rows = f"{options.train:,} + {options.test:,} titles"
                record.write(TOPIC, SET, name, figures, data=rows, packages=packages)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()

"""Compare boosted rules with mlrl-boomer rule by rule, without sampling.

``rules`` fits both libraries to at most 300 training rows and to the twelve features with the most nonzero
values. It counts the first rules whose heads are equal. Both ensembles are also compared with the two
searches of rules_twin.py: ours with the definition, and BOOMER's with a search that leaves out what BOOMER
leaves out. At the first rule in which the libraries differ, both rules are scored by the definition.

``losses`` fits ensembles with sampling, all rows and all features with the two searches of rules_twin.py. It
measures how much the search changes the losses on test rows.
"""

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import record
from compare import HERE, ROOT, data_folder
from rules_twin import Condition, Rule, Twin, heads_of, satisfies
from scipy.sparse import csc_array

import manylabel as ml
from rules import split

SETS = ["emotions", "yeast", "scene", "birds", "medical", "enron", "genbase", "eukaryote-go"]
SETS_OF_LOSSES = ["medical", "eukaryote-go", "bibtex"]
N_ROWS, N_FEATURES = 300, 12
BINNINGS = {"no bins": (None, "none"), "4 % bins": (0.04, "equal-width{bin_ratio=0.04}")}
EQUAL = 2e-5  # largest difference of equal heads, relative to the largest value; ours have single precision
OPERATORS = ["<=", ">"]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["rules", "losses"])
    parser.add_argument("--sets", nargs="+")
    parser.add_argument("--rules", type=int, help="number of rules (default: 50, or 500 for losses)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--peer-python", type=Path, default=ROOT / ".venv-boomer/bin/python")
    args = parser.parse_args()
    sets = args.sets or (SETS if args.what == "rules" else SETS_OF_LOSSES)
    folder = data_folder(parser, sets)
    for name in sets:
        if args.what == "rules":
            compare_rules(args, name, *small_part(folder / name))
        else:
            compare_losses(args, name, *split(folder / name))


def small_part(path):
    """Return some training rows with few features as dense arrays. Labels without rows are left out."""
    X, Y, _, _ = split(path)
    rows = np.sort(np.random.default_rng(0).permutation(X.shape[0])[:N_ROWS])
    X, Y = X[rows].tocsc(), Y[rows].toarray()
    features = np.sort(np.argsort(-np.diff(X.indptr), kind="stable")[:N_FEATURES])
    return X[:, features].toarray().astype(np.float32), Y[:, Y.any(axis=0)] > 0


def compare_rules(args, name, X, Y):
    n_rules = args.rules or 50
    for title, (ratio, binning) in BINNINGS.items():
        ours, theirs = our_rules(X, Y, n_rules, ratio), rules_of_boomer(args, X, Y, n_rules, binning)
        n_equal = count_equal(ours, theirs)
        figures = {
            "rules": n_rules,
            "equal rules": n_equal,
            "ours by the definition": count_equal(ours, Twin(X, Y, ratio, "definition").fit(n_rules, ours)),
            "BOOMER's by its search": count_equal(theirs, Twin(X, Y, ratio, "boomer").fit(n_rules, theirs)),
        }
        in_csc = rules_of_boomer(args, X, Y, n_rules, binning, sparse=True)
        figures["equal rules, sparse X"] = count_equal(ours, in_csc)
        if n_equal < n_rules:
            twin = Twin(X, Y, ratio, "definition")
            for rule in ours[:n_equal]:
                twin.add(rows_of(X, rule), rule.head)
            figures |= {
                "quality of our rule": quality(twin, X, ours[n_equal]),
                "quality of BOOMER's rule": quality(twin, X, theirs[n_equal]),
            }
        data = f"{X.shape[0]:,} rows, {X.shape[1]} features, {Y.shape[1]} labels"
        packages = [(str(args.peer_python), "mlrl-boomer")]
        record.write("rules_one_by_one", name, title, figures, data=data, packages=packages)
        print(name, title, figures, flush=True)


def our_rules(X, Y, n_rules, ratio) -> list[Rule]:
    model = ml.BoostedRulesClassifier(
        n_rules,
        bootstrap=False,
        max_features=None,
        search="exact",
        step="newton",
        label_binning=ratio,
        random_state=0,
    ).fit(X, Y.astype(np.int8))
    found, heads = model.rules_, model.rules_.heads.toarray().astype(float)
    rules = []
    for rule in range(len(found)):
        part = slice(*found.body_indptr[rule : rule + 2])
        conditions = zip(found.feature[part], found.operator[part], found.threshold[part], strict=True)
        body = [Condition(int(f), OPERATORS[o], float(t), float(t)) for f, o, t in conditions]
        rules.append(Rule(body, heads[rule]))
    return rules


def rules_of_boomer(args, X, Y, n_rules, binning, sparse=False) -> list[Rule]:
    with tempfile.TemporaryDirectory(prefix="manylabel-bench-") as folder:
        data, output = Path(folder) / "data.npz", Path(folder) / "rules.json"
        np.savez(data, X=X, Y=Y)
        command = [args.peer_python, HERE / "rules_boomer.py", data, output]
        command += ["--rules", str(n_rules), "--binning", binning, *(["--sparse"] if sparse else [])]
        subprocess.run(command, check=True)
        rules = json.loads(output.read_text())
    return [
        Rule([Condition(*condition, condition[2]) for condition in body], np.array(head))
        for body, head in rules
    ]


def count_equal(some: list[Rule], others: list[Rule]) -> int:
    """Return the number of first rules with equal heads."""
    for number, (a, b) in enumerate(zip(some, others, strict=False)):
        if np.abs(a.head - b.head).max() > EQUAL * np.abs(a.head).max():
            return number
    return min(len(some), len(others))


def rows_of(X, rule: Rule):
    """Return the rows that satisfy all conditions of a rule."""
    covered = np.ones(X.shape[0], dtype=bool)
    for condition in rule.body:
        covered &= satisfies(X, condition, condition.threshold)
    return np.flatnonzero(covered)


def quality(twin: Twin, X, rule: Rule) -> float:
    """Return the quality of the rows of a rule, by the definition. Lower is better."""
    sums = twin.sums(rows_of(X, rule), np.ones(X.shape[0]))
    return float(f"{heads_of(sums, twin.ratio)[1][0]:.6g}")


def compare_losses(args, name, X, Y, X_test, Y_test):
    X, X_test = csc_array(X), csc_array(X_test)
    Y, Y_test = Y.toarray() > 0, Y_test.toarray() > 0
    label_sets = np.unique(Y, axis=0)
    n_rules, (ratio, _) = args.rules or 500, BINNINGS["4 % bins"]
    for search in ("definition", "boomer"):
        found = []
        start = time.process_time()
        for seed in args.seeds:
            rules = Twin(X, Y, ratio, search, np.random.default_rng(seed)).fit(n_rules)
            wrong = predicted(rules, X_test, label_sets) != Y_test
            n_conditions = np.mean([len(rule.body) for rule in rules[1:]])
            found.append([100 * wrong.any(axis=1).mean(), 100 * wrong.mean(), n_conditions])
        figures = {"seeds": len(args.seeds), "CPU s": round(time.process_time() - start, 1)}
        for measure, values in zip(
            ["subset 0/1 %", "Hamming %", "conditions"], np.transpose(found), strict=True
        ):
            figures[measure] = f"{np.mean(values):.2f} ± {np.std(values):.2f}"
        record.write("rules_searches", name, search, figures)
        print(name, search, figures, flush=True)


def predicted(rules: list[Rule], X, label_sets):
    """Return the label set with the highest probability of each row, among sets of training rows."""
    scores = np.zeros((X.shape[0], label_sets.shape[1]))
    for rule in rules:
        scores[rows_of(X, rule)] += rule.head
    # The loss of a wrong sign of score p is 2 sinh|p| (`set_costs` in tests/oracle/rules.py).
    cost = 2 * np.sinh(np.abs(scores))
    of_positive = np.where(scores > 0, cost, 0.0)
    totals = of_positive.sum(axis=1)[:, None] + (cost - 2 * of_positive) @ label_sets.T.astype(float)
    return label_sets[totals.argmin(axis=1)]


if __name__ == "__main__":
    main()

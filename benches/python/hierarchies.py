"""Compare label sets that respect a hierarchy with label sets that do not.

The data sets state pairs of a parent and a child in ``meta.json``. The probabilities of the test rows are
those of `LabelCalibrator(DiSMECClassifier())` with default parameters. Each rule chooses label sets with
and without `HierarchicalSets`. The figures are the share of test rows whose set has a child without one of
its parents, the example-F1 in percent, the cost (the number of wrong labels and missed labels per row), and
the processor time per row of the choice.
"""

import argparse
import json
import os
from pathlib import Path
from time import process_time

import numpy as np
import record
from blocks_default import split
from decisions import f1
from scipy.sparse import csr_array

import manylabel as ml
from manylabel.decision import Costs, ExpectedF1, HierarchicalSets, LabelCalibrator

SETS = ["hmc-cellcycle-fun", "hmc-cellcycle-go", "hmc-seq-fun", "hmc-seq-go", "imclef07d", "diatoms"]
RULES = {"ExpectedF1": ExpectedF1(), "Costs": Costs()}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=SETS)
    args = parser.parse_args()
    folder = os.environ.get("MANYLABEL_DATA")
    if folder is None:
        parser.error("MANYLABEL_DATA must name the folder of the data sets")
    for name in args.sets:
        X, Y, X_test, Y_test = split(Path(folder) / name)
        meta = json.loads((Path(folder) / name / "meta.json").read_text(encoding="utf-8"))
        pairs = np.array(meta["hierarchy_parent_child"])
        model = LabelCalibrator(ml.DiSMECClassifier(random_state=0), random_state=0, n_jobs=2).fit(X, Y)
        P = model.predict_proba_topk(X_test, model.n_candidates)
        data = f"{X.shape[0]:,} + {X_test.shape[0]:,} rows, {Y.shape[1]:,} labels, {len(pairs):,} pairs"
        for title, rule in RULES.items():
            for system, each in ((title, rule), (f"{title}, closed", HierarchicalSets(rule, pairs))):
                figures = measured(each, P, Y_test, pairs)
                record.write("hierarchies", name, system, figures, data=data)
                print(name, system, figures, flush=True)


def measured(rule, P, Y, pairs):
    start = process_time()
    sets = csr_array(rule.predict(P))
    seconds = process_time() - start
    chosen = sets.toarray().astype(bool)
    orphans = (chosen[:, pairs[:, 1]] & ~chosen[:, pairs[:, 0]]).any(axis=1)
    return {
        "rows with an orphan %": round(100 * float(orphans.mean()), 2),
        "example-F1 %": round(100 * float(f1(Y, sets)["example"]), 2),
        "cost": round(float((chosen != Y.toarray().astype(bool)).sum(axis=1).mean()), 3),
        "us a row": round(1e6 * seconds / P.shape[0], 1),
    }


if __name__ == "__main__":
    main()

"""Fit mlrl-boomer without sampling, and write its rules as JSON. rules_one_by_one.py starts this script."""

import argparse
import json
from pathlib import Path

import numpy as np
from mlrl.common.cython.rule_model import RuleModelVisitor
from rules_systems import Boomer, variant
from scipy.sparse import csc_array

OPERATORS = {"leq": "<=", "gr": ">"}
WITHOUT_SAMPLING = {
    "instance_sampling": "none",
    "feature_sampling": "none",
    "feature_binning": "none",
    "statistic_type": "64-bit",
}


class Reader(RuleModelVisitor):
    """Collects the rules: triples of feature, operator and threshold, and the scores of the labels."""

    def __init__(self):
        self.body, self.rules = [], []

    def visit_empty_body(self, body):
        self.body = []

    def visit_conjunctive_body(self, body):
        self.body = []
        for name, operator in OPERATORS.items():
            features = getattr(body, f"numerical_{name}_indices")
            if features is not None:
                thresholds = getattr(body, f"numerical_{name}_thresholds")
                self.body += [[int(f), operator, float(t)] for f, t in zip(features, thresholds, strict=True)]

    def visit_complete_head(self, head):
        self.rules.append([self.body, np.asarray(head.scores, dtype=float).tolist()])

    def visit_partial_head(self, head):
        raise NotImplementedError


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="X and Y as .npz")
    parser.add_argument("output", type=Path)
    parser.add_argument("--rules", type=int, required=True)
    parser.add_argument("--binning", required=True)
    parser.add_argument("--sparse", action="store_true")
    args = parser.parse_args()
    data = np.load(args.data)
    X = csc_array(data["X"]) if args.sparse else np.asfortranarray(data["X"])
    system = variant(Boomer, "BOOMER, no sampling", label_binning=args.binning, **WITHOUT_SAMPLING)(
        1, args.rules, 1
    )
    system.fit(X, data["Y"].astype(np.uint8))
    reader = Reader()
    system.model.model_.visit_used(reader)
    args.output.write_text(json.dumps(reader.rules))


if __name__ == "__main__":
    main()

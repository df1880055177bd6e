"""Boosted multi-label rules of this library and of mlrl-boomer, with the methods of `systems.System`.

A set is dense for both libraries if more than half of its values are nonzero, and sparse otherwise.
mlrl-boomer is not faster on dense arrays of mostly zeros. It also ends before it has the wanted number of
rules: on medical, it has 6 of 500 rules.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from systems import System


class Boosted(System):
    """An ensemble of at most `n_rules` rules. `settings` has the parameters that differ between the systems
    of one library.
    """

    settings: Mapping[str, Any] = MappingProxyType({})
    peer: str | None = None  # the system with which our system is compared

    def __init__(self, n_threads: int, n_rules: int, seed: int):
        super().__init__(n_threads)
        self.n_rules = n_rules
        self.seed = seed

    def read(self, data, scratch):
        X, Y = super().read(data, scratch)
        return self.rows(X), Y

    def rows(self, X):
        """Convert rows to the form that ``predict`` takes."""
        return X.toarray() if is_dense(X) else X

    def predict(self, X):
        return self.model.predict(X)


def is_dense(X) -> bool:
    return 2 * X.nnz > X.shape[0] * X.shape[1]


class Boomer(Boosted):
    # The library chooses the number of threads, which is one for these settings.
    title = "BOOMER, no binning"
    package = "mlrl-boomer"
    settings = MappingProxyType({"label_binning": "none"})

    def __init__(self, n_threads, n_rules, seed):
        super().__init__(n_threads, n_rules, seed)
        from mlrl.boosting import BoomerClassifier

        chosen = {
            "loss": "logistic-non-decomposable",
            "head_type": "complete",
            "instance_sampling": "with-replacement",
            "feature_sampling": "without-replacement",
            "shrinkage": 0.3,
            "l2_regularization_weight": 1.0,
            "global_pruning": "none",
            "binary_predictor": "example-wise",
        }
        self.model = BoomerClassifier(max_rules=n_rules, random_state=seed, **chosen | self.settings)

    def read(self, data, scratch):
        X, Y = super().read(data, scratch)
        X = np.asfortranarray(X) if isinstance(X, np.ndarray) else X.tocsc()
        return X, Y.toarray().astype(np.uint8)

    def fit(self, X, Y):
        self.model.fit(X, Y)

    def fitted_rules(self) -> int:
        return self.model.model_.get_num_used_rules()


class BoomerBinned(Boomer):
    title = "BOOMER, 4 % bins"
    settings = MappingProxyType({"label_binning": "equal-width{bin_ratio=0.04}"})


class BoomerThreads(Boomer):
    title = "BOOMER, no binning, threads"
    settings = MappingProxyType({**Boomer.settings, "parallel_rule_refinement": "true"})


class BoomerBinnedThreads(Boomer):
    title = "BOOMER, 4 % bins, threads"
    settings = MappingProxyType({**BoomerBinned.settings, "parallel_rule_refinement": "true"})


class ManyLabelRules(Boosted):
    title = "manylabel, default"
    package = "manylabel"
    peer = "boomer"

    def __init__(self, n_threads, n_rules, seed):
        super().__init__(n_threads, n_rules, seed)
        from manylabel.rules import BoostedRulesClassifier

        self.model = BoostedRulesClassifier(n_rules, n_jobs=n_threads, random_state=seed, **self.settings)

    def fit(self, X, Y):
        self.model.fit(X, Y)

    def fitted_rules(self) -> int:
        return len(self.model.coverage_)


class Exact(ManyLabelRules):
    title = "manylabel, reproduction, no binning"
    peer = "boomer"
    settings = MappingProxyType({"search": "exact", "step": "newton", "label_binning": None})


class ExactBinned(ManyLabelRules):
    title = "manylabel, reproduction, 4 % bins"
    peer = "boomer-binned"
    settings = MappingProxyType({"search": "exact", "step": "newton", "label_binning": 0.04})


class ExactTwoBins(ManyLabelRules):
    title = "manylabel, reproduction, 2 bins"
    peer = None
    settings = MappingProxyType({**ExactBinned.settings, "max_bins": 1})


class FastBinned(ManyLabelRules):
    title = "manylabel, fast, 4 % bins"
    peer = "boomer-binned"
    settings = MappingProxyType({"label_binning": 0.04})


def variant(base: type[Boosted], title: str, **settings: Any) -> type[Boosted]:
    """Return a system with further settings. It is not compared with a peer."""
    settings = MappingProxyType({**base.settings, **settings})
    return type(base.__name__, (base,), {"title": title, "settings": settings, "peer": None})


OURS = "manylabel, reproduction"
LabelWise = variant(Exact, f"{OURS}, label-wise loss", loss="label-wise-logistic")
BoomerLabelWise = variant(
    Boomer,
    "BOOMER, label-wise loss",
    loss="logistic-decomposable",
    binary_predictor="output-wise",
)
SINGLE = "single-label heads"

SYSTEMS: dict[str, type[Boosted]] = {
    "boomer": Boomer,
    "exact": Exact,
    "boomer-binned": BoomerBinned,
    "exact-binned": ExactBinned,
    "default": ManyLabelRules,
    "fast-binned": FastBinned,
    "exact-two-bins": ExactTwoBins,
    "exact-32": variant(ExactBinned, f"{OURS}, 32 % bins", label_binning=0.32),
    "exact-16": variant(ExactBinned, f"{OURS}, 16 % bins", label_binning=0.16),
    "exact-8": variant(ExactBinned, f"{OURS}, 8 % bins", label_binning=0.08),
    "label-wise": LabelWise,
    "label-wise-single": variant(LabelWise, f"{LabelWise.title}, {SINGLE}", head="single-label"),
    "boomer-32": variant(Boomer, "BOOMER, 32 % bins", label_binning="equal-width{bin_ratio=0.32}"),
    "boomer-16": variant(Boomer, "BOOMER, 16 % bins", label_binning="equal-width{bin_ratio=0.16}"),
    "boomer-8": variant(Boomer, "BOOMER, 8 % bins", label_binning="equal-width{bin_ratio=0.08}"),
    "boomer-two-bins": variant(Boomer, "BOOMER, 2 bins", label_binning="equal-width{max_bins=1}"),
    "boomer-label-wise": BoomerLabelWise,
    "boomer-label-wise-single": variant(
        BoomerLabelWise, f"{BoomerLabelWise.title}, {SINGLE}", head_type="single"
    ),
    "boomer-threads": BoomerThreads,
    "boomer-binned-threads": BoomerBinnedThreads,
}

"""The rule `RiskControl`, which limits the risk of a label set.

The risk is either the fraction of the true labels that are not chosen, or the fraction of the chosen labels
that are not true.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.stats import binom
from sklearn.utils.validation import check_is_fitted

from manylabel.decision.rules import DecisionRule, kept, of_known_entries
from manylabel.estimator.parameters import Choice, Number, Parameters
from manylabel.estimator.registry import register
from manylabel.metrics.calibration import hits_of

__all__ = ["RiskControl"]

# Log-odds of the bounds that are tested for the guarantee "probability". The bounds must not depend on the
# data. Neighbouring bounds differ by at most 0.5 percentage points.
_LOG_ODDS = np.linspace(-14.0, 14.0, 1401)


@register
class RiskControl(DecisionRule):
    """Choose label sets whose risk on new rows is at most `alpha`.

    All labels with a probability of at least `bound_` are chosen. `fit` learns this bound, and guarantees a
    limit on the risk of new rows (see `risk` and `guarantee`). The rows that are passed to `fit` are called
    calibration rows. The guarantee does not depend on the quality of the probabilities, but it has two
    conditions. First, the calibration rows and the new rows must be exchangeable, for example independent
    draws from the same distribution. Second, the model that computes the probabilities must not be fitted to
    the calibration rows, and must not be fitted again after the fit of `RiskControl`. If the model is a
    `LabelCalibrator`, the second condition applies to both of its parts: the classifier, and the curves that
    convert the scores of the classifier to probabilities.

    Parameters
    ----------
    alpha : float, default=0.1
        Limit of the risk, > 0 and < 1.
    risk : {"false_negative_rate", "false_discovery_rate"}, default="false_negative_rate"
        The risk of a row. "false_negative_rate" is the fraction of the true labels that are not chosen. It is
        0 if the row has no true label. With this risk, the chosen sets are as small as the guarantee allows.
        "false_discovery_rate" is the fraction of the chosen labels that are not true. It is 0 if no label is
        chosen. With this risk, the chosen sets are as large as the guarantee allows.
    guarantee : {"expectation", "probability"}, default="expectation"
        Kind of the guarantee. With "expectation", the risk of a new row is at most `alpha` on average over
        random draws of the calibration rows and the new row (conformal risk control [1]_). With
        "probability", the learned bound has an expected risk of at most `alpha` on new rows. This holds with
        a probability of at least ``1 - delta`` over random draws of the calibration rows (Learn then Test
        [2]_). "expectation" requires a risk that changes in only one direction as the bound rises. The false
        discovery rate can both increase and decrease, so only "probability" is available for this risk.
    delta : float, default=0.05
        Largest allowed probability that the expected risk of a new row exceeds `alpha`. `delta` must be > 0
        and < 1. It is used only with the guarantee "probability".

    Attributes
    ----------
    bound_ : float
        Smallest probability at which a label is chosen.
    risk_ : float
        Mean risk of the calibration rows with the bound `bound_`.

    Notes
    -----
    With "expectation", let R(b) be the mean risk of the n calibration rows with the bound b. `bound_` is the
    largest b with ``(n R(b) + 1) / (n + 1) <= alpha``. With "probability", the bounds of a fixed list are
    tested one after another. The first bound is the most cautious one: the lowest for the false negative
    rate, and the highest for the false discovery rate. A test computes the Hoeffding-Bentkus p-value [2]_ of
    the hypothesis that the risk exceeds `alpha`. The tests end at the first p-value above `delta`, and the
    bound of the previous test is used. No correction for multiple tests is needed, since the order of the
    tests is fixed.

    The p-values are valid for all distributions of the risk. With "probability", the bound is therefore more
    cautious than necessary. In a simulation with the false negative rate and ``delta=0.1``, the chosen sets
    had more labels than the sets of the best possible bound. The difference was 17 % with 200 calibration
    rows, 7 % with 1,000 rows and 3 % with 5,000 rows. With "expectation", it was less than 1 %.

    If entries of Y are unknown (NaN), the risk of a row is computed from its known labels only. The guarantee
    then limits the risk over the known labels of new rows, not the risk over all their labels. The guarantee
    assumes that labels of new rows are unknown for the same reasons as labels of the calibration rows.

    References
    ----------
    .. [1] A. N. Angelopoulos, S. Bates, A. Fisch, L. Lei and T. Schuster, "Conformal risk control", ICLR
       2024, theorem 1.
    .. [2] A. N. Angelopoulos, S. Bates, E. J. Candès, M. I. Jordan and L. Lei, "Learn then test: calibrating
       predictive algorithms to achieve risk control", Annals of Applied Statistics, 2025.

    Examples
    --------
    >>> import numpy as np
    >>> from manylabel.decision import RiskControl
    >>> rng = np.random.default_rng(0)
    >>> P = rng.random((500, 20)) ** 4
    >>> Y = rng.random((500, 20)) < P
    >>> rule = RiskControl(alpha=0.1).fit(P, Y.astype(int))
    >>> round(rule.risk_, 2)
    0.1
    """

    needs_fresh_rows: ClassVar[bool] = True

    parameters = Parameters(
        alpha=Number(above=0, below=1),
        risk=Choice("false_negative_rate", "false_discovery_rate"),
        guarantee=Choice("expectation", "probability"),
        delta=Number(above=0, below=1),
    )

    bound_: float
    risk_: float

    def __init__(
        self,
        alpha: float = 0.1,
        *,
        risk: Literal["false_negative_rate", "false_discovery_rate"] = "false_negative_rate",
        guarantee: Literal["expectation", "probability"] = "expectation",
        delta: float = 0.05,
    ) -> None:
        self.alpha = alpha
        self.risk = risk
        self.guarantee = guarantee
        self.delta = delta

    def _learn(self, probabilities: csr_array, Y: csr_array, params: dict[str, Any]) -> None:
        """Learn the bound.

        Raises
        ------
        ValueError
            If no bound can guarantee that the risk is at most `alpha`, for example because too many true
            labels have no stored probability, or because there are too few rows.
        """
        alpha, risk, guarantee = params["alpha"], params["risk"], params["guarantee"]
        if risk == "false_discovery_rate" and guarantee == "expectation":
            raise ValueError(
                '`guarantee` must be "probability" if `risk` is "false_discovery_rate", got "expectation"'
            )
        n = Y.shape[0]
        entries = _Entries(*of_known_entries(probabilities, Y))
        if guarantee == "expectation":
            found = entries.largest_bound(lambda risk: (n * risk + 1) / (n + 1) <= alpha)
        else:
            bounds = 1 / (1 + np.exp(-_LOG_ODDS))
            if risk == "false_negative_rate":
                # The set of all candidates is the safest, and then the sets become smaller.
                bounds = np.concatenate([[0.0], bounds])
                risks = entries.false_negative_rates(bounds)
            else:
                bounds = bounds[::-1]
                risks = entries.false_discovery_rates(bounds)
            failed = np.flatnonzero(p_values(risks, n, alpha) > params["delta"])
            last = (failed[0] if len(failed) else len(bounds)) - 1
            found = None if last < 0 else (float(bounds[last]), float(risks[last]))
        if found is None:
            least = entries.false_negative_rates(np.zeros(1))[0] if risk == "false_negative_rate" else 0.0
            raise ValueError(
                f"`alpha` must be a limit that can be guaranteed with these {n} rows, got {alpha}; the "
                f"lowest possible mean risk of these rows is {least:.4g}, and `alpha` must exceed this risk "
                "by a safety margin; use a larger `alpha`, more rows, or probabilities of more labels for "
                "each row"
            )
        self.bound_, self.risk_ = found

    def _chosen(self, probabilities: csr_array, params: dict[str, Any]) -> csr_array:
        check_is_fitted(self, "bound_")
        return kept(probabilities, probabilities.data >= np.float64(self.bound_))


class _Entries:
    """The stored probabilities of all rows, sorted together in decreasing order.

    `rows` has the row of each probability. `hits` states for each probability whether its label is true.
    """

    def __init__(self, probabilities: csr_array, Y: csr_array) -> None:
        self.n = Y.shape[0]
        rows = np.repeat(np.arange(self.n), np.diff(probabilities.indptr))
        order = np.argsort(-probabilities.data, kind="stable")
        self.values = probabilities.data[order].astype(np.float64)
        self.rows = rows[order]
        self.hits = hits_of(probabilities, Y)[order]
        self.n_true = np.diff(Y.indptr)

    def _missed(self) -> NDArray[np.float64]:
        """Return, for each k, the mean false negative rate of all rows if the first k entries are chosen.

        k goes from 0 to the number of entries.
        """
        found = self.hits / np.maximum(self.n_true, 1)[self.rows]
        total = np.count_nonzero(self.n_true)
        return np.maximum(total - np.concatenate([[0.0], np.cumsum(found)]), 0.0) / self.n

    def false_negative_rates(self, bounds: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the mean false negative rate over all rows, for each bound on the probabilities."""
        found: NDArray[np.float64] = self._missed()[np.searchsorted(-self.values, -bounds, side="right")]
        return found

    def false_discovery_rates(self, bounds: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the mean false discovery rate over all rows, for each lower bound on the probabilities.

        For each bound, the entries with a probability of at least this bound are chosen.
        """
        order = np.argsort(self.rows, kind="stable")  # the entries of a row are still in decreasing order
        rows, wrong = self.rows[order], np.cumsum(~self.hits[order])
        starts = np.searchsorted(rows, np.arange(self.n))
        before_row = np.concatenate([[0], wrong])[starts]
        rank = np.arange(len(rows)) - starts[rows] + 1
        rates = (wrong - before_row[rows]) / rank
        # What each entry adds to the rate of its row.
        added = np.empty(len(rows))
        added[order] = rates - np.where(rank > 1, np.concatenate([[0.0], rates])[:-1][: len(rows)], 0.0)
        means = np.maximum(np.concatenate([[0.0], np.cumsum(added)]), 0.0) / self.n
        found: NDArray[np.float64] = means[np.searchsorted(-self.values, -bounds, side="right")]
        return found

    def largest_bound(self, holds: Any) -> tuple[float, float] | None:
        """Return the largest bound whose mean false negative rate satisfies a condition, and this rate.

        `holds` is a function that checks the condition. It takes a rate or an array of rates, and returns for
        each rate whether the rate satisfies the condition. If no bound has such a rate, `largest_bound`
        returns None.
        """
        missed = self._missed()
        if holds(missed[0]):
            return 1.0, float(missed[0])
        # A set ends after the last of equal probabilities.
        ends = np.flatnonzero(np.append(self.values[1:] != self.values[:-1], True)) + 1
        good = ends[holds(missed[ends])] if len(self.values) else ends[:0]
        return (float(self.values[good[0] - 1]), float(missed[good[0]])) if len(good) else None


def p_values(risks: NDArray[np.float64], n: int, alpha: float) -> NDArray[np.float64]:
    """Return the Hoeffding-Bentkus p-values of the hypotheses that the true risks exceed `alpha`.

    Parameters
    ----------
    risks : ndarray
        Mean risk over the `n` rows for each tested bound. A bound is the smallest probability at which a
        label is chosen. All bounds are tested on the same rows. The risk of a row is from 0 to 1.
    n : int
        Number of rows.
    alpha : float
        The limit of the risk.

    Returns
    -------
    ndarray
        The p-values.
    """
    low = np.minimum(risks, alpha)
    with np.errstate(divide="ignore", invalid="ignore"):
        log = np.where(low > 0, low * np.log(low / alpha), 0.0)
    divergence = log + (1 - low) * np.log((1 - low) / (1 - alpha))
    hoeffding = np.exp(-n * divergence)
    # The rounding of n * risk must not raise the count by 1.
    bentkus = np.e * binom.cdf(np.ceil(n * risks - 1e-9), n, alpha)
    found: NDArray[np.float64] = np.minimum(np.minimum(hoeffding, bentkus), 1.0)
    return found

"""Boosted rules in numpy, with two searches for the conditions of a rule. rules_one_by_one.py uses it.

``"definition"`` tries a threshold between any two neighboring values of a feature. ``"boomer"`` repeats what
the public source of mlrl-boomer 0.12.3 does, which is the same except in four places:

1. It visits the values from zero upward in descending order, and stops before the last of them. If only one
   row has the smallest value, the threshold above this value is not tried. The threshold between negative and
   other values is computed without this value, so a rule may cover other rows than in its training.
2. If X is sparse, this row is also missing in the sums of the condition that separates the stored values from
   the zeros. The opposite condition counts it among the zeros. Once a condition has removed the zeros, the
   search still separates the stored values from the zeros, so a condition without an effect may be added.
3. After a condition ``>`` on a feature of a dense X, it compares two wrong values to see whether all
   remaining values are equal. If the two values are equal, the rule gets no further condition on the feature.
4. Without samples of rows, heads are not computed again, and contain the sums of the search.

Sums of the two programs differ by rounding, and conditions on different features may cover the same rows. So
`grow` prefers conditions of another rule among those that are equally good.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array

Search = Literal["definition", "boomer"]
Array = NDArray[np.float64]

LEARNING_RATE = 0.3
L2 = 1.0
EQUALLY_GOOD = 1e-9  # relative difference of qualities below which conditions are equally good
SAME = 1e-9  # relative difference of criteria below which labels share a bin


class Condition(NamedTuple):
    feature: int
    operator: str  # "<=" or ">"
    threshold: float
    cut: float  # the largest value that satisfies "<=" in the training set


@dataclass
class Rule:
    body: list[Condition]
    head: Array  # of shape (n_labels,), with the learning rate


class Sums(NamedTuple):
    """Sums over the rows that candidates cover. The Hessian is ``diag(sizes) - products``."""

    gradients: Array  # of shape (n_candidates, n_labels)
    sizes: Array  # sums of absolute gradients, of the same shape
    products: Array  # sums of the outer products of gradients, of shape (n_candidates, n_labels, n_labels)


def gradients_of(scores: Array, signs: Array) -> Array:
    """Return the gradients of the example-wise logistic loss, of shape (n_samples, n_labels)."""
    z = -signs * scores
    most = np.maximum(0.0, z.max(axis=1, keepdims=True))
    terms = np.exp(z - most)
    return -signs * terms / (np.exp(-most) + terms.sum(axis=1, keepdims=True))


def bins_of(criteria: Array, ratio: float) -> NDArray[np.intp]:
    """Return the bin of each label, of shape (n_candidates, n_labels), or -1 for labels with criterion 0."""
    bins = np.full(criteria.shape, -1)
    n_used = np.zeros(len(criteria), dtype=int)
    for sign in (-1, 1):
        members = np.sign(criteria) == sign
        n_members = members.sum(axis=1)
        n_bins = np.minimum(np.maximum(np.ceil(ratio * n_members - 1e-9), 1), n_members).astype(int)
        low = np.where(members, criteria, np.inf).min(axis=1)
        high = np.where(members, criteria, -np.inf).max(axis=1)
        with np.errstate(all="ignore"):  # candidates without members have infinite limits
            same = high - low <= SAME * np.maximum(abs(low), abs(high))
            place = np.floor((criteria - low[:, None]) / ((high - low) / np.maximum(n_bins, 1))[:, None])
        place = np.where(same[:, None] | ~np.isfinite(place), 0, place)
        place = np.minimum(place, np.maximum(n_bins - 1, 0)[:, None]).astype(int)
        bins = np.where(members, place + n_used[:, None], bins)
        n_used += n_bins
    return bins


def heads_of(sums: Sums, ratio: float | None) -> tuple[Array, Array]:
    """Return the heads of candidates, without the learning rate, and their qualities (lower is better)."""
    g, label = sums.gradients, np.arange(sums.gradients.shape[1])
    H = -sums.products
    H[:, label, label] += sums.sizes
    if ratio is None:
        H[:, label, label] += L2
        heads = np.linalg.solve(H, -g[..., None])[..., 0]
        return heads, 0.5 * (g * heads).sum(axis=1)
    diagonal = H[:, label, label]
    bins = bins_of(-g / (diagonal + L2), ratio)
    n_bins = max(int(bins.max()) + 1, 1)
    member = (bins[..., None] == np.arange(n_bins)).astype(float)
    small = np.swapaxes(member, 1, 2) @ H @ member
    # Pairs of labels in the same bin are left out (equations 18 to 20 of the paper). Empty bins get a 1, so
    # that the matrix stays invertible.
    sizes = member.sum(axis=1)
    of_bin = np.arange(n_bins)
    small[:, of_bin, of_bin] = (diagonal[..., None] * member).sum(axis=1) + L2 * sizes + (sizes == 0)
    of_bins = (g[..., None] * member).sum(axis=1)
    values = np.linalg.solve(small, -of_bins[..., None])[..., 0]
    return (member * values[:, None]).sum(axis=2), 0.5 * (of_bins * values).sum(axis=1)


class Twin:
    """A training set and the scores that the rules so far give its rows.

    X is dense, or a csc_array. Only the search "boomer" treats them differently. With `rng`, each rule is
    grown on a bootstrap sample, and each condition on a sample of the features.
    """

    def __init__(self, X, Y, ratio: float | None, search: Search, rng: np.random.Generator | None = None):
        self.X, self.ratio, self.search, self.rng = X, ratio, search, rng
        self.signs = np.where(np.asarray(Y) > 0, 1.0, -1.0)
        self.scores = np.zeros(self.signs.shape)
        self.gradients = gradients_of(self.scores, self.signs)

    def column(self, feature: int, covered: NDArray[np.bool_]) -> tuple[NDArray[np.intp], Array, bool]:
        """Return the covered rows with a stored value, their values in ascending order, and whether X stores
        only nonzero values of the feature.
        """
        if isinstance(self.X, csc_array):
            part = slice(*self.X.indptr[feature : feature + 2])
            rows, values = self.X.indices[part], self.X.data[part].astype(float)
        else:
            rows, values = np.arange(len(self.X)), self.X[:, feature].astype(float)
        sparse = len(rows) < self.X.shape[0]
        rows, values = rows[covered[rows]], values[covered[rows]]
        order = np.argsort(values, kind="stable")
        return rows[order], values[order], sparse

    def sums(self, rows, weights: Array, ends=None) -> Sums:
        """Return sums over the first rows, for each number of rows in `ends` (ascending, by default all)."""
        g, w = self.gradients[rows], weights[rows][:, None]
        ends = np.array([len(g)]) if ends is None else np.asarray(ends)
        starts = np.concatenate([[0], ends[:-1]])
        products = [(w[a:b] * g[a:b]).T @ g[a:b] for a, b in zip(starts, ends, strict=True)]
        zero = np.zeros((1, g.shape[1]))
        return Sums(
            np.concatenate([zero, np.cumsum(w * g, axis=0)])[ends],
            np.concatenate([zero, np.cumsum(w * abs(g), axis=0)])[ends],
            np.cumsum(products, axis=0),
        )

    def candidates(self, feature: int, covered: NDArray[np.bool_], weights: Array, total: Sums):
        """Return the conditions on a feature, and the sums of the rows that they cover."""
        rows, values, sparse = self.column(feature, covered)
        n_sampled = int((weights[covered] > 0).sum())
        n_zeros = int(covered.sum()) - len(rows)
        boomer = self.search == "boomer"
        separate = sparse and (n_zeros > 0 or boomer)
        if len(rows) == 0 or (not separate and values[0] == values[-1]):
            return [], None
        n_negative = int((values < 0).sum())
        found: list[tuple[Condition, int]] = []
        parts: list[Sums] = []

        def scan(at: NDArray[np.intp], operator: str) -> int:
            """Collect the conditions between the values at `at`. Return the number of rows that count."""
            live = np.flatnonzero(weights[rows[at]] > 0)
            ends = []
            for n, place in enumerate(live[1:], 1):
                before, here = values[at[place - 1]], values[at[place]]
                if before != here:
                    cut = min(before, here)
                    found.append((Condition(feature, operator, (before + here) / 2, cut), n))
                    ends.append(n)
            if len(live):
                parts.append(self.sums(rows[at[live]], weights, [*ends, len(live)]))
            return len(live)

        below = scan(np.arange(n_negative), "<=")
        of_boundary = len(found)
        descending = np.arange(len(rows) - 1, n_negative - 1, -1)
        sampled = np.flatnonzero(weights[rows[descending]] > 0)
        if boomer and len(sampled) and sampled[0] < len(descending) - 1:
            descending = descending[:-1]
        above = scan(descending, ">")
        last = values[descending[-1]] if len(descending) else 0.0
        if below:  # between the negative values and the other values
            lower, upper = values[n_negative - 1], 0.0 if separate else last
            found.insert(of_boundary, (Condition(feature, "<=", (lower + upper) / 2, lower), below))
        if above:  # between the zeros and the positive values
            found.append((Condition(feature, ">", last / 2, 0.0), above if separate else 0))
        if not found:
            return [], None
        sums = Sums(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
        opposite = {"<=": ">", ">": "<="}
        conditions = [c for c, _ in found]
        conditions += [c._replace(operator=opposite[c.operator]) for c in conditions]
        n_covered = np.array([n for _, n in found])
        n_covered = np.concatenate([n_covered, np.where(n_covered > 0, n_sampled - n_covered, 0)])
        usable = n_covered > 0
        if not boomer:
            usable &= n_covered < n_sampled
        both = (np.concatenate([a, b - a])[usable] for a, b in zip(sums, total, strict=True))
        return [c for c, ok in zip(conditions, usable, strict=True) if ok], Sums(*both)

    def grow(self, weights: Array, preferred: list[Condition] = ()):
        """Return the conditions of the next rule, the rows that they cover, and the head of the search."""
        covered, best, body, head = np.ones(len(self.signs), dtype=bool), np.inf, [], None
        settled: set[int] = set()  # features without further conditions
        n_features = self.X.shape[1]
        while (weights[covered] > 0).sum() > 1:
            rows = np.flatnonzero(covered & (weights > 0))
            total = self.sums(rows, weights)
            features = range(n_features)
            if self.rng is not None:
                n_drawn = int(np.log2(n_features - 1) + 1)
                features = self.rng.choice(n_features, n_drawn, replace=False)
            tried = []
            for feature in features:
                if feature not in settled:
                    conditions, sums = self.candidates(int(feature), covered, weights, total)
                    if conditions:
                        heads, qualities = heads_of(sums, self.ratio)
                        limit = qualities.min() * (1 - EQUALLY_GOOD)
                        tried += [
                            (qualities[n], conditions[n], heads[n])
                            for n in np.flatnonzero(qualities <= limit)
                        ]
            limit = min((quality for quality, *_ in tried), default=np.inf)
            if limit >= best:
                break
            tied = [one for one in tried if one[0] - limit <= EQUALLY_GOOD * abs(limit)]
            best, chosen, head = next((one for one in tied if is_in(one[1], preferred)), tied[0])
            if self.search == "boomer" and chosen.operator == ">":
                _, values, sparse = self.column(chosen.feature, covered)
                n_below = int((values <= chosen.cut).sum())
                if not sparse and values[n_below] == values[len(values) - n_below - 1]:
                    settled.add(chosen.feature)
            body.append(chosen)
            covered &= satisfies(self.X, chosen, chosen.cut)
        return body, covered, head

    def add(self, rows: NDArray[np.intp], head: Array):
        self.scores[rows] += head
        self.gradients[rows] = gradients_of(self.scores[rows], self.signs[rows])

    def fit(self, n_rules: int, preferred: list[Rule] = ()) -> list[Rule]:
        """Return rules, the default rule first. The rules in `preferred` decide between conditions that are
        equally good.
        """
        n, ones = len(self.signs), np.ones(len(self.signs))
        rules: list[Rule] = []
        while len(rules) < n_rules:
            weights, body, covered, head = ones, [], np.ones(n, dtype=bool), None
            if rules:
                if self.rng is not None:
                    weights = np.bincount(self.rng.integers(0, n, n), minlength=n).astype(float)
                body, covered, head = self.grow(
                    weights, preferred[len(rules)].body if len(rules) < len(preferred) else ()
                )
                if not body:
                    break
            rows = np.flatnonzero(covered)
            if head is None or self.search == "definition" or self.rng is not None:
                head = heads_of(self.sums(rows, ones), self.ratio)[0][0]
            rules.append(Rule(body, (LEARNING_RATE if rules else 1.0) * head))
            self.add(rows, rules[-1].head)
        return rules


def satisfies(X, condition: Condition, limit: float) -> NDArray[np.bool_]:
    """Return which rows satisfy a condition, with `limit` as its threshold."""
    values = X[:, [condition.feature]]
    below = (values.toarray() if isinstance(values, csc_array) else values).ravel() <= limit
    return below if condition.operator == "<=" else ~below


def is_in(condition: Condition, body: list[Condition]) -> bool:
    """Whether a body has a condition, up to the rounding of thresholds."""
    return any(
        condition[:2] == other[:2] and np.isclose(condition.threshold, other.threshold, rtol=1e-6, atol=1e-7)
        for other in body
    )

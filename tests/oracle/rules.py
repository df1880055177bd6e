"""Boosted multi-label rules from their definitions: dense and slow, one condition at a time.

The scores p of a row are the sum of the heads of the rules that cover it; its labels are y_k = 1 or -1. A
head is a Newton step on the loss of the covered rows, with gradient g, Hessian H and an L2 weight w:

    head = -(H + w I)^-1 g        quality = g.head + head.H head / 2 + w |head|^2 / 2 = g.head / 2

Labels may be binned by -g_k / (H_kk + w); a head then has one value per bin. A rule grows condition by
condition towards the least quality. Sums here and elsewhere differ by rounding, and a label at the edge of a
bin may then fall on either side: `heads` gives every head that rounding allows.
"""

import itertools
import math
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.special import expit

ROUNDING = 1e-12  # error of a sum, relative to the sum of absolute values
SAME = 1e-9  # relative difference below which criteria share a bin
MANY = 300  # if rounding allows more heads than this, they are not checked

OPERATORS = ["<=", ">", "==", "!="]


@dataclass(frozen=True)
class Settings:
    loss: str = "example-wise-logistic"
    head: str = "complete"
    label_binning: float | None = 0.04
    min_bins: int = 1
    max_bins: int | None = None
    hessian: str = "paper"
    step: str = "newton"
    learning_rate: float = 0.3
    l2: float = 1.0
    min_coverage: int = 1
    max_conditions: int | None = None


def value(loss, p, y):
    """Loss of one row."""
    z = -y * p
    if loss == "label-wise-logistic":
        return np.sum(np.logaddexp(0, z))
    most = max(0.0, z.max())
    return most + np.log(np.exp(-most) + np.sum(np.exp(z - most)))


def gradient(loss, p, y):
    z = -y * p
    if loss == "label-wise-logistic":
        return -y * expit(z)
    most = max(0.0, z.max())
    return -y * np.exp(z - most) / (np.exp(-most) + np.sum(np.exp(z - most)))


def hessian(loss, p, y):
    q = abs(gradient(loss, p, y))
    H = np.zeros((len(q), len(q))) if loss == "label-wise-logistic" else -np.outer(y * q, y * q)
    np.fill_diagonal(H, q * (1 - q))
    return H


def count_bins(n_labels, settings):
    """Bins of the `n_labels` labels of one sign."""
    wanted = max(math.ceil(settings.label_binning * n_labels - 1e-9), settings.min_bins)
    return min(wanted, n_labels if settings.max_bins is None else settings.max_bins, n_labels)


def place(criterion, low, high, n_bins):
    """The bin of a criterion among those of its sign, before rounding down. Equal criteria share bin 0."""
    if high - low <= SAME * max(abs(low), abs(high)):
        return 0.0
    return (criterion - low) / ((high - low) / n_bins)


def bins(criteria, settings):
    """Lists of labels, none of them empty. A label without gradient is in none."""
    groups = []
    for sign in (-1, 1):
        members = {k: c for k, c in enumerate(criteria) if sign * c > 0}
        if not members:
            continue
        n_bins = count_bins(len(members), settings)
        low, high = min(members.values()), max(members.values())
        of_sign = [[] for _ in range(n_bins)]
        for k, c in members.items():
            at = math.floor(place(c, low, high, n_bins))
            of_sign[min(at, n_bins - 1)].append(k)
        groups += [group for group in of_sign if group]
    return groups


def possible_bins(criteria, noise, settings):
    """Every outcome of `bins` for criteria within `noise` of these."""
    signs = [(np.sign(c),) if abs(c) > wide else (-1, 0, 1) for c, wide in zip(criteria, noise, strict=True)]
    for chosen in itertools.product(*signs):
        sides = []
        for sign in (-1, 1):
            members = [k for k, s in enumerate(chosen) if s == sign]
            if not members:
                continue
            n_bins = count_bins(len(members), settings)
            low, high = min(criteria[k] for k in members), max(criteria[k] for k in members)
            places = []
            for k in members:
                around = [place(criteria[k] + by * max(noise), low, high, n_bins) for by in (-4, 4)]
                least, most = (min(max(math.floor(at), 0), n_bins - 1) for at in around)
                if max(abs(low), abs(high)) <= max(noise):  # all criteria may be 0
                    least, most = 0, n_bins - 1
                places.append(range(least, most + 1))
            sides.append([dict(zip(members, where, strict=True)) for where in itertools.product(*places)])
        for placed in itertools.product(*sides):
            groups = []
            for side in placed:
                groups += [[k for k in side if side[k] == b] for b in sorted(set(side.values()))]
            yield groups


def aggregate(g, H, groups, l2, kind):
    """Gradient and regularized Hessian of one score per bin; `kind` "paper" leaves out pairs within a bin."""
    member = np.zeros((len(groups), len(g)))  # 1 if a label is in a bin
    for b, group in enumerate(groups):
        member[b, group] = 1
    small_H = member @ H @ member.T
    if kind == "paper":
        np.fill_diagonal(small_H, member @ H.diagonal())
    return member @ g, small_H + l2 * np.diag(member.sum(axis=1))


def step(g, H, groups, settings):
    """The Newton step with one value per bin, and its quality."""
    small_g, small_H = aggregate(g, H, groups, settings.l2, settings.hessian)
    small = np.linalg.solve(small_H, -small_g)
    p = np.zeros(len(g))
    for group, score in zip(groups, small, strict=True):
        p[group] = score
    return p, small_g @ small / 2


def criteria(g, H, l2):
    return -g / (H.diagonal() + l2)


def complete_head(g, H, settings):
    if settings.label_binning is None:
        return step(g, H, [[k] for k in range(len(g))], settings)
    return step(g, H, bins(criteria(g, H, settings.l2), settings), settings)


def single_label_head(g, H, settings, label=None):
    """The head of `label`, or of the best label."""
    scores = criteria(g, H, settings.l2)
    qualities = g * scores / 2
    label = int(np.argmin(qualities)) if label is None else label
    return np.where(np.arange(len(g)) == label, scores, 0.0), qualities[label]


def backtrack(objective, slope):
    """The largest of 1, 1/2, 1/4, … at which the objective falls by 1e-4 of what its slope predicts."""
    length = 1.0
    while objective(length) > objective(0.0) + 1e-4 * length * slope and length > 1e-12:
        length /= 2
    return length


def covered_by(values, operator, threshold):
    """Which values satisfy a condition; NaN satisfies none."""
    if operator == "!=":
        return (values != threshold) & ~np.isnan(values)
    return {"<=": np.less_equal, ">": np.greater, "==": np.equal}[operator](values, threshold)


def covered_by_all(X, body):
    """Which rows satisfy all conditions."""
    holds = np.ones(len(X), dtype=bool)
    for feature, operator, threshold in body:
        holds &= covered_by(X[:, feature], operator, threshold)
    return holds


def midpoint(low, high):
    """A threshold of single precision between neighbouring values: low <= threshold < high."""
    threshold = np.float32(float(low) + (float(high) - float(low)) / 2)
    return threshold if threshold < high else low


class Boosting:
    """Training rows and the scores that the rules so far give them.

    X (n_rows, n_features) and Y (n_rows, n_labels) of 0/1 are dense; `nominal` lists columns.
    """

    def __init__(self, X, Y, settings, weights=None, nominal=()):
        self.X = np.asarray(X, dtype=np.float32)
        self.y = np.where(np.asarray(Y) > 0, 1.0, -1.0)
        self.weights = np.ones(len(self.X)) if weights is None else np.asarray(weights, dtype=float)
        self.settings = settings
        self.nominal = nominal
        n_rows, n_labels = self.y.shape
        self.scores = np.zeros((n_rows, n_labels))
        self.gradients = np.zeros((n_rows, n_labels))
        self.hessians = np.zeros((n_rows, n_labels, n_labels))
        self.add(np.zeros(n_labels), np.arange(n_rows))

    def add(self, head, rows):
        """Add a head to the scores of the rows."""
        for n in rows:
            self.scores[n] += head
            self.gradients[n] = gradient(self.settings.loss, self.scores[n], self.y[n])
            self.hessians[n] = hessian(self.settings.loss, self.scores[n], self.y[n])

    def objective(self, rows, head=0.0):
        """Loss of the rows after `head` is added to their scores, plus the L2 term of the head."""
        losses = [self.weights[n] * value(self.settings.loss, self.scores[n] + head, self.y[n]) for n in rows]
        return math.fsum(losses) + self.settings.l2 * np.sum(np.square(head)) / 2

    def objective_along(self, rows, head, towards, length):
        return self.objective(rows, head + length * towards)

    def sums(self, rows):
        """g and H of the rows."""
        weights = self.weights[rows]
        return weights @ self.gradients[rows], np.einsum("n,nkj->kj", weights, self.hessians[rows])

    def head(self, rows, label=None):
        """Head of a rule that covers the rows, and its quality."""
        if self.settings.head == "complete":
            return complete_head(*self.sums(rows), self.settings)
        return single_label_head(*self.sums(rows), self.settings, label)

    def heads(self, rows, label=None, complete=False):
        """Every head that rounding allows, with its quality. Empty if there are more than MANY."""
        g, H = self.sums(rows)
        if self.settings.head != "complete" and not complete:
            return [single_label_head(g, H, self.settings, label)]
        if self.settings.label_binning is None:
            return [complete_head(g, H, self.settings)]
        c = criteria(g, H, self.settings.l2)
        noise = ROUNDING * (self.weights[rows] @ abs(self.gradients[rows])) / (np.diag(H) + self.settings.l2)
        ways = list(itertools.islice(possible_bins(c, noise, self.settings), MANY + 1))
        return [] if len(ways) > MANY else [step(g, H, groups, self.settings) for groups in ways]

    def default_head(self):
        """Head of the rule without conditions: a complete head of all rows, not shrunken."""
        rows = np.arange(len(self.y))
        if self.settings.step == "newton":
            return complete_head(*self.sums(rows), self.settings)[0]
        loss, head = self.settings.loss, np.zeros(self.y.shape[1])
        for _ in range(50):
            g = sum(w * gradient(loss, head, y) for w, y in zip(self.weights, self.y, strict=True))
            g += self.settings.l2 * head
            H = sum(w * hessian(loss, head, y) for w, y in zip(self.weights, self.y, strict=True))
            towards, _ = complete_head(g, H, self.settings)
            before, line = self.objective(rows, head), partial(self.objective_along, rows, head, towards)
            head = head + backtrack(line, g @ towards) * towards
            if before - self.objective(rows, head) < 1e-10 * before:
                break
        return head

    def shrunken(self, head, rows):
        """The head that a rule adds to the scores of the rows that it covers."""
        if self.settings.step == "safeguarded":
            g, _ = self.sums(rows)
            head = head * backtrack(partial(self.objective_along, rows, 0.0, head), g @ head)
        return self.settings.learning_rate * head

    def conditions(self, rows):
        """(feature, operator, threshold, covered rows) of every condition that drops some of the rows."""
        for feature in range(self.X.shape[1]):
            values = self.X[rows, feature]
            distinct = np.unique(values[~np.isnan(values)])
            if feature in self.nominal:
                values_told_apart = distinct if len(distinct) > 1 else []
                tried = [(operator, v) for v in values_told_apart for operator in ("==", "!=")]
            else:
                middles = [midpoint(low, high) for low, high in itertools.pairwise(distinct)]
                tried = [(operator, t) for t in middles for operator in ("<=", ">")]
            for operator, threshold in tried:
                covered = rows[covered_by(values, operator, threshold)]
                if max(self.settings.min_coverage, 1) <= len(covered) < len(rows):
                    yield feature, operator, threshold, covered

    def sampled_rows(self):
        return np.flatnonzero(self.weights > 0)

    def may_grow(self, rows, n_conditions):
        most = self.settings.max_conditions
        return len(rows) > self.settings.min_coverage and (most is None or n_conditions < most)

    def grow(self):
        """Conditions of the next rule (none if none drops a row), and the label of a single-label head."""
        rows, body, best, label = self.sampled_rows(), [], math.inf, None
        while self.may_grow(rows, len(body)):
            found = None
            for feature, operator, threshold, covered in self.conditions(rows):
                head, quality = self.head(covered, label)
                if quality < best:
                    found, best = (feature, operator, threshold, covered, head), quality
            if found is None:
                break
            body.append(found[:3])
            rows = found[3]
            if self.settings.head != "complete":
                label = int(np.argmax(abs(found[4])))
        return body, label

    def covered(self, body):
        """Training rows that satisfy all conditions."""
        return np.flatnonzero(covered_by_all(self.X, body))

    def fit(self, n_rules):
        """List of (body, head), the default rule first."""
        rules = [([], self.default_head())]
        self.add(rules[0][1], range(len(self.y)))
        while len(rules) < n_rules:
            body, label = self.grow()
            if not body:
                break
            rows = self.covered(body)
            head = self.shrunken(self.head(rows, label)[0], rows)
            rules.append((body, head))
            self.add(head, rows)
        return rules


def decision(rules, X):
    """Sums of the heads of the rules that cover each row."""
    X = np.asarray(X, dtype=np.float32)
    scores = np.zeros((len(X), len(rules[0][1])))
    for body, head in rules:
        scores[covered_by_all(X, body)] += head
    return scores


def rows_covered(model, X):
    """Whether each rule covers each row, of shape (n_samples, n_rules)."""
    comparisons = [np.less_equal, np.greater, np.equal, np.not_equal]
    X, rules = np.asarray(X, dtype=np.float32), model.rules_
    result = np.ones((len(X), len(rules)), dtype=bool)
    for rule in range(len(rules)):
        for at in range(*rules.body_indptr[rule : rule + 2]):
            values = X[:, rules.feature[at]]
            compare = comparisons[rules.operator[at]]
            result[:, rule] &= ~np.isnan(values) & compare(values, rules.threshold[at])
    return result


def set_costs(p, sets):
    """Example-wise losses of label sets at scores p, up to a constant that all sets share."""
    return ((p > 0) != (sets > 0)) @ (2 * np.sinh(abs(p)))


def marginals(p, sets):
    """P(y_k = 1), where P(y) over `sets` is proportional to 1 / (1 + sum_k e^{-y_k p_k})."""
    Z = np.where(np.asarray(sets) > 0, -p, p)
    least = max(0.0, Z.max(axis=1).min())
    with np.errstate(over="ignore"):  # sets whose terms overflow have probability 0
        P = 1 / (np.exp(-least) + np.exp(Z - least).sum(axis=1))
    return P / P.sum() @ (np.asarray(sets) > 0)

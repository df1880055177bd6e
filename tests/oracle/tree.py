"""Fits label trees by their definition, for a given tree. Nodes are fitted by scipy, beams found by sorting.

The classifiers of a node minimize the objective of `oracle.linear` over the rows of the node. These are the
rows that have a label below the node and, if `routed`, the rows that have the node in their beam. In the
fit, a beam has up to a quarter more nodes, rounded up, than in a prediction, see `likely`. The probability
of a node or label with margin s is exp(-max(0, 1 - s)^3), or 1/(1 + exp(-s)) if `logistic`. The score of a
label is the logarithm of its probability, plus `path_weight` times the logarithm of the probability of its
leaf."""

from itertools import pairwise

import numpy as np

from oracle import linear


class Tree:
    """The children and labels of each node of a fitted model."""

    def __init__(self, model):
        ends, labels = model.node_children_, model.node_label_ends_
        self.children = [list(range(a, b)) for a, b in pairwise(ends)]
        self.labels = [list(model.leaf_labels_[a:b]) for a, b in pairwise(labels)]
        self.roots = list(range(ends[0]))

    def below(self, node):
        """Return the labels below a node."""
        return self.labels[node] + [label for child in self.children[node] for label in self.below(child)]


def log_probability(margin, logistic=False):
    return -np.logaddexp(0, -margin) if logistic else -(max(0.0, 1 - margin) ** 3)


def best(visits, beam):
    """Return the `beam` nodes with the highest scores. If scores are equal, lower nodes come first."""
    return dict(sorted(visits.items(), key=lambda visit: (-visit[1], visit[0]))[:beam])


def likely(visits, beam):
    """Return the `beam` best nodes, and the others with exp(-7) times the highest probability or more."""
    least = min(max(visits.values()) - 7, min(best(visits, beam).values()))
    return {node: score for node, score in visits.items() if score >= least}


class Model:
    """One tree, fitted level by level."""

    def __init__(
        self,
        tree,
        root,
        X,
        Y,
        C,
        m,
        beam,
        normalize=True,
        fit_intercept=True,
        path_weight=1.0,
        routed=True,
        logistic=False,
    ):
        self.logistic = logistic
        self.tree, self.root, self.path_weight = tree, root, path_weight
        self.normalize, self.fit_intercept = normalize, fit_intercept
        A = linear.design(X, normalize, fit_intercept)
        self.weights = {}
        beams = [{root: 0.0} for _ in A]
        level = [root]
        while level:
            for node in level:
                below = self.tree.below(node)
                rows = [i for i in range(len(A)) if (routed and node in beams[i]) or Y[i, below].any()]
                self.weights[node] = [
                    linear.minimum(A[rows], 2.0 * Y[rows][:, labels].any(axis=1) - 1, C, m[rows], logistic)
                    for labels in self.outputs(node)
                ]
            beams = [
                likely(self.step(a, visits, beam + -(-beam // 4)), beam)
                for a, visits in zip(A, beams, strict=True)
            ]
            level = [child for node in level for child in self.tree.children[node]]

    def outputs(self, node):
        """Return the labels of each output of a node. An output is a child or a label of a leaf."""
        children = [self.tree.below(child) for child in self.tree.children[node]]
        return children + [[label] for label in self.tree.labels[node]]

    def step(self, a, visits, beam):
        found = {}
        for node, score in visits.items():
            if not self.tree.children[node]:
                found[node] = score
            for child, w in zip(self.tree.children[node], self.weights[node], strict=False):
                found[child] = score + log_probability(a @ w, self.logistic)
        return best(found, beam)

    def scores(self, x, beam):
        """Return the score of each label that the beam reaches."""
        a = linear.design([x], self.normalize, self.fit_intercept)[0]
        visits = {self.root: 0.0}
        while any(self.tree.children[node] for node in visits):
            visits = self.step(a, visits, beam)
        return {
            label: self.path_weight * score + log_probability(a @ w, self.logistic)
            for node, score in visits.items()
            for label, w in zip(self.tree.labels[node], self.weights[node], strict=True)
        }

"""The ranking measures written out from their definitions, one row and one rank at a time."""

import math


def ranking(row, k):
    """The k best of a row given as {label: score}: higher score first, then lower label."""
    candidates = [label for label, score in row.items() if score != -math.inf]
    return sorted(candidates, key=lambda label: (-row[label], label))[:k]


def discount(rank):
    return 1.0 / math.log2(rank + 1)


def ideal(hits):
    return sum(discount(rank) for rank in range(1, hits + 1))


def precision(truth, rows, k):
    return sum(len(truth[i] & set(ranking(row, k))) / k for i, row in enumerate(rows)) / len(rows)


def recall(truth, rows, k):
    shares = [len(y & set(ranking(row, k))) / len(y) for y, row in zip(truth, rows, strict=True) if y]
    return sum(shares) / len(shares) if shares else math.nan


def gain(y, ranked, propensity):
    return sum(discount(rank) / propensity[j] for rank, j in enumerate(ranked, start=1) if j in y)


def ndcg(truth, rows, k):
    certain = dict.fromkeys(set().union(*truth, *rows), 1.0)
    total = 0.0
    for y, row in zip(truth, rows, strict=True):
        if y:
            total += gain(y, ranking(row, k), certain) / ideal(min(k, len(y)))
    return total / len(rows)


def propensities(truth, n_labels, a, b):
    constant = (math.log(len(truth)) - 1) * (b + 1) ** a
    counts = [sum(label in y for y in truth) for label in range(n_labels)]
    return [1 / (1 + constant * (count + b) ** -a) for count in counts]


def psp(truth, rows, propensity, k):
    reached = best = 0.0
    for y, row in zip(truth, rows, strict=True):
        reached += sum(1 / propensity[j] for j in ranking(row, k) if j in y)
        best += sum(sorted((1 / propensity[j] for j in y), reverse=True)[:k])
    return reached / best if best else math.nan


def psndcg(truth, rows, propensity, k):
    reached = best = 0.0
    for y, row in zip(truth, rows, strict=True):
        if y:
            weight = 1 / ideal(min(k, len(y)))
            reached += weight * gain(y, ranking(row, k), propensity)
            best += weight * gain(y, sorted(y, key=lambda j: (propensity[j], j))[:k], propensity)
    return reached / best if best else math.nan

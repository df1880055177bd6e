"""Iterative stratification by algorithm 1 of Sechidis et al. (2011), written without regard to speed."""

import numpy as np


def iterative_stratification(Y, shares):
    """The part of each row. Rows are taken in order, and ties go to the first part."""
    Y = np.asarray(Y)
    n_rows, n_labels = Y.shape
    room = [n_rows * share for share in shares]
    wanted = [[Y[:, label].sum() * share for share in shares] for label in range(n_labels)]
    part = [None] * n_rows
    while None in part:
        left = [row for row in range(n_rows) if part[row] is None]
        counts = [sum(Y[row, label] for row in left) for label in range(n_labels)]
        rare = [(count, label) for label, count in enumerate(counts) if count]
        if not rare:  # rows without labels
            for row in left:
                chosen = room.index(max(room))
                part[row] = chosen
                room[chosen] -= 1
            break
        label = min(rare)[1]
        for row in left:
            if not Y[row, label]:
                continue
            most = max(wanted[label])
            among = [j for j, want in enumerate(wanted[label]) if want >= most - 1e-9]
            chosen = max(among, key=lambda j: (room[j], -j))
            part[row] = chosen
            room[chosen] -= 1
            for other in range(n_labels):
                wanted[other][chosen] -= Y[row, other]
    return np.array(part)

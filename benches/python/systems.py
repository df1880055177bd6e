"""The systems that are measured. Each is a class with the same methods.

``read`` converts the prepared files to the arguments of ``fit``, and is never timed. ``fit``, ``load`` and
``predict`` are timed. ``predict`` returns predictions in the form of the system, for many rows or for one
row. ``top_labels`` converts these predictions to label numbers, with the best label first, and is not timed.
Constructing a system imports its library. A worker therefore imports only one library, and neither the time
nor the memory of the import is counted for the fit.
"""

from collections.abc import Mapping
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import scipy.sparse as sp

TOP = 5  # number of labels that are predicted per row, which P@5 needs


class System:
    """Base class of the systems. It has the training matrices and the number of threads."""

    title: str  # the name of the system in the tables
    package: str  # the distribution whose version the tables report
    whole_up_to: float = inf  # with more labels than this, only a sample of the labels is fitted

    seed: int = 0  # used by systems that accept a seed

    def __init__(self, n_threads: int):
        self.n_threads = n_threads
        self.model: Any = None

    def read(self, data: Path, scratch: Path) -> tuple:
        """Return the arguments of ``fit``: X as a float32 CSR matrix with rows of unit length, and Y as a
        float32 CSR matrix of 0 and 1.
        """
        return sp.load_npz(data / "X_train.npz"), sp.load_npz(data / "Y_train.npz")

    def top_labels(self, answer) -> np.ndarray:
        """Return label numbers of shape (n, TOP), with the best label first, from a CSR matrix of scores.
        Missing labels are -1.
        """
        answer = answer.tocoo()
        order = np.lexsort((answer.col, -answer.data, answer.row))
        rows, cols = answer.row[order], answer.col[order]
        rank = np.arange(len(rows)) - np.searchsorted(rows, rows)
        labels = np.full((answer.shape[0], TOP), -1)
        kept = rank < TOP
        labels[rows[kept], rank[kept]] = cols[kept]
        return labels


class ManyLabel(System):
    title = "manylabel DiSMECClassifier(C=1)"
    package = "manylabel"

    def __init__(self, n_threads):
        super().__init__(n_threads)
        import manylabel

        self.library = manylabel

    def fit(self, X, Y):
        self.model = self.library.DiSMECClassifier(C=1.0, random_state=self.seed, n_jobs=self.n_threads).fit(
            X, Y
        )

    def save(self, folder: Path):
        self.model.save(folder / "model.safetensors")

    def load(self, folder: Path):
        self.model = self.library.load(folder / "model.safetensors")

    def predict(self, X):
        return self.model.predict_topk(X, TOP)


class ManyLabelDefaults(ManyLabel):
    title = "manylabel DiSMECClassifier()"

    def fit(self, X, Y):
        self.model = self.library.DiSMECClassifier(n_jobs=self.n_threads).fit(X, Y)


class ManyLabelTree(ManyLabel):
    title = "manylabel LabelTreeClassifier()"
    n_trees = 1

    def fit(self, X, Y):
        self.model = self.library.LabelTreeClassifier(
            n_trees=self.n_trees, random_state=self.seed, n_jobs=self.n_threads
        ).fit(X, Y)


class ManyLabelTrees(ManyLabelTree):
    title = "manylabel LabelTreeClassifier(n_trees=3)"
    n_trees = 3


class ManyLabelBlocks(ManyLabel):
    title = "manylabel blocks: 4 of DiSMEC, 2 routes"

    def __init__(self, n_threads):
        super().__init__(n_threads)
        from manylabel.partition.choice import default_lam

        self.default_lam = default_lam

    def fit(self, X, Y):
        self.model = self.library.BlockPartitionClassifier(
            n_blocks=4, n_routes=2, lam=self.default_lam(Y), random_state=0, n_jobs=self.n_threads
        ).fit(X, Y)


class OneVsRest(System):
    title = "scikit-learn OneVsRest(LinearSVC(C=1))"
    package = "scikit-learn"
    whole_up_to = 1000
    settings: Mapping[str, Any] = MappingProxyType({"C": 1})

    def __init__(self, n_threads):
        super().__init__(n_threads)
        import joblib
        from sklearn.multiclass import OneVsRestClassifier
        from sklearn.svm import LinearSVC

        self.joblib = joblib
        self.model = OneVsRestClassifier(LinearSVC(**self.settings), n_jobs=n_threads)

    def read(self, data, scratch):
        X, Y = super().read(data, scratch)
        return X.astype(np.float64), Y  # LinearSVC would convert X again for every label

    def fit(self, X, Y):
        # LIBLINEAR releases the interpreter lock. With threads, all memory is in the process that is
        # measured.
        with self.joblib.parallel_config(backend="threading"):
            self.model.fit(X, Y)

    def save(self, folder):
        self.joblib.dump(self.model, folder / "model.joblib")

    def load(self, folder):
        self.model = self.joblib.load(folder / "model.joblib")

    def predict(self, X):
        scores = self.model.decision_function(X)
        best = np.argpartition(-scores, TOP - 1, axis=1)[:, :TOP]
        return np.take_along_axis(best, np.argsort(-np.take_along_axis(scores, best, 1), axis=1), 1)

    def top_labels(self, answer):
        return answer


class OneVsRestDual(OneVsRest):
    # With more rows than features, LinearSVC chooses the primal solver, which is slow on sparse text.
    title = "scikit-learn OneVsRest(LinearSVC(C=1, dual=True))"
    settings = MappingProxyType({"C": 1, "dual": True})


class Omikuji(System):
    title = "omikuji, defaults (Parabel-like)"
    package = "omikuji"
    settings: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, n_threads):
        super().__init__(n_threads)
        from omikuji import Model

        self.library = Model

    def read(self, data, scratch):
        X, Y = super().read(data, scratch)
        path = scratch / "train.txt"
        with path.open("w") as file:
            print(*X.shape, Y.shape[1], file=file)
            for row in range(X.shape[0]):
                of_x, of_y = slice(*X.indptr[row : row + 2]), slice(*Y.indptr[row : row + 2])
                pairs = zip(X.indices[of_x], X.data[of_x], strict=True)
                print(",".join(map(str, Y.indices[of_y])), *(f"{j}:{v:.9g}" for j, v in pairs), file=file)
        return (path,)

    def fit(self, path):
        settings = self.library.default_hyper_param()
        for name, value in self.settings.items():
            setattr(settings, name, value)
        self.model = self.library.train_on_data(str(path), settings, self.n_threads)

    def save(self, folder):
        self.model.save(str(folder))

    def load(self, folder):
        self.model = self.library.load(str(folder))
        self.model.init_prediction_thread_pool(self.n_threads)

    def predict(self, X):
        # The Python interface accepts only one row per call.
        rows = zip(X.indptr[:-1], X.indptr[1:], strict=True)
        return [
            self.model.predict(
                list(zip(X.indices[lo:hi].tolist(), X.data[lo:hi].tolist(), strict=True)), top_k=TOP
            )
            for lo, hi in rows
        ]

    def top_labels(self, answer):
        return padded([[label for label, _ in row] for row in answer])


class OmikujiOneTree(Omikuji):
    title = "omikuji, one tree"
    settings = MappingProxyType({"n_trees": 1})


class OmikujiBonsai(Omikuji):
    title = "omikuji, Bonsai-like (unbalanced, k = 100, depth 3)"
    settings = MappingProxyType({"cluster_balanced": False, "cluster_k": 100, "max_depth": 3})


class NapkinXC(System):
    title = "napkinXC PLT, defaults"
    package = "napkinxc"

    def __init__(self, n_threads):
        super().__init__(n_threads)
        from napkinxc.models import PLT

        self.library = PLT

    def read(self, data, scratch):
        self.model = self.library(str(scratch / "model"), threads=self.n_threads, seed=self.seed)
        return super().read(data, scratch)

    def fit(self, X, Y):
        self.model.fit(X, Y)

    def save(self, folder):
        pass  # `fit` has already written the model

    def load(self, folder):
        self.model.unload()
        self.model.load()

    def predict(self, X):
        return self.model.predict(X, top_k=TOP)

    def top_labels(self, answer):
        return padded(answer)


class Pecos(System):
    title = "PECOS XR-Linear, defaults"
    package = "libpecos"

    def __init__(self, n_threads):
        super().__init__(n_threads)
        from pecos import xmc
        from pecos.xmc.xlinear.model import XLinearModel

        self.xmc, self.library = xmc, XLinearModel

    def read(self, data, scratch):
        X, Y = super().read(data, scratch)
        return X, Y.tocsc()

    def fit(self, X, Y):
        labels = self.xmc.LabelEmbeddingFactory.create(Y, X, method="pifa", threads=self.n_threads)
        clusters = self.xmc.Indexer.gen(
            labels, indexer_type="hierarchicalkmeans", seed=self.seed, threads=self.n_threads
        )
        self.model = self.library.train(X, Y, C=clusters, threads=self.n_threads)

    def save(self, folder):
        self.model.save(str(folder))

    def load(self, folder):
        # The authors of PECOS recommend this form for serving. It stores weights in chunks and can only
        # predict.
        self.model = self.library.load(str(folder), is_predict_only=True)

    def predict(self, X):
        n_threads = min(self.n_threads, X.shape[0])  # a second thread has no work for a single row
        return self.model.predict(X, only_topk=TOP, threads=n_threads)


def padded(rows: list[list[int]]) -> np.ndarray:
    """Convert lists of at most TOP labels to an array of shape (n, TOP). Missing labels are -1."""
    return np.array([list(row[:TOP]) + [-1] * (TOP - len(row)) for row in rows])


SYSTEMS: dict[str, type[System]] = {
    "manylabel": ManyLabel,
    "manylabel-defaults": ManyLabelDefaults,
    "manylabel-blocks": ManyLabelBlocks,
    "manylabel-tree": ManyLabelTree,
    "manylabel-trees": ManyLabelTrees,
    "sklearn": OneVsRest,
    "sklearn-dual": OneVsRestDual,
    "omikuji": Omikuji,
    "omikuji-one-tree": OmikujiOneTree,
    "omikuji-bonsai": OmikujiBonsai,
    "napkinxc": NapkinXC,
    "pecos": Pecos,
}

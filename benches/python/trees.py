"""Compare label trees with other label trees, on real data sets and on planted ones.

The arguments of ``--sets`` are folders of ``MANYLABEL_DATA``, or folders with ``X.npz`` and ``Y.npz``. In
these files, the last eleventh of the rows is for testing. Systems are measured in turn, as in compare.py.
With several ``--seeds``, every data set is measured once for each seed.
"""

import tempfile
from pathlib import Path

import scipy.sparse as sp
from compare import (
    SETS,
    add_options,
    check_peers,
    comparison,
    data_folder,
    heading,
    hold_threads,
    packages,
    table,
)
from systems import SYSTEMS

from manylabel.datasets import load_xc

TREES = {
    name: SYSTEMS[name]
    for name in (
        *("manylabel-tree", "pecos", "manylabel-trees", "omikuji", "manylabel-defaults"),
        *("omikuji-one-tree", "omikuji-bonsai", "napkinxc"),
    )
}


def main():
    parser = comparison(__doc__, SETS, TREES)
    add_options(parser)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    args = parser.parse_args()
    planted = [name for name in args.sets if (Path(name) / "X.npz").is_file()]
    real = [name for name in args.sets if name not in planted]
    args.data = data_folder(parser, real) if real else None
    check_peers(parser, args)
    hold_threads(args.threads)
    print(heading(packages(args)), flush=True)
    for name in args.sets:
        train, test = (
            parts(Path(name))
            if name in planted
            else (load_xc(args.data / name / f"{part}.txt.gz") for part in ("train", "test"))
        )
        for seed in args.seeds:
            args.seed = seed
            with tempfile.TemporaryDirectory(prefix="manylabel-bench-") as folder:
                title = f"{Path(name).name}, seed {seed}" if args.seeds != [0] else Path(name).name
                print(f"\n{table(args, title, train, test, Path(folder), 'trees')}", flush=True)


def parts(folder: Path) -> tuple[tuple, tuple]:
    """Return the training and the test rows of a planted data set."""
    X, Y = (sp.csr_array(sp.load_npz(folder / f"{name}.npz")) for name in "XY")
    n_train = X.shape[0] - X.shape[0] // 11
    return (X[:n_train], Y[:n_train]), (X[n_train:], Y[n_train:])


if __name__ == "__main__":
    main()

"""
A fit that is killed, resumed and moved to a cluster
====================================================

Long fits may be interrupted, for example by a time limit or a restart of the machine. A fit in pieces then
loses at most the piece that was being fitted. The pieces can also be fitted on a cluster.
"""

# %%
# Rows on disk
# ------------
#
# The data are **generated**. ``convert`` writes them to a folder of arrays, which every process can
# memory-map.

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt

import manylabel as ml

folder = tempfile.TemporaryDirectory()
here = Path(folder.name)
X, Y = ml.datasets.make_multilabel(20_000, 5_000, 2_000, random_state=0)
ml.datasets.dump_xc(X, Y, here / "train.txt")
ml.datasets.convert([here / "train.txt"], here / "rows")
print(sorted(path.name for path in (here / "rows").iterdir())[:6])

# %%
# Kill the fit
# ------------
#
# A second process fits a classifier in pieces, into the folder ``fit``. After its first pieces, we kill it.
# The signal is that of ``kill -9``, which ends a process at once.

program = """
import manylabel as ml
ml.shards.fit(ml.DiSMECClassifier(1.0, random_state=0), "rows", checkpoint="fit", n_pieces=32)
"""
child = subprocess.Popen([sys.executable, "-c", program], cwd=here)


def pieces():
    return (
        len([path for path in (here / "fit").rglob("*") if path.is_file()]) if (here / "fit").exists() else 0
    )


begun, seen = time.perf_counter(), []
while child.poll() is None and pieces() < 14:
    seen.append((time.perf_counter() - begun, pieces()))
    time.sleep(0.02)
child.kill()
child.wait()
print(f"killed after {time.perf_counter() - begun:.1f} s with {pieces()} files in the folder")

# %%
# Resume the fit
# --------------
#
# The same call finds the finished pieces and continues.

program_again = (
    program.replace("ml.shards.fit(", "model = ml.shards.fit(") + 'model.save("model.safetensors")\n'
)
child = subprocess.Popen([sys.executable, "-c", program_again], cwd=here)
paused = time.perf_counter() - begun
while child.poll() is None:
    seen.append((time.perf_counter() - begun, pieces()))
    time.sleep(0.02)
assert child.returncode == 0

figure, ax = plt.subplots(figsize=(6.4, 2.8))
ax.plot(*zip(*seen, strict=True), drawstyle="steps-post")
ax.axvline(paused, color="C1", linestyle="--")
ax.annotate("killed and resumed", (paused, 1), xytext=(6, 0), textcoords="offset points", color="C1")
_ = ax.set(xlabel="seconds", ylabel="files of the fit", ylim=0)

# %%
# The model is exactly the same as that of a fit in memory:

resumed = ml.load(here / "model.safetensors")
whole = ml.DiSMECClassifier(1.0, random_state=0, n_jobs=-1).fit(X, Y)
print("the same weights:", (resumed.coef_ != whole.coef_).nnz == 0)

# %%
# Several machines
# ----------------
#
# Machines that share a folder need nothing else: task i of N passes ``piece=(i, N)``. On Slurm:
#
# .. code-block:: console
#
#    #SBATCH --array=1-16
#    manylabel train --model dismec rows --seed 0 -o model.safetensors \
#        --checkpoint fit --piece $SLURM_ARRAY_TASK_ID/16
#
# A Dask cluster
# --------------
#
# With Dask, the scheduler distributes the pieces. If a worker dies, its piece is fitted on another worker.
# Here, the cluster consists of two processes on this machine, which are started by a second process. On Slurm
# or Kubernetes, only the first line changes (see :doc:`Beyond one machine </generated/adopted/scale>`).

program = """
import manylabel as ml, manylabel.dask
from distributed import Client

if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50) as client:
        model = ml.dask.fit(ml.DiSMECClassifier(1.0, random_state=0), "rows", checkpoint="dask-fit")
        model.save("dask.safetensors")
"""
(here / "cluster.py").write_text(program)
print(program)
begun = time.perf_counter()
subprocess.run([sys.executable, "cluster.py"], cwd=here, check=True)
print(f"{time.perf_counter() - begun:.1f} s, with the start of the cluster")

# %%

clustered = ml.load(here / "dask.safetensors")
print("the same weights:", (clustered.coef_ != whole.coef_).nnz == 0)

# %%
# This works for `DiSMECClassifier`, `LabelTreeClassifier`, `BlockPartitionClassifier`,
# `CorrLogClassifier` and `Rembrandt`.

del resumed, clustered
folder.cleanup()

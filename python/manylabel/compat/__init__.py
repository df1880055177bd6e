"""Use manylabel from other software, and read the models of other libraries.

- :mod:`manylabel.compat.annif`: a backend for Annif.
- :mod:`manylabel.compat.mlflow`: models in MLflow.
- :mod:`manylabel.compat.omikuji`: the Python interface of omikuji.
- :mod:`manylabel.compat.onnx`: export to ONNX.
- :mod:`manylabel.compat.skops`: the types that skops must trust.

Import each of these modules by its full name, for example ``import manylabel.compat.onnx``. The following
functions read models of other libraries:

- :func:`load_liblinear` and :func:`load_dismec` read one-vs-rest classifiers.
- :func:`load_omikuji` and :func:`load_pecos` read label trees.
"""

from manylabel.compat.linear import load_dismec, load_liblinear
from manylabel.compat.trees import load_omikuji, load_pecos

__all__ = ["load_dismec", "load_liblinear", "load_omikuji", "load_pecos"]

"""Small repairs of docstrings for Sphinx, which reads more marks in a text than a person does.

Docstrings name fitted attributes such as ``n_features_in_`` in shapes, where no backticks are. Sphinx takes
the last underscore for a link.
"""

import re
import sys
from unittest.mock import MagicMock

# The backend for Annif has a docstring that explains it, and Annif itself is not installed.
ANNIF = ("", ".backend", ".backend.backend", ".exception", ".suggestion", ".util")

LITERAL = re.compile(r"(``.+?``|`[^`]+`)")
LINK = re.compile(r"(?<![\w\\])([A-Za-z]\w*)_(?!\w)")
BARS = re.compile(r"\|(\w+)\|")
REFERENCE = re.compile(r"\[(\d+)\]_")


def repair(app, what, name, thing, options, lines):
    """Escape underscores and bars outside of literals, and references to another docstring."""
    own = any(line.startswith(".. [") for line in lines)
    for at, line in enumerate(lines):
        if line.startswith((".. ", "   :")) or ">>>" in line:
            continue
        parts = LITERAL.split(line)
        for even in range(0, len(parts), 2):
            text = BARS.sub(r"\\|\1\\|", LINK.sub(r"\1\\_", parts[even]))
            parts[even] = text if own else REFERENCE.sub(r"[\1]", text)
        lines[at] = "".join(parts)


def skip_foreign_methods(app, what, name, thing, skip, options):
    """Leave out the methods that come from scikit-learn, or that it generates."""
    foreign = (getattr(thing, "__module__", None) or "").startswith("sklearn.")
    return True if foreign or (name.startswith("set_") and name.endswith("_request")) else None


def setup(app):
    for module in ANNIF:
        sys.modules[f"annif{module}"] = MagicMock()
    # The base classes of our own classes.
    sys.modules["annif"].default_config.Config = object
    sys.modules["annif.backend.backend"].AnnifLearningBackend = object
    app.connect("autodoc-process-docstring", repair, priority=900)  # after numpydoc
    app.connect("autodoc-skip-member", skip_foreign_methods)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

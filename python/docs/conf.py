"""Settings of Sphinx. `make docs` builds the documentation without network access."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "extensions"), str(HERE.parents[1] / "benches/python")]

from pictures_made import before_tutorial  # noqa: E402

import manylabel  # noqa: E402

project = "manylabel"
author = "the authors of manylabel"
version = release = manylabel.__version__
copyright = f"{author}, MIT license"

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    # The following are in the folder extensions.
    "adopted",
    "docstrings",
    "mathml",
    "pictures_made",
    "recorded",
    "results",
]
templates_path = ["templates"]
exclude_patterns = ["tutorials", "generated/tutorials/**.ipynb", "static", "templates"]
# sphinx-gallery keeps functions in its configuration, which cannot be pickled.
suppress_warnings = ["config.cache"]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "cache"  # `make docs` runs all code
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True
# The kernel of this folder is silent about tqdm without widgets and about connections without encryption.
os.environ["JUPYTER_PATH"] = str(HERE)

autosummary_generate = True
autodoc_typehints = "none"  # docstrings state the types
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

sphinx_gallery_conf = {
    "examples_dirs": "tutorials",
    "gallery_dirs": "generated/tutorials",
    "filename_pattern": r"/t\d_",
    "ignore_pattern": r"recorded",
    "within_subsection_order": "FileNameSortKey",
    "reset_modules": ("matplotlib", before_tutorial),
    "notebook_extensions": set(),
    "download_all_examples": False,
    "write_computation_times": False,
    "show_signature": False,
    "min_reported_time": 1,
    "abort_on_example_error": True,
    "doc_module": (),
    "backreferences_dir": None,
}

html_theme = "pydata_sphinx_theme"
html_title = "manylabel"
html_static_path = ["static"]
html_css_files = ["quiet.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": "manylabel"},
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "pygments_light_style": "tango",
    "pygments_dark_style": "github-dark",
}
html_sidebars = {"index": [], "start": [], "which": [], "performance": [], "coming_from": []}

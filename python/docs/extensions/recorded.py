"""Recorded output of the tutorials on real data.

A tutorial with the line ``NEEDS = "..."`` needs a data set of the folder MANYLABEL_DATA. With this folder,
the tutorial runs, and its output is copied to ``tutorials/recorded``. Without it, the page shows the recorded
output and says so. sphinx-gallery uses a stored page only if the checksum of the tutorial matches. A tutorial
that has changed must therefore be recorded again.
"""

import os
import re
import shutil
from datetime import date
from pathlib import Path
from zipfile import ZipFile

import record as records
from sphinx.errors import ExtensionError

NEEDS = re.compile(r'^NEEDS = "(.+)"$', re.MULTILINE)
NOTE = """
.. note::

    The output on this page was recorded on {day} with the data set {needs}. The page was built without this
    data set. To run the tutorial, set the environment variable ``MANYLABEL_DATA``.{busy}

"""
BUSY = " Other programs ran on the machine, so seconds are upper bounds, and rates are lower bounds."


def folders(app):
    """The folder of the recorded pages, and the folder that sphinx-gallery writes to."""
    return Path(app.srcdir) / "tutorials/recorded", Path(app.srcdir) / "generated/tutorials"


def needed(app):
    """The tutorials on real data, and the data set of each."""
    for path in sorted((Path(app.srcdir) / "tutorials").glob("t*.py")):
        if found := NEEDS.search(path.read_text(encoding="utf-8")):
            yield path, found[1]


def files(folder: Path, name: str):
    """The files of a page: its text, its checksum and its pictures."""
    yield from (folder / f"{name}.rst", folder / f"{name}.py.md5")
    yield from sorted((folder / "images").glob(f"sphx_glr_{name}_*"))
    yield from sorted((folder / "images/thumb").glob(f"sphx_glr_{name}_*"))


def copy(name: str, source: Path, target: Path):
    for path in files(source, name):
        to = target / path.relative_to(source)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, to)


def restore(app):
    """Place the recorded pages where sphinx-gallery looks for them, if there is no data."""
    if os.environ.get("MANYLABEL_DATA"):
        return
    recorded, made = folders(app)
    for path, needs in needed(app):
        if not (recorded / f"{path.stem}.rst").is_file():
            raise ExtensionError(f"{path}: no output is recorded; build with MANYLABEL_DATA")
        copy(path.stem, recorded, made)
        with ZipFile(made / f"{path.stem}.zip", "w") as download:  # as sphinx-gallery makes it
            download.write(path, path.name)
        page = made / f"{path.stem}.rst"
        head, text = page.read_text(encoding="utf-8").split("\n", 1)
        day, *busy = head.removeprefix(".. recorded ").split()
        note = NOTE.format(day=day, needs=needs, busy=BUSY if busy else "")
        title = re.search(r"^(=+)\n(.+)\n\1\n|^(.+)\n(=+)\n", text, re.MULTILINE)
        page.write_text(text[: title.end()] + note + text[title.end() :], encoding="utf-8")


def record(app, exception):
    """Keep the output of the tutorials that ran on real data."""
    ran = os.environ.get("MANYLABEL_DATA") and app.config.sphinx_gallery_conf["plot_gallery"]
    if exception or not ran:
        return
    recorded, made = folders(app)
    for path, _ in needed(app):
        checksum = f"{path.name}.md5"
        if (recorded / checksum).is_file() and (recorded / checksum).read_bytes() == (
            made / checksum
        ).read_bytes():
            continue  # The tutorial is the same, so its records stay.
        for old in files(recorded, path.stem):
            old.unlink(missing_ok=True)
        copy(path.stem, made, recorded)
        page = recorded / f"{path.stem}.rst"
        head = f".. recorded {date.today()}{' busy' if records.BUSY else ''}\n"
        page.write_text(head + page.read_text(encoding="utf-8"), encoding="utf-8")


def setup(app):
    app.connect("builder-inited", restore, priority=100)  # before sphinx-gallery
    app.connect("build-finished", record)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

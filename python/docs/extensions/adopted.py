"""Pages that are also read in the repository, such as the changelog.

They stay where a reader of the repository expects them. Before a build, they are copied to the folder
``generated``. A relative link in such a file leads to the page that `PAGES` states. Links to source files
become text. Any other relative link stops the build.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

from sphinx.errors import ExtensionError

ROOT = Path(__file__).parents[3]
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


@dataclass
class Page:
    """A file of the repository: the part between two headings, and the pages that its links lead to."""

    source: str
    links: dict[str, str] = field(default_factory=dict)
    first: str = ""
    last: str = ""
    title: str = ""


PAGES = {
    "scale.md": Page(
        "docs/scale.md", {"../python/docs/tutorials/t6_resume.py": "/generated/tutorials/t6_resume.rst"}
    ),
    "changelog.md": Page("docs/CHANGELOG.md", {"scale.md": "scale.md"}),
    "contributing.md": Page(
        ".github/CONTRIBUTING.md",
        {"../rust/README.md": "core.md", "../benches/README.md": "/performance.md"},
    ),
    "core.md": Page(
        "rust/README.md", {"../.github/CONTRIBUTING.md": "contributing.md"}, last="## From a Python array"
    ),
    "rows.md": Page("rust/README.md", first="## From a Python array", last="## Design decisions"),
    "decisions.md": Page("rust/README.md", first="## Design decisions"),
    "commands.md": Page("benches/README.md", {}, last="## At a glance"),
    "compared.md": Page(
        "benches/README.md", first="## What is compared", last="## Probabilities and label sets"
    ),
}


def adopt(app):
    folder = Path(app.srcdir) / "generated/adopted"
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        text = part((ROOT / page.source).read_text(encoding="utf-8"), page)
        text = LINK.sub(lambda found, page=page: link(found, page), text)
        path = folder / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def part(text: str, page: Page) -> str:
    """Return the part of a file that begins with one heading and ends before another."""
    for heading in (page.first, page.last):
        if heading and text.count(heading) != 1:
            raise ExtensionError(f"{page.source}: expected the heading {heading!r} once")
    start = text.index(page.first) if page.first else 0
    end = text.index(page.last) if page.last else len(text)
    cut = text[start:end].rstrip() + "\n"
    if page.first:  # The first heading becomes the title of the page.
        cut = re.sub(r"^#(#+ )", r"\1", cut, flags=re.MULTILINE)
    return cut


def link(found: re.Match, page: Page) -> str:
    text, target = found.groups()
    if re.match(r"https?:", target):
        return found[0]
    if target in page.links:
        return f"[{text}]({page.links[target]})"
    path = (ROOT / page.source).parent / target.partition("#")[0]
    if target.startswith("#") or path.suffix == ".rs":
        return text
    raise ExtensionError(f"{page.source}: the link {target} leads to no page of the documentation")


def setup(app):
    app.connect("builder-inited", adopt)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

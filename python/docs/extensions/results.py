"""Figures and tables from ``benches/results``: the role ``result`` and the directive ``results``.

``{result}`trees; yso-finna-en; PECOS XR-Linear, defaults; fit s``` writes one figure of the newest record of
a system on a data set. ``{results} glance`` writes a table of ``benches/README.md``. A figure that does not
exist stops the build.
"""

import tables
from docutils import nodes
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective, SphinxRole


def figure(topic: str, of: str, system: str, name: str):
    """Return a figure of the newest record."""
    lines = tables.newest(topic)
    try:
        return lines[of, system]["figures"][name]
    except KeyError as missing:
        raise ExtensionError(f"results/{topic}.jsonl has no {of!r}, {system!r}, {name!r}") from missing


class Result(SphinxRole):
    def run(self):
        topic, of, system, name, *form = (part.strip() for part in self.text.split(";"))
        value = figure(topic, of, system, name)
        if form:
            text = format(value, form[0])
        else:
            text = value if isinstance(value, str) else tables.cell({name: value}, name, name)
        return [nodes.inline(text=text, classes=["result"])], []


class Results(SphinxDirective):
    required_arguments = 1

    def run(self):
        return self.parse_text_to_nodes("\n".join(tables.TABLES[self.arguments[0]]()))


def setup(app):
    app.add_role("result", Result())
    app.add_directive("results", Results)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

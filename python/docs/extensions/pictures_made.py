"""The directive ``picture``, which shows a drawing of the folder ``pictures``.

``{picture} tree`` calls the function ``tree`` of ``pictures/ideas.py`` or ``pictures/curves.py`` twice, with
the colors of the light and of the dark theme. The content of the directive is the caption.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import matplotlib
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

HERE = Path(__file__).parents[1]
RESULTS = HERE.parents[1] / "benches/results"


@dataclass(frozen=True)
class Colors:
    ink: str
    soft: str
    faint: str
    blue: str
    orange: str
    green: str
    paper: str

    @property
    def cycle(self):
        return self.blue, self.orange, self.green, self.soft


# Colors of the light and the dark theme. The pairs blue and orange can be told apart with all usual kinds of
# color blindness.
THEMES = {
    "light": Colors("#2b2f36", "#6b7280", "#e3e6eb", "#2f6fb0", "#c8682a", "#3d8b5f", "#ffffff"),
    "dark": Colors("#d7dae0", "#9aa3b0", "#343a44", "#6aa9e8", "#e59a5e", "#6fbf92", "#14181e"),
}


def before_tutorial(gallery_conf, fname):
    """Set the style of all pictures of a tutorial. sphinx-gallery calls this function."""
    quiet()


def quiet(colors=THEMES["light"]):
    """Set the style of all pictures."""
    matplotlib.use("agg")
    matplotlib.rcdefaults()
    matplotlib.rcParams.update(
        {
            "axes.edgecolor": colors.soft,
            "axes.axisbelow": True,
            "axes.grid": True,
            "axes.labelcolor": colors.ink,
            "axes.prop_cycle": matplotlib.cycler(color=colors.cycle),
            "axes.spines.right": False,
            "axes.spines.top": False,
            "axes.titlelocation": "left",
            "axes.titlesize": "medium",
            "figure.figsize": (6.4, 3.4),
            "figure.dpi": 100,
            "figure.constrained_layout.use": True,
            "font.size": 10,
            "grid.color": colors.faint,
            "legend.frameon": False,
            "lines.markersize": 5,
            "savefig.dpi": 150,
            "svg.hashsalt": "manylabel",
            "text.color": colors.ink,
            "xtick.color": colors.soft,
            "ytick.color": colors.soft,
        }
    )


def draw(folder: Path, name: str):
    """Draw a picture for both themes, unless it has been drawn in this build."""
    import curves
    import ideas
    import matplotlib.pyplot as plt

    function = getattr(ideas, name, None) or getattr(curves, name)
    for theme, colors in THEMES.items():
        quiet(colors=colors)
        figure = function(colors)
        figure.savefig(folder / f"{name}-{theme}.svg", transparent=True, metadata={"Date": None})
        plt.close(figure)


class Picture(SphinxDirective):
    required_arguments = 1
    has_content = True
    option_spec: ClassVar = {"alt": directives.unchanged_required}

    def run(self):
        (name,) = self.arguments
        folder = Path(self.env.srcdir) / "generated/pictures"
        folder.mkdir(parents=True, exist_ok=True)
        draw(folder, name)
        figure = nodes.figure(classes=["picture"])
        caption = " ".join(self.content)
        for theme in THEMES:
            uri = f"/generated/pictures/{name}-{theme}.svg"
            figure += nodes.image(uri=uri, alt=self.options.get("alt", caption), classes=[f"only-{theme}"])
        if caption:
            text, _ = self.parse_inline(caption)
            figure += nodes.caption("", "", *text)
        for source in (*(HERE / "pictures").glob("*.py"), *RESULTS.glob("*.jsonl")):
            self.env.note_dependency(str(source))
        return [figure]


def setup(app):
    sys.path.insert(0, str(HERE / "pictures"))
    app.add_directive("picture", Picture)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

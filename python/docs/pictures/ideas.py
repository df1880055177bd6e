"""Drawings of the ideas behind the methods. Each function draws one picture in the colors of a theme."""

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle


def canvas(width, height, size=(6.4, 2.8)):
    """Return a figure without axes, in which positions are given in units of a grid."""
    figure, ax = plt.subplots(figsize=size)
    ax.set(xlim=(0, width), ylim=(0, height))
    ax.axis("off")
    return figure, ax


def box(ax, x, y, width, height, text, color, *, size=9, fill=True, ink=None):
    """Draw a box with a text. Its center is (x, y)."""
    ax.add_patch(
        FancyBboxPatch(
            (x - width / 2, y - height / 2),
            width,
            height,
            boxstyle="round,pad=0,rounding_size=0.12",
            linewidth=1.2,
            edgecolor=color,
            facecolor=(color, 0.13 if fill else 0.0),
        )
    )
    ax.text(x, y, text, ha="center", va="center", fontsize=size, color=ink, linespacing=1.35)


def arrow(ax, start, end, color, width=1.2, style="-|>", bend=0.0):
    ax.add_patch(
        FancyArrowPatch(
            start,
            end,
            arrowstyle=style,
            mutation_scale=10,
            linewidth=width,
            color=color,
            shrinkA=1,
            shrinkB=1,
            connectionstyle=f"arc3,rad={bend}",
        )
    )


def linear(c):
    """One-vs-rest: a line for each label, and the weights that remain."""
    rng = np.random.default_rng(3)
    figure, (left, right) = plt.subplots(1, 2, figsize=(6.4, 2.9), width_ratios=(1.1, 1))
    points = rng.normal(size=(90, 2))
    normals = np.array([[1.0, 0.35], [-0.5, 1.0], [-0.3, -1.0]])
    offsets = np.array([0.75, 0.8, 0.95])
    scores = points @ normals.T - offsets
    best = np.where(scores.max(axis=1) > 0, scores.argmax(axis=1), 3)
    colors = [c.blue, c.orange, c.green, c.soft]
    for label in range(4):
        left.scatter(*points[best == label].T, s=14, color=colors[label], linewidths=0)
    at = np.array([-3.2, 3.2])
    for normal, offset, color, name in zip(normals, offsets, colors[:3], "ABC", strict=True):
        left.plot(
            at, (offset - normal[0] * at) / normal[1], color=color, linewidth=1.5, label=f"label {name}"
        )
    left.set(xlim=(-2.7, 2.7), ylim=(-2.7, 2.7), xticks=[], yticks=[], title="one classifier for each label")
    left.legend(loc="lower right", fontsize=8, handlelength=1.2, borderaxespad=0.1)
    weights = np.sort(rng.laplace(scale=0.06, size=4000))
    kept = np.abs(weights) >= 0.1
    bins = np.arange(-0.4, 0.401, 0.02)
    right.hist(weights[~kept], bins, color=c.soft, alpha=0.45, label="set to 0")
    right.hist(weights[kept], bins, color=c.blue, label="kept")
    right.set(yticks=[], xlabel="weight", title="small weights are pruned", xticks=[-0.3, 0, 0.3])
    right.legend(fontsize=8)
    return figure


def ranking(c):
    """PD-Sparse: the margin between the labels of a row and all others."""
    figure, ax = plt.subplots(figsize=(6.4, 1.9))
    ax.axis("off")
    ax.set(xlim=(-3.3, 3.3), ylim=(-1.0, 1.2))
    ax.axhline(0, color=c.soft, linewidth=1)
    ax.axvspan(-0.35, 0.95, ymin=0.25, ymax=0.68, color=c.faint, linewidth=0)
    for x in (-2.9, -2.4, -2.2, -1.6, -1.2, -0.35):
        ax.plot(x, 0, "o", color=c.orange, markersize=7)
    for x in (0.95, 1.5, 2.6):
        ax.plot(x, 0, "o", color=c.blue, markersize=7)
    arrow(ax, (-0.35, 0.45), (0.95, 0.45), c.ink, style="<|-|>")
    ax.text(0.3, 0.6, "margin of at least 1", ha="center", va="bottom", fontsize=9)
    ax.text(
        -1.9, -0.35, "labels that the row does not have", ha="center", va="top", fontsize=9, color=c.orange
    )
    ax.text(1.8, -0.35, "labels of the row", ha="center", va="top", fontsize=9, color=c.blue)
    ax.text(3.3, 0.1, "score", ha="right", fontsize=9, color=c.soft)
    return figure


def low_rank(c):
    """LEML: features are reduced to a few numbers, from which all labels are predicted."""
    figure, ax = canvas(12, 5)
    box(ax, 1.5, 2.5, 2.6, 3.6, "X\nrows ×\nfeatures", c.soft)
    ax.text(3.25, 2.5, "×", ha="center", va="center", fontsize=14)
    box(ax, 4.3, 2.5, 1.2, 4.2, "W\nfeatures\n× rank", c.blue)
    ax.text(5.4, 2.5, "×", ha="center", va="center", fontsize=14)
    box(ax, 7.2, 2.5, 2.8, 1.1, "Hᵀ  rank × labels", c.orange)
    ax.text(9.05, 2.5, "≈", ha="center", va="center", fontsize=14)
    box(ax, 10.7, 2.5, 2.5, 3.6, "Y\nrows ×\nlabels", c.green)
    ax.text(4.3, 0.05, "a row becomes `rank` numbers", ha="center", fontsize=8, color=c.soft)
    return figure


def tree(c):
    """A label tree: the beam visits the best nodes, and only their labels are scored."""
    figure, ax = canvas(13, 5.6, (6.4, 3.0))
    root = (6.5, 5.0)
    inner = [(1.8, 3.1), (5.0, 3.1), (8.1, 3.1), (11.3, 3.1)]
    visited = {1, 2}
    scores = ["0.02", "0.61", "0.35", "0.01"]
    for at, (x, y) in enumerate(inner):
        on = at in visited
        arrow(ax, (root[0], root[1] - 0.35), (x, y + 0.35), c.blue if on else c.faint, 2 if on else 1.2)
        box(ax, x, y, 1.9, 0.7, f"cluster {at + 1}", c.blue if on else c.soft, fill=on)
        ax.text(
            x + (0.55 if x > 6.5 else -0.55),
            3.75,
            scores[at],
            ha="center",
            fontsize=8,
            color=c.blue if on else c.soft,
        )
        for child in range(4):
            leaf = x - 1.05 + 0.7 * child
            ax.plot([x, leaf], [y - 0.36, 1.5], color=c.blue if on else c.faint, linewidth=1)
            best = (at, child) in {(1, 2), (1, 0), (2, 1)}
            ax.add_patch(
                Rectangle(
                    (leaf - 0.22, 1.0),
                    0.44,
                    0.5,
                    facecolor=c.orange if best else (c.blue, 0.35) if on else (c.soft, 0.2),
                    linewidth=0,
                )
            )
    box(ax, *root, 1.9, 0.7, "root", c.blue)
    ax.text(6.5, 0.25, "scored labels are blue and orange; the best ones are orange", ha="center", fontsize=8)
    return figure


def rules(c):
    """Boosted rules: each rule covers rows and adds to the scores of labels."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(6.4, 2.9), width_ratios=(1, 1.15))
    rng = np.random.default_rng(0)
    points = rng.uniform(size=(70, 2))
    covered = (points[:, 0] > 0.5) & (points[:, 1] <= 0.7)
    left.add_patch(Rectangle((0.5, 0), 0.5, 0.7, facecolor=(c.blue, 0.15), edgecolor=c.blue, linewidth=1.2))
    left.scatter(*points[covered].T, s=14, color=c.blue, linewidths=0)
    left.scatter(*points[~covered].T, s=14, color=c.soft, linewidths=0)
    left.set(xlim=(0, 1), ylim=(0, 1), xticks=[0.5], yticks=[0.7], xlabel="age", ylabel="fever")
    left.set_title("if age > 0.5 and fever ≤ 0.7 …")
    left.grid(False)
    steps = np.array([[-0.6, 0.5, 0.4, -0.1], [-0.4, -0.3, -0.2, 0.6], [-0.5, 0.1, -0.4, -0.2]])
    for at, (label, color) in enumerate(zip("ABC", (c.blue, c.orange, c.green), strict=True)):
        right.plot(np.arange(5), np.r_[0, np.cumsum(steps[at])], drawstyle="steps-post", color=color)
        right.text(4.1, steps[at].sum(), f"label {label}", color=color, va="center", fontsize=9)
    right.axhline(0, color=c.soft, linewidth=1)
    right.set(xlim=(0, 5.2), xticks=range(5), xlabel="number of rules that cover the row", yticks=[0])
    right.set_title("… then every label's score changes")
    return figure


def link(c):
    """The smooth link: a few linear predictions, cosines of them, scores."""
    figure, ax = canvas(13, 4)
    box(ax, 1.3, 2, 2.2, 1.5, "row x\nall features", c.soft)
    box(ax, 4.8, 2, 2.4, 1.5, "embedding\na few linear\npredictions", c.blue)
    box(ax, 8.3, 2, 2.4, 1.5, "link\nrandom cosines", c.orange)
    box(ax, 11.6, 2, 2.2, 1.5, "scores of\nall labels", c.green)
    for start in (2.4, 6.0, 9.5):
        arrow(ax, (start, 2), (start + 1.2, 2), c.ink)
    at = np.linspace(-1, 1, 100)
    for phase in (0, 1.2, 2.1):
        ax.plot(8.3 + at, 0.6 + 0.3 * np.cos(7 * at + phase), color=c.orange, linewidth=1)
    ax.text(4.8, 3.2, "how the labels\nvary together", ha="center", fontsize=8, color=c.soft)
    ax.text(8.3, 3.2, "a kernel on\na few numbers", ha="center", fontsize=8, color=c.soft)
    return figure


def couplings(c):
    """CorrLog: features pull at labels, and labels pull at each other."""
    figure, ax = canvas(13, 5.4, (6.4, 3.0))
    places = {"beach": (8.2, 4.5), "sea": (11.4, 4.0), "city": (11.2, 1.2), "sunset": (8.4, 1.0)}
    for start, end, color, text in (
        ("beach", "sea", c.blue, "+"),
        ("sea", "sunset", c.blue, "+"),
        ("sea", "city", c.orange, "−"),
        ("beach", "city", c.orange, "−"),
    ):
        (x0, y0), (x1, y1) = places[start], places[end]
        ax.plot([x0, x1], [y0, y1], color=color, linewidth=2.4)
        at = 0.3 if start == "beach" else 0.75 if end == "sunset" else 0.5
        x, y = x0 + at * (x1 - x0), y0 + at * (y1 - y0)
        ax.text(x + 0.25, y + 0.1, text, color=color, fontsize=13, ha="center", va="center")
    for x, y in places.values():
        ax.add_patch(Rectangle((x - 1, y - 0.37), 2, 0.74, facecolor=c.paper, linewidth=0, zorder=2))
    for name, (x, y) in places.items():
        ax.text(x, y, name, ha="center", va="center", fontsize=9, zorder=4)
        ax.add_patch(
            FancyBboxPatch(
                (x - 0.95, y - 0.33),
                1.9,
                0.66,
                boxstyle="round,pad=0,rounding_size=0.12",
                facecolor=(c.green, 0.15),
                edgecolor=c.green,
                zorder=3,
            )
        )
    for y, name in ((4.3, "blue"), (2.7, "yellow"), (1.1, "edges")):
        box(ax, 1.4, y, 2.0, 0.66, name, c.soft)
        for x1, y1 in (places["beach"], places["sunset"]):
            ax.plot([2.4, x1 - 1], [y, y1], color=c.faint, linewidth=1.2, zorder=0)
    ax.text(1.4, 5.15, "features", ha="center", fontsize=9, color=c.soft)
    ax.text(9.8, 5.15, "labels and their couplings", ha="center", fontsize=9, color=c.soft)
    return figure


def blocks(c):
    """Block partitioning: rows and labels are sorted into blocks with a model each."""
    figure, axes = plt.subplots(1, 2, figsize=(6.4, 2.9))
    rng = np.random.default_rng(1)
    rows, labels = np.repeat(np.arange(3), 16), np.repeat(np.arange(3), 12)
    Y = rng.uniform(size=(48, 36)) < np.where(rows[:, None] == labels, 0.34, 0.03)
    mixed = Y[rng.permutation(48)][:, rng.permutation(36)]
    for ax, shown, title in ((axes[0], mixed, "Y as it comes"), (axes[1], Y, "rows and labels in blocks")):
        ax.scatter(*np.nonzero(shown)[::-1], s=7, marker="s", color=c.blue, linewidths=0)
        ax.set(xlim=(-1, 36), ylim=(48, -1), xticks=[], yticks=[], xlabel="labels", title=title)
        ax.grid(False)
    axes[0].set_ylabel("rows")
    for at in range(3):
        axes[1].add_patch(
            Rectangle(
                (12 * at - 0.5, 16 * at - 0.5), 12, 16, facecolor="none", edgecolor=c.orange, linewidth=1.8
            )
        )
    return figure


def calibration(c):
    """Scores, a curve that turns them into probabilities, and a bound that chooses labels."""
    figure, ax = plt.subplots(figsize=(6.4, 2.7))
    at = np.linspace(-4, 4, 200)
    rng = np.random.default_rng(0)
    scores = rng.normal(-1.2, 1.5, 260)
    true = rng.uniform(size=260) < 1 / (1 + np.exp(0.6 - 1.5 * scores))
    ax.plot(scores[true], 1.06 + rng.uniform(-0.03, 0.03, true.sum()), "|", color=c.blue)
    ax.plot(scores[~true], -0.06 + rng.uniform(-0.03, 0.03, (~true).sum()), "|", color=c.orange)
    ax.plot(at, 1 / (1 + np.exp(0.6 - 1.5 * at)), color=c.ink, linewidth=2)
    bound = 0.6 / 1.5 + np.log(0.35 / 0.65) / 1.5
    ax.axvspan(bound, 4, color=c.blue, alpha=0.10, linewidth=0)
    ax.annotate("chosen labels", (4, 0.12), ha="right", fontsize=9, color=c.blue)
    ax.annotate("held-out pairs: true", (-4, 1.12), fontsize=8, color=c.blue)
    ax.annotate("held-out pairs: not true", (-4, 0.03), fontsize=8, color=c.orange)
    ax.set(xlabel="score of the classifier", ylabel="probability", xlim=(-4.1, 4), ylim=(-0.14, 1.24))
    ax.set(yticks=[0, 0.5, 1])
    return figure


def tagger(c):
    """A tagger: texts, features, scores, names, in one file."""
    figure, ax = canvas(14, 4.2)
    ax.add_patch(
        FancyBboxPatch(
            (2.75, 0.45),
            8.5,
            2.7,
            boxstyle="round,pad=0.1",
            edgecolor=c.soft,
            facecolor="none",
            linestyle="--",
        )
    )
    box(ax, 1.15, 1.8, 1.9, 1.2, "texts", c.soft)
    box(ax, 4.1, 1.8, 2.3, 1.2, "vectorizer\ntexts to numbers", c.blue, size=7.5)
    box(ax, 7.0, 1.8, 2.3, 1.2, "classifier\nscores of labels", c.orange, size=7.5)
    box(ax, 9.9, 1.8, 2.3, 1.2, "decision rule\nlabel sets", c.green, size=7.5)
    box(ax, 12.9, 1.8, 1.9, 1.2, "names", c.soft)
    for start, end in ((2.1, 2.9), (5.3, 5.8), (8.2, 8.7), (11.1, 11.9)):
        arrow(ax, (start, 1.8), (end, 1.8), c.ink)
    ax.text(7.0, 3.45, "tagger.safetensors", ha="center", fontsize=9, color=c.soft, family="monospace")
    return figure


def unknown(c):
    """Y with known and unknown entries."""
    figure, ax = canvas(12, 4.6, (6.4, 2.6))
    Y = np.array(
        [
            [1, 0, np.nan, 0, 1, np.nan],
            [0, np.nan, 1, 0, np.nan, 0],
            [np.nan, 1, 0, 0, 0, 1],
            [0, 0, np.nan, 1, 0, 0],
        ]
    )
    for row in range(4):
        for label in range(6):
            value = Y[row, label]
            color = c.soft if np.isnan(value) else c.blue if value else c.faint
            box(
                ax,
                1.2 + 0.95 * label,
                3.9 - 0.95 * row,
                0.8,
                0.8,
                "?" if np.isnan(value) else str(int(value)),
                color,
            )
    for at, (color, text) in enumerate(
        (
            (c.blue, "the row has the label"),
            (c.faint, "the row does not have it"),
            (c.soft, "nobody checked: left out of the loss"),
        )
    ):
        box(ax, 7.3, 3.4 - 0.95 * at, 0.6, 0.6, "", color)
        ax.text(7.8, 3.4 - 0.95 * at, text, va="center", fontsize=9)
    return figure


def house(c):
    """The folders of the project, and the way of a batch of rows."""
    figure, ax = canvas(16, 10, (6.8, 4.4))
    layers = (
        (
            9.1,
            c.green,
            "python/manylabel",
            "estimators · tagging · decision · metrics · persistence · command line",
        ),
        (7.05, c.blue, "rust/py", "borrows arrays · runs kernels without the interpreter · scorers"),
        (5.0, c.orange, "one crate a family", "linear · tree · rules · pls · link · partition · correlated"),
        (2.95, c.orange, "score", "one trait; best labels, all scores, given labels"),
        (0.9, c.soft, "sparse · dense · simd · base", "matrices · wide loops · errors, memory, Ctrl-C"),
    )
    for y, color, name, text in layers:
        box(ax, 6.3, y, 12.2, 1.35, "", color)
        ax.text(0.5, y + 0.24, name, va="center", fontsize=9, weight="bold")
        ax.text(0.5, y - 0.3, text, va="center", fontsize=8, color=c.ink)
    for x, name, way in ((13.3, "X", (9.1, 0.9)), (15.3, "scores", (0.9, 9.1))):
        arrow(ax, (x, way[0]), (x, way[1]), c.ink, 1.6)
        ax.text(x, 9.5, name, ha="center", fontsize=10)
    return figure


def choice(c):
    """Which estimator: the questions in the order in which they help most."""
    figure, ax = canvas(16, 12.4, (7.2, 6.0))
    questions = (
        (11.5, "texts and names?", "TextTagger", "one file; holds any classifier below"),
        (9.7, "rules to read?", "BoostedRulesClassifier", "up to a few hundred labels"),
        (7.9, "which labels go together?", "CorrLogClassifier", "label sets, couplings"),
        (6.1, "few labels,\ndense features?", "SmoothLinkClassifier", "nonlinear, probabilities"),
        (
            4.3,
            "tens of thousands\nof labels or more?",
            "LabelTreeClassifier",
            "time grows slowly with labels",
        ),
        (2.5, "most entries of Y\nunknown?", "LEMLClassifier", "low rank, small models"),
    )
    for y, question, name, note in questions:
        box(ax, 3.2, y, 5.4, 1.25, question, c.soft)
        box(ax, 11.6, y, 7.6, 1.25, "", c.blue)
        ax.text(11.6, y + 0.22, name, ha="center", va="center", fontsize=9, family="monospace")
        ax.text(11.6, y - 0.32, note, ha="center", va="center", fontsize=8, color=c.soft)
        arrow(ax, (5.9, y), (7.8, y), c.blue)
        ax.text(6.8, y + 0.15, "yes", ha="center", fontsize=8, color=c.blue)
        arrow(ax, (3.2, y - 0.62), (3.2, y - 1.18), c.soft)
        ax.text(3.4, y - 0.95, "no", fontsize=8, color=c.soft, va="center")
    box(ax, 3.2, 0.75, 5.4, 1.15, "DiSMECClassifier", c.green)
    ax.texts[-1].set_family("monospace")
    ax.text(6.4, 0.75, "the default choice: fast, accurate, no tuning", va="center", fontsize=8, color=c.soft)
    return figure

"""Curves of measured costs. All figures are from ``benches/results``."""

import tables
from matplotlib import pyplot as plt
from matplotlib.ticker import FuncFormatter, LogLocator

GROWTH = {"n_labels": "labels", "n_samples": "training rows"}


def growth(c, systems):
    """Draw how the time and the memory of a fit grow with labels and with rows."""
    lines = [line for line in tables.newest("growth").values() if line["system"] in systems]
    figure, axes = plt.subplots(2, 2, figsize=(6.4, 4.4), sharex="col", sharey="row")
    for column, (what, title) in enumerate(GROWTH.items()):
        for name in systems:
            points = sorted(
                (line["figures"][what], line["figures"])
                for line in lines
                if line["system"] == name and what in line["figures"]
            )
            at = [x for x, _ in points]
            for row, figures in enumerate(("fit CPU s", "fit MB")):
                axes[row, column].loglog(at, [f[figures] for _, f in points], "o-", label=name)
        axes[1, column].set_xlabel(title)
        axes[1, column].set_xticks(at, [f"{x:,}" for x in at], fontsize=8)
        for ax in axes[:, column]:
            ax.minorticks_off()
    for ax in axes[:, 0]:
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    axes[0, 0].set_ylabel("fit, processor seconds")
    axes[1, 0].set_ylabel("memory of the fit, MB")
    axes[0, 0].set_title(shape(lines, "n_labels"), fontsize=8)
    axes[0, 1].set_title(shape(lines, "n_samples"), fontsize=8)
    if len(systems) > 1:
        axes[0, 0].legend(fontsize=7)
    return figure


def shape(lines, what):
    """Return the sizes that stay the same."""
    data = next(line["data"] for line in lines if what in line["figures"])
    word = "labels" if what == "n_labels" else "rows"
    return ", ".join(part for part in data.split(", ") if not part.endswith(f" {word}"))


def growth_linear(c):
    return growth(c, ["DiSMECClassifier", "PDSparseClassifier"])


def growth_low_rank(c):
    return growth(c, ["LEMLClassifier"])


def growth_tree(c):
    return growth(c, ["LabelTreeClassifier", "DiSMECClassifier"])


def growth_blocks(c):
    return growth(c, ["BlockPartitionClassifier", "DiSMECClassifier"])


def growth_rules(c):
    return growth(c, ["BoostedRulesClassifier"])


def growth_link(c):
    return growth(c, ["SmoothLinkClassifier"])


def growth_couplings(c):
    return growth(c, ["CorrLogClassifier"])


PEERS = {
    "manylabel DiSMECClassifier()": "DiSMEC (ours)",
    "manylabel LabelTreeClassifier()": "tree (ours)",
    "manylabel LabelTreeClassifier(n_trees=3)": "3 trees (ours)",
    "PECOS XR-Linear, defaults": "PECOS",
    "omikuji, defaults (Parabel-like)": "omikuji",
    "napkinXC PLT, defaults": "napkinXC",
}


def against(c):
    """Draw the time of a fit and P@1 of each library, on two data sets."""
    found = tables.newest("compare") | {
        key: line for key, line in tables.newest("trees").items() if "LabelTree" in key[1]
    }
    sets = ("eurlex57k", "citeulike-t", "yso-finna-en")
    figure, axes = plt.subplots(1, 3, figsize=(7.2, 3.1))
    for ax, of in zip(axes, sets, strict=True):
        for system, name in PEERS.items():
            figures = found[of, system]["figures"]
            ours = "ours" in name
            ax.semilogx(
                figures["fit s"], figures["P@1"], "o" if ours else "s", color=c.blue if ours else c.orange
            )
            ax.annotate(
                name.removesuffix(" (ours)"),
                (figures["fit s"], figures["P@1"]),
                xytext=(0, -12 if name.startswith("tree") else 6),
                textcoords="offset points",
                ha="center",
                fontsize=7,
                color=c.blue if ours else c.orange,
            )
        ax.margins(0.28, 0.16)
        ax.set(title=of, xlabel="fit, seconds")
        ax.minorticks_off()
        low, high = ax.get_xlim()
        ticks = [tick for tick in (1, 2, 5, 10, 20, 50, 100, 200) if low <= tick <= high]
        ax.set_xticks(ticks, [str(tick) for tick in ticks])
    axes[0].set_ylabel("P@1, percent")
    return figure


def rates(c):
    """Draw the rows that each library predicts per second."""
    found = tables.newest("compare") | {
        key: line for key, line in tables.newest("trees").items() if "LabelTree" in key[1]
    }
    names = list(PEERS)
    figure, ax = plt.subplots(figsize=(6.4, 2.6))
    values = [found["eurlex57k", name]["figures"]["rows/s"] for name in names]
    order = sorted(range(len(names)), key=values.__getitem__)
    ax.barh(
        [PEERS[names[at]] for at in order],
        [values[at] for at in order],
        color=[c.blue if "ours" in PEERS[names[at]] else c.orange for at in order],
        height=0.6,
    )
    ax.bar_label(ax.containers[0], [f"{values[at]:,}" for at in order], padding=3, fontsize=8)
    ax.set(xlabel="rows predicted per second, eurlex57k", xlim=(0, 1.15 * max(values)))
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.grid(axis="y", visible=False)
    return figure


def rule_losses(c):
    """Draw the subset 0/1 loss of boosted rules and of BOOMER."""
    found = tables.newest("rules_losses") or {}
    ours, theirs = "manylabel, default", ("BOOMER, no binning", "BOOMER, 4 % bins")
    sets = list(dict.fromkeys(of for of, _ in found))
    figure, ax = plt.subplots(figsize=(6.4, 2.8))

    def loss(of, system):
        return float(found[of, system]["figures"]["subset 0/1 %"].split()[0])

    for system, color, marker in ((theirs[0], c.orange, "s"), (theirs[1], c.green, "^"), (ours, c.blue, "o")):
        ax.plot(
            [loss(of, system) for of in sets],
            sets,
            marker,
            color=color,
            label=system.replace("manylabel", "ours"),
        )
    ax.set(xlabel="subset 0/1 loss on test rows, percent")
    ax.invert_yaxis()
    ax.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def coupling_gains(c):
    """Draw the subset 0/1 loss of CorrLog with and without couplings."""
    found = tables.newest("corrlog_cv")
    sets = list(dict.fromkeys(of for of, _ in found))
    figure, ax = plt.subplots(figsize=(6.4, 2.8))
    for system, color, marker in (
        ("independent, elastic net", c.orange, "s"),
        ("CorrLog, elastic net", c.blue, "o"),
    ):
        values = [100 * found[of, system]["figures"]["0-1"] for of in sets]
        ax.plot(values, sets, marker, color=color, label=system.replace("CorrLog", "with couplings"))
    ax.set(xlabel="subset 0/1 loss, percent (five folds)")
    ax.invert_yaxis()
    ax.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def block_weights(c):
    """Draw P@1 against how many fewer labels are scored, for blocks of DiSMEC."""
    lines = [line for line in tables.newest("partition_lambda").values() if line["set"] == "eurlex57k"]
    points = sorted((line["figures"]["counted"], line["figures"]) for line in lines)
    figure, ax = plt.subplots(figsize=(6.4, 2.7))
    for name in ("P@1", "P@5"):
        ax.semilogx([x for x, _ in points], [f[name] for _, f in points], "o-", label=name)
    ax.set(xlabel="times fewer scored labels", ylabel="percent")
    ax.set_xticks([2, 5, 10, 20, 50, 100, 200], ["2", "5", "10", "20", "50", "100", "200"])
    ax.minorticks_off()
    ax.legend(fontsize=8)
    return figure


def gains_of_unknown(c):
    """Draw the gain in P@1 of telling which entries are unknown, by classifier and data set."""
    found = tables.newest("unknown_gains")
    names = ["DiSMEC", "trees", "LEML", "PD-Sparse", "link", "CorrLog", "rules"]
    sets = list(dict.fromkeys(of for of, _ in found))
    figure, ax = plt.subplots(figsize=(6.4, 3.0))
    for of, color, marker in zip(sets, (c.blue, c.orange, c.green, c.soft, c.ink), "os^Dv", strict=False):
        points = [(name, found[of, name]["figures"]["P@1 gain"]) for name in names if (of, name) in found]
        ax.plot([y for _, y in points], [x for x, _ in points], marker, color=color, label=of, linestyle="")
    ax.axvline(0, color=c.soft, linewidth=1)
    ax.set(xlabel="gain of P@1, percentage points")
    ax.invert_yaxis()
    ax.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def against_regression(c, system, name):
    """Draw P@1 and example-F1 of a classifier minus those of logistic regressions, by default."""
    found = tables.newest("defaults", ("set", "system", "split"))
    sets = list(dict.fromkeys(of for of, known, _ in found if known == system))
    figure, ax = plt.subplots(figsize=(6.4, 3.0))
    for measure, color, marker in (("P@1", c.blue, "o"), ("example-F1", c.orange, "s")):

        def mean(of, known, measure=measure):
            values = [line["figures"][measure] for (a, b, _), line in found.items() if (a, b) == (of, known)]
            return sum(values) / len(values)

        ax.plot([mean(of, system) - mean(of, "LR") for of in sets], sets, marker, color=color, label=measure)
    ax.axvline(0, color=c.soft, linewidth=1)
    ax.set(xlabel=f"{name} minus one logistic regression per label, points")
    ax.invert_yaxis()
    ax.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def against_linear(c):
    return against_regression(c, "DiSMEC", "DiSMEC")


def against_ranking(c):
    return against_regression(c, "PD-Sparse", "PD-Sparse")


def against_low_rank(c):
    return against_regression(c, "LEML", "LEML")


def against_rules(c):
    return against_regression(c, "rules", "boosted rules")


def against_link(c):
    return against_regression(c, "link", "the smooth link")


def against_couplings(c):
    return against_regression(c, "CorrLog", "CorrLog")

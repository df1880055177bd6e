"""Record criterion's median times, and print their ratios to the previous run on the same machine.

``make bench`` runs this script after ``cargo bench``. It needs only the standard library.
"""

import argparse
import json
import os
import sys
from pathlib import Path

import record

TOPIC = "kernels"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--since", type=Path, metavar="FILE", help="leave out times that are older than this file"
    )
    args = parser.parse_args()
    since = args.since.stat().st_mtime if args.since else 0
    medians = measured(since)
    if not medians:
        sys.exit(f"{home()} has no times; run `cargo bench`")
    line = record.about(rustc=record.rustc(), **record.busy(), medians_ns=medians)
    last = [old for old in record.read(TOPIC) if old["machine"] == line["machine"]]
    table(medians, last[-1] if last else None)
    record.append(TOPIC, line)
    print(f"appended {len(medians)} medians to {record.RESULTS / TOPIC}.jsonl")


def home() -> Path:
    """Return the folder where criterion stores its measurements."""
    return Path(os.environ.get("CRITERION_HOME", record.target() / "criterion"))


def measured(since: float) -> dict[str, float]:
    """Return the median nanoseconds of each bench, without estimates that were written before `since`."""
    medians = {}
    for path in sorted(home().glob("**/new/estimates.json")):
        if path.stat().st_mtime < since:
            continue
        name = json.loads(path.with_name("benchmark.json").read_text(encoding="utf-8"))["full_id"]
        medians[name] = round(json.loads(path.read_text())["median"]["point_estimate"], 1)
    return medians


def table(medians: dict[str, float], last: dict | None):
    then = last["medians_ns"] if last else {}
    print(f"ratios to {last['date']}, commit {last['commit']}" if last else "first run of this machine")
    width = max(map(len, medians | then))
    for name in medians | then:
        old, new = then.get(name), medians.get(name)
        ratio = f"{new / old:6.3f}" if old and new else "   new" if new else "not measured now"
        print(f"{name:{width}} {seconds(new) if new else '':>10} {ratio}")


def seconds(nanoseconds: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.4g} {unit}"
    return f"{nanoseconds:.4g} ns"


if __name__ == "__main__":
    main()

"""Count the instructions of the Rust kernels under valgrind, and compare the counts with the newest record.

The script fails if a kernel takes more than ``--limit`` percent more instructions than recorded, or if a
kernel is missing from the run or from the record. It prints the names of these kernels. ``--record`` appends
the counts to ``benches/results/instructions.jsonl``. The kernels are in
``benches/rust/benches/instructions.rs``. The script needs only the standard library.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import record

TOPIC = "instructions"
INSTALL = (
    "valgrind is not installed. It runs on Linux: `sudo apt-get install valgrind` (Debian, Ubuntu),"
    " `sudo dnf install valgrind` (Fedora)."
)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--record", action="store_true", help="append the counts to the records")
    parser.add_argument(
        "--limit", type=float, default=3, metavar="PERCENT", help="allowed increase (default: %(default)s)"
    )
    parser.add_argument(
        "--toolchain", action="store_true", help="print the Rust version of the newest record and exit"
    )
    args = parser.parse_args()
    lines = record.read(TOPIC)
    if args.toolchain:
        if not lines:
            sys.exit("there is no record; run `make bench-record`")
        print(lines[-1]["rustc"].split()[1])
        return

    if shutil.which("valgrind") is None:
        sys.exit(INSTALL)
    counts = count(runner())
    conditions = {
        "rustc": record.rustc(),
        "valgrind": record.output("valgrind", "--version").removeprefix("valgrind-"),
        "architecture": platform.machine(),
        "profile": profile(),
    }
    faults = compared(counts, lines[-1], conditions, args.limit) if lines else listed(counts)
    if args.record:
        record.append(TOPIC, record.about(**conditions, instructions=counts))
        print(f"recorded {len(counts)} kernels")
    elif not lines:
        sys.exit("there is no record to compare with; run `make bench-record`")
    elif faults:
        sys.exit(
            "\n".join([*faults, "If this is intended, run `make bench-record` and commit the new record."])
        )
    else:
        print(f"no kernel takes {args.limit:g} % more instructions than recorded")


def runner() -> Path:
    """Return the program that runs the benches under valgrind."""
    default = record.target() / "tools/bin/gungraun-runner"
    path = Path(os.environ.get("GUNGRAUN_RUNNER", default)).absolute()
    if not path.is_file():
        sys.exit(f"{path} does not exist; `make bench-check` installs it")
    return path


def count(runner: Path) -> dict[str, int]:
    """Return the number of instructions of each kernel."""
    call = ["cargo", "bench", "--package", "manylabel-benches", "--bench", "instructions"]
    call += ["--", "--output-format=json"]
    environment = os.environ | {"GUNGRAUN_RUNNER": str(runner), "RAYON_NUM_THREADS": "1"}
    counts = {}
    with subprocess.Popen(
        call, cwd=record.ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as running:
        for line in running.stdout:
            summary = json.loads(line)
            name = f"{summary['function_name']}/{summary['id']}"
            if name in counts:
                sys.exit(f"two kernels are called {name}")
            (of_callgrind,) = summary["profiles"]
            counts[name] = int(of_callgrind["data"]["total"]["metrics"]["Ir"]["values"]["new"])
    if running.returncode:
        sys.exit(f"`{' '.join(call)}` failed")
    if not counts:
        sys.exit(f"`{' '.join(call)}` counted nothing")
    return counts


def profile() -> dict[str, str]:
    """Return the settings of the build that environment variables change."""
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(("CARGO_PROFILE_RELEASE_", "CARGO_PROFILE_BENCH_")) or name == "RUSTFLAGS"
    }


def compared(counts: dict[str, int], line: dict, conditions: dict, limit: float) -> list[str]:
    """Print all counts beside those of a record. Return the problems, as one sentence per kernel."""
    print(f"compared with {line['date']}, commit {line['commit']}")
    for name, now in conditions.items():
        then = line.get(name)
        if then != now:
            print(f"note: {name} is {now or 'as it comes'}, was {then or 'as it comes'}; counts may differ")
    recorded = line["instructions"]
    width = max(map(len, counts | recorded))
    print(f"{'kernel':{width}} {'recorded':>15} {'now':>15} {'change':>9}")
    faults = []
    for name in counts | recorded:
        then, now = recorded.get(name), counts.get(name)
        change = 100 * (now / then - 1) if then and now else None
        cells = [f"{value:,}" if value else "missing" for value in (then, now)]
        print(f"{name:{width}} {cells[0]:>15} {cells[1]:>15}", "" if change is None else f"{change:+8.2f} %")
        if then is None:
            faults.append(f"{name}: not in the record of {line['date']}")
        elif now is None:
            faults.append(f"{name}: recorded on {line['date']}, but no bench counts it any more")
        elif change > limit:
            faults.append(f"{name}: {change:.2f} % more instructions than recorded, {limit:g} % are allowed")
    return faults


def listed(counts: dict[str, int]) -> list[str]:
    width = max(map(len, counts))
    for name, now in counts.items():
        print(f"{name:{width}} {now:15,}")
    return []


if __name__ == "__main__":
    main()

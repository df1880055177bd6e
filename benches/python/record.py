"""Records of measurements, which are JSON lines in ``benches/results``.

Each topic has one file. Lines are appended and never changed. A line states the date, commit, machine,
versions and command of a measurement. Most lines have the figures of one system on one data set (`write`).
Lines for kernels have the figures of a whole run. ``benches/python/tables.py`` makes the tables of
``benches/README.md`` from these lines. This module needs only the standard library.
"""

import datetime
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benches/results"

# The number of programs that were ready to run when this program began, if the machine has fewer processors.
LOAD = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
BUSY = f"load average at the start {LOAD:.1f}" if (os.cpu_count() or 1) < LOAD else ""

VERSIONS = (
    "import platform, sys; from importlib.metadata import distributions;"
    "found = {d.metadata['Name']: d.version for d in distributions()};"
    "print('Python', platform.python_version(), *[f'· {p} {found.get(p)}' for p in sys.argv[1:]])"
)


def read(topic: str) -> list[dict]:
    """Return all lines of a topic, with the oldest line first."""
    path = RESULTS / f"{topic}.jsonl"
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def append(topic: str, line: dict):
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"{topic}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")


def about(**more: object) -> dict:
    """Return the entries with which every line begins."""
    return {"date": datetime.date.today().isoformat(), "commit": commit(), "machine": machine(), **more}


def write(
    topic: str,
    name: str,
    system: str,
    figures: dict,
    *,
    data: str = "",
    packages: Sequence[tuple[str, str]] = (),
    **more: object,
):
    """Append the figures of `system` on the data set `name`. `data` has the sizes of the data set.

    `packages` are pairs of a Python and a distribution. The line states their versions and the version of
    manylabel. `more` are further entries of the line.
    """
    line = about(versions=all_versions((*packages, (sys.executable, "manylabel"))), command=command())
    line |= {"set": name, "system": system, **more}
    if data:
        line["data"] = data
    append(topic, line | busy() | {"figures": figures})


def keep(
    topic: str, columns: Sequence[str], cells: Sequence[str], *, packages: Sequence[tuple[str, str]] = ()
):
    """Append a row of a table: the data set, the system and the figures. Sizes may follow the name of the set
    ("yeast, 14 labels").
    """
    name, _, data = cells[0].partition(", ")
    write(topic, name, cells[1], figures(columns[2:], cells[2:]), data=data, packages=packages)


def busy() -> dict:
    """Return an entry that states that the machine was busy when this program began, if it was."""
    return {"busy": BUSY} if BUSY else {}


def command() -> str:
    """Return the command line of this process, as typed in the root folder of the repository.

    Absolute paths name folders of one machine. So paths in the repository are written relative to it, and of
    other paths, only the last part is kept.
    """
    return shlex.join(["python", f"benches/python/{Path(sys.argv[0]).name}", *map(_portable, sys.argv[1:])])


def _portable(argument: str) -> str:
    """Return a command-line argument without folders of this machine."""
    path = Path(argument)
    if not path.is_absolute():
        return argument
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


@cache
def commit() -> str:
    """Return the commit. "-dirty" is appended if tracked files have changes, except for the records and their
    tables.
    """
    name = output("git", "describe", "--always", "--abbrev=10") or "unknown"
    apart = [f":(exclude){path}" for path in ("benches/results", "benches/README.md", "benches/papers.md")]
    return f"{name}-dirty" if output("git", "diff", "--name-only", "HEAD", "--", ".", *apart) else name


def rustc() -> str:
    return output("rustc", "--version")


def output(*call: str) -> str:
    """Return the output of a program, or an empty text if the program fails or is missing."""
    try:
        done = subprocess.run(call, cwd=ROOT, text=True, capture_output=True)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def machine() -> str:
    """Return the processor, the number of cores, the memory and the system."""
    parts = [processor(), f"{os.cpu_count()} cores"]
    if hasattr(os, "sysconf"):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
        parts.append(f"{memory:.0f} GiB")
    return ", ".join([*parts, platform.system()])


def processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.is_file() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def versions(python: str, packages: Sequence[str]) -> str:
    """Return the version of `python` and the versions of distributions that are installed for it."""
    call = [python, "-c", VERSIONS, *packages]
    return subprocess.run(call, text=True, stdout=subprocess.PIPE, check=True).stdout.strip()


@cache
def all_versions(packages: tuple[tuple[str, str], ...]) -> list[str]:
    """Return the versions of the given packages, numpy and scipy, with one line per Python."""
    lines = []
    for python in dict.fromkeys(python for python, _ in packages):
        names = [name for of, name in packages if of == python]
        lines.append(versions(python, [*dict.fromkeys(names), "numpy", "scipy"]))
    return lines


def target() -> Path:
    """Return the target folder of cargo."""
    return ROOT / os.environ.get("CARGO_TARGET_DIR", "target")


def figure(cell: str) -> int | float | str:
    """Return the number in a cell of a table. If the cell has more than a number, return its text."""
    text = cell.strip().replace(",", "")
    if text.startswith(("-", "+", ".")) or text[:1].isdigit():
        for kind in (int, float):
            try:
                return kind(text)
            except ValueError:
                pass
    return cell.strip()


def figures(columns: Sequence[str], cells: Sequence[str]) -> dict:
    """Return the cells of a row by the name of their column, without empty cells."""
    pairs = zip(columns, cells, strict=False)
    return {column: figure(cell) for column, cell in pairs if cell.strip()}

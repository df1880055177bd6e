"""Records of measurements: JSON lines in ``benches/results``, one file a topic, appended and never rewritten.

A line says when, at which commit, on which machine and with which versions and command something was
measured. Most hold the figures of one system on one data set (`write`), those of kernels a whole run.
``benches/python/tables.py`` makes the tables of ``benches/README.md`` from them. Needs the standard library
alone.
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

# Programs that wanted a processor before this one began, where they were more than the machine has.
LOAD = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
BUSY = f"load average at the start {LOAD:.1f}" if (os.cpu_count() or 1) < LOAD else ""

VERSIONS = (
    "import platform, sys; from importlib.metadata import distributions;"
    "found = {d.metadata['Name']: d.version for d in distributions()};"
    "print('Python', platform.python_version(), *[f'· {p} {found.get(p)}' for p in sys.argv[1:]])"
)


def read(topic: str) -> list[dict]:
    """All lines of a topic, the oldest first."""
    path = RESULTS / f"{topic}.jsonl"
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def append(topic: str, line: dict):
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"{topic}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")


def about(**more: object) -> dict:
    """What every line begins with."""
    return {"date": datetime.date.today().isoformat(), "commit": commit(), "machine": machine(), **more}


def write(
    topic: str,
    name: str,
    system: str,
    figures: dict,
    *,
    data: str = "",
    packages: Sequence[tuple[str, str]] = (),
):
    """Append the figures of `system` on the data set `name`, of which `data` says the sizes.

    `packages` are pairs of a Python and a distribution whose versions count, beside that of manylabel here.
    """
    line = about(versions=all_versions((*packages, (sys.executable, "manylabel"))), command=command())
    line |= {"set": name, "system": system}
    if data:
        line["data"] = data
    append(topic, line | busy() | {"figures": figures})


def keep(
    topic: str, columns: Sequence[str], cells: Sequence[str], *, packages: Sequence[tuple[str, str]] = ()
):
    """Append a row of a table: data set and perhaps its sizes ("yeast, 14 labels"), system, figures."""
    name, _, data = cells[0].partition(", ")
    write(topic, name, cells[1], figures(columns[2:], cells[2:]), data=data, packages=packages)


def busy() -> dict:
    """What says that the machine had other work when this program began."""
    return {"busy": BUSY} if BUSY else {}


def command() -> str:
    """The command line of this process, as one would type it at the top of the repository."""
    return shlex.join(["python", f"benches/python/{Path(sys.argv[0]).name}", *sys.argv[1:]])


@cache
def commit() -> str:
    """The commit, with "-dirty" where tracked files differ from it; records and the tables of them may."""
    name = output("git", "describe", "--always", "--abbrev=10") or "unknown"
    apart = [f":(exclude){path}" for path in ("benches/results", "benches/README.md")]
    return f"{name}-dirty" if output("git", "diff", "--name-only", "HEAD", "--", ".", *apart) else name


def rustc() -> str:
    return output("rustc", "--version")


def output(*call: str) -> str:
    """What a program prints, or nothing where it fails or is missing."""
    try:
        done = subprocess.run(call, cwd=ROOT, text=True, capture_output=True)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def machine() -> str:
    """Processor, cores, memory and system."""
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
    """The versions of `python` and of what is installed for it."""
    call = [python, "-c", VERSIONS, *packages]
    return subprocess.run(call, text=True, stdout=subprocess.PIPE, check=True).stdout.strip()


@cache
def all_versions(packages: tuple[tuple[str, str], ...]) -> list[str]:
    """The versions of some packages with those of numpy and scipy beside them, a line a Python."""
    lines = []
    for python in dict.fromkeys(python for python, _ in packages):
        names = [name for of, name in packages if of == python]
        lines.append(versions(python, [*dict.fromkeys(names), "numpy", "scipy"]))
    return lines


def target() -> Path:
    """Cargo's folder of built things."""
    return ROOT / os.environ.get("CARGO_TARGET_DIR", "target")


def figure(cell: str) -> int | float | str:
    """The number that a cell of a table holds, or its text where it holds more than a number."""
    text = cell.strip().replace(",", "")
    if text.startswith(("-", "+", ".")) or text[:1].isdigit():
        for kind in (int, float):
            try:
                return kind(text)
            except ValueError:
                pass
    return cell.strip()


def figures(columns: Sequence[str], cells: Sequence[str]) -> dict:
    """The cells of a row by column, without empty ones."""
    pairs = zip(columns, cells, strict=False)
    return {column: figure(cell) for column, cell in pairs if cell.strip()}

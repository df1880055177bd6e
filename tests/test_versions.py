"""Versions that are stated in several files are the same."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_least_versions_are_those_that_the_suite_is_run_with():
    project = (ROOT / "pyproject.toml").read_text()
    (dependencies,) = re.findall(r"^dependencies = \[\n(.*?)^\]", project, re.DOTALL | re.MULTILINE)
    promised = dict(re.findall(r'"([\w-]+)>=([\d.]+)"', dependencies))
    assert len(promised) == dependencies.count("\n")
    tested = dict(
        re.findall(r"^([\w-]+)==([\d.]+)$", (ROOT / "tests/least_versions.txt").read_text(), re.MULTILINE)
    )
    assert tested == {name: version + ".0" * (2 - version.count(".")) for name, version in promised.items()}


def test_the_least_rust_is_that_of_the_readme():
    (promised,) = re.findall(r'^rust-version = "([\d.]+)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)
    assert f"Rust ≥ {promised}" in (ROOT / "README.md").read_text(encoding="utf-8")

"""Readers of files with texts and the names of their labels."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import os
import re
import warnings
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from manylabel.estimator.parameters import shown

__all__ = ["read_texts"]

Columns = str | Sequence[str]

# A cell of a CSV file has at most this number of characters. The limit of the csv module, 131,072, is too low
# for full texts.
_LONGEST_CELL = 1 << 28

# Usual separators between names. A file may have another separator than the given one if at least this number
# of cells have labels, and if this share of them has a single label.
_SEPARATORS = (";", ",", "|", "\t")
_LEAST_CELLS = 5
_NEARLY_ALL = 0.95


def read_texts(
    path: str | os.PathLike[str],
    text: Columns | None = None,
    labels: str | None = None,
    *,
    separator: str = ";",
    encoding: str = "utf-8",
) -> Iterator[tuple[str, list[str]]]:
    r"""Read texts and the names of their labels from a file or a folder, one text at a time.

    The result can be passed to `TextTagger.fit`. The file is never completely in memory. The end of the file
    name determines the format:

    ================================  ======================================================================
    ``.csv``, ``.tsv``                a table with a header; the labels are in one cell, with `separator`
                                      between the names
    ``.tsv`` without a header         the format of a ``.tsv`` file if `text` and `labels` are both None. Each
                                      line has a text, a tab, and names that are separated by spaces or
                                      tabs. A name may be in angle brackets, as in ``<http://a/b>``.
    ``.jsonl``, ``.ndjson``           one JSON object per line; the labels of a text are a list of names, or a
                                      str with `separator` between the names
    ``.parquet``                      a table; the labels of a text are a list of names, or a str with
                                      `separator` between the names. This format requires pyarrow.
    a folder                          one ``.txt`` file per text. The labels of ``doc.txt`` are in
                                      ``doc.key`` or ``doc.tsv``. Each line of a ``.key`` file is a name.
                                      Each line of a ``.tsv`` file has an identifier in angle brackets, a
                                      tab, and a name.
    ================================  ======================================================================

    ``.csv``, ``.tsv``, ``.jsonl`` and ``.ndjson`` files may be compressed with gzip. The name of a compressed
    file may have the additional ending ``.gz``, as in ``docs.csv.gz``, but this ending is not necessary. The
    files in a folder must not be compressed.

    Parameters
    ----------
    path : str or path-like
        The file or folder to read.
    text : str or sequence of str, default=None
        Names of the columns with the text. Several columns are joined with a line break. A single str may
        name several columns, with commas between them, such as ``"title,abstract"``. None means the column
        "text". However, if `text` and `labels` are both None, a ``.tsv`` file is read as a file without a
        header.
    labels : str, default=None
        Name of the column with the labels. None means the column "labels". If `labels` is None and there is
        no such column, the texts have no labels.
    separator : str, default=";"
        Text between two names in a cell. Spaces around names are removed.
    encoding : str, default="utf-8"
        Encoding of the file, or of the files in the folder. It has no effect on Parquet files. If the
        encoding is "utf-8" or "utf-16", a byte order mark at the beginning of a file is not part of the text.

    Returns
    -------
    iterator of tuple (str, list of str)
        Pairs of a text and the names of its labels. If a text has no labels, its list of names is empty. The
        call of `read_texts` itself checks only `separator`, `encoding` and the format of the file. All other
        errors are raised while the texts are read from the iterator.

    Raises
    ------
    ValueError
        If `separator` is not valid, or if the format of the file is unknown. The error is also raised if the
        file is damaged or not in the given encoding, if a column is missing, or if a line is malformed. The
        error message for a malformed line states the file and the line.
    LookupError
        If `encoding` is unknown.
    OSError
        If the file cannot be read.
    ModuleNotFoundError
        If the file is a Parquet file and pyarrow is not installed.

    Warns
    -----
    UserWarning
        If `separator` seems to be wrong. This is the case if nearly all cells with labels are read as a
        single name, and most of these names contain another common separator, such as a comma. The warning is
        issued after the last row. If fewer than five cells of the file have labels, no warning is issued.

    Examples
    --------
    >>> from pathlib import Path
    >>> from manylabel.tagging import read_texts
    >>> _ = Path("docs.csv").write_text("title,subjects\nA kitten,cats; animals\nTaxes,law\n")
    >>> list(read_texts("docs.csv", "title", "subjects"))
    [('A kitten', ['cats', 'animals']), ('Taxes', ['law'])]
    """
    path = Path(path)
    columns = None if text is None else list(text)
    if isinstance(text, str):
        columns = [column.strip() for column in text.split(",")]
    if not isinstance(separator, str) or not separator:
        raise ValueError(f"`separator` must be a non-empty str, got {shown(separator)}")
    if codecs.lookup(encoding).name == "utf-8":
        encoding = "utf-8-sig"
    if path.is_dir():
        return _folder(path, encoding)
    ending = path.name.lower().removesuffix(".gz").rpartition(".")[2]
    if ending == "tsv" and columns is None and labels is None:
        return _lines(path, encoding)
    if ending in ("csv", "tsv"):
        rows: Iterable[Any] = _table(path, "\t" if ending == "tsv" else ",", encoding)
    elif ending in ("jsonl", "ndjson"):
        rows = _objects(path, encoding)
    elif ending == "parquet":
        rows = _parquet(path, [*(columns or ["text"]), "labels" if labels is None else labels])
    else:
        raise ValueError(
            f"{path}: expected a folder or a file that ends in .csv, .tsv, .jsonl, .ndjson or .parquet"
        )
    return _cells(path, rows, columns or ["text"], labels, separator)


@contextmanager
def _opened(path: Path, encoding: str) -> Iterator[IO[str]]:
    with open(path, "rb") as file:
        compressed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        content: Any = gzip.GzipFile(fileobj=file) if compressed else file
        with io.TextIOWrapper(content, encoding=encoding, newline="") as opened:
            try:
                yield opened
            except UnicodeDecodeError as error:
                raise ValueError(f"{path}: expected text in {encoding}: {error}") from None
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise ValueError(f"{path}: the gzip stream is damaged: {error}") from None


def _cells(
    path: Path, rows: Iterable[Any], columns: list[str], labels: str | None, separator: str
) -> Iterator[tuple[str, list[str]]]:
    """Yield the text and the label names of each row.

    Each item of `rows` is a pair: the place of the row in the file, such as "line 2", and a dict of the
    cells of the row.
    """
    cells = _Cells(separator)
    for place, row in rows:
        for column in (*columns, *(() if labels is None else (labels,))):
            if column not in row:
                raise ValueError(
                    f"{path}, {place}: expected the column {shown(column)}, got {shown(list(row))}"
                )
        parts = [row[column] for column in columns]
        for column, part in zip(columns, parts, strict=True):
            if part is not None and not isinstance(part, str):
                raise ValueError(f"{path}, {place}: expected text in {shown(column)}, got {shown(part)}")
        found = row.get("labels" if labels is None else labels)
        if found is None:
            names = []
        elif isinstance(found, str):
            names = [name.strip() for name in found.split(separator) if name.strip()]
            cells.add(found, names)
        elif isinstance(found, list) and all(isinstance(name, str) for name in found):
            names = found
        else:
            raise ValueError(f"{path}, {place}: expected label names, got {shown(found)}")
        yield "\n".join(part for part in parts if part), names
    cells.warn(path)


class _Cells:
    """A counter of the cells with label names in a file. The counts show whether the separator is wrong."""

    def __init__(self, separator: str) -> None:
        self._separator = separator
        self._n_cells = self._n_single = 0
        self._n_with = {other: 0 for other in _SEPARATORS if other != separator}

    def add(self, cell: str, names: list[str]) -> None:
        if not names:
            return
        self._n_cells += 1
        if len(names) == 1:
            self._n_single += 1
            for other in self._n_with:
                self._n_with[other] += other in cell

    def warn(self, path: Path) -> None:
        """Warn if the separator seems to be wrong.

        The warning is issued if nearly all cells have a single name, but most cells contain another character
        that is often used as a separator, such as a semicolon or a comma. With fewer than five cells, there
        is no warning.
        """
        other = max(self._n_with, key=lambda each: self._n_with[each])
        if self._n_cells >= _LEAST_CELLS and (
            self._n_single >= _NEARLY_ALL * self._n_cells and 2 * self._n_with[other] > self._n_cells
        ):
            warnings.warn(
                f"{path}: with the separator {self._separator!r}, {self._n_single} of {self._n_cells} cells "
                f"have a single label, but {self._n_with[other]} of the cells with a single label contain "
                f"{other!r}. If {other!r} is the separator, pass separator={other!r} (on the command line: "
                f"--sep {other!r})",
                stacklevel=3,
            )


def _table(path: Path, delimiter: str, encoding: str) -> Iterator[tuple[str, dict[str, Any]]]:
    with _opened(path, encoding) as file:
        reader = csv.DictReader(file, delimiter=delimiter, restkey=None)
        while True:
            # The limit is one of the process, so it is changed only while a row is read.
            limit = csv.field_size_limit(_LONGEST_CELL)
            try:
                row = next(reader, None)
            except csv.Error as error:
                raise ValueError(f"{path}, line {reader.line_num}: {error}") from None
            finally:
                csv.field_size_limit(limit)
            if row is None:
                return
            names = reader.fieldnames or ()
            if None in row:
                raise ValueError(f"{path}, line {reader.line_num}: expected {len(names)} cells, got more")
            if len(row) < len(names):
                twice = next(name for name in names if list(names).count(name) > 1)
                raise ValueError(f"{path}: expected each column name only once, got {shown(twice)} twice")
            yield f"line {reader.line_num}", row


def _objects(path: Path, encoding: str) -> Iterator[tuple[str, dict[str, Any]]]:
    with _opened(path, encoding) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (json.JSONDecodeError, RecursionError) as error:
                why = error.msg if isinstance(error, json.JSONDecodeError) else "too many levels"
                raise ValueError(
                    f"{path}, line {number}: expected a JSON object, but the line cannot be parsed: {why}"
                ) from None
            if not isinstance(row, dict):
                raise ValueError(f"{path}, line {number}: expected a JSON object, got {shown(row)}")
            yield f"line {number}", row


def _parquet(path: Path, wanted: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "Parquet files require pyarrow; install it with: pip install pyarrow", name=error.name
        ) from None
    number = 0
    with open(path, "rb") as file:
        try:
            table = parquet.ParquetFile(file)
            # Without one of the wanted columns, all are read, so that the error names them.
            every = table.schema_arrow.names
            used = wanted if set(wanted) <= set(every) else None
            for batch in table.iter_batches(batch_size=1024, columns=used):
                for row in batch.to_pylist():
                    yield f"row {number}", row
                    number += 1
        except pyarrow.ArrowInvalid as error:
            raise ValueError(f"{path}: {error}") from None


def _lines(path: Path, encoding: str) -> Iterator[tuple[str, list[str]]]:
    with _opened(path, encoding) as file:
        for number, line in enumerate(file, 1):
            text, tab, names = line.rstrip("\r\n").partition("\t")
            if not tab:
                if not text.strip():
                    continue
                raise ValueError(f"{path}, line {number}: expected a text, a tab and label names, got no tab")
            yield text, [a or b for a, b in re.findall(r"<([^<>\t]*)>|([^\s<>]+)", names) if a or b]


def _folder(path: Path, encoding: str) -> Iterator[tuple[str, list[str]]]:
    found = sorted(file for file in path.iterdir() if file.suffix == ".txt")
    if not found:
        raise ValueError(
            f"{path}: expected a folder with texts (files that end in .txt) or a folder that "
            "`datasets.convert` wrote"
        )
    for file in found:
        yield _read(file, encoding), _names_beside(file, encoding)


def _read(file: Path, encoding: str) -> str:
    try:
        return file.read_text(encoding)
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: expected text in {encoding}: {error}") from None


def _names_beside(file: Path, encoding: str) -> list[str]:
    for ending in (".key", ".tsv"):
        beside = file.with_suffix(ending)
        if beside.is_file():
            lines = [line.strip() for line in _read(beside, encoding).split("\n") if line.strip()]
            return lines if ending == ".key" else [line.split("\t")[-1].strip("<>") for line in lines]
    return []

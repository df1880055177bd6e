"""Files of texts: every format gives the same pairs, and malformed files name their line."""

import csv
import gzip
import json
import re

import pytest

from manylabel.tagging import read_texts

PAIRS = [('Kittens; "and" more\nof them', ["cats", "young animals"]), ("日本, tax", []), ("Law", ["law"])]


def write_csv(path, separator=","):
    with open(path, "w", newline="", encoding="utf-8-sig") as file:
        writer = csv.writer(file, delimiter=separator)
        writer.writerow(["id", "text", "labels"])
        writer.writerows([at, text, "; ".join(names)] for at, (text, names) in enumerate(PAIRS))


def write_jsonl(path, as_text=False):
    lines = [
        json.dumps({"text": text, "labels": ";".join(names) if as_text else names}) for text, names in PAIRS
    ]
    path.write_text("\n".join(lines) + "\n\n")


def test_tables_and_json_lines(tmp_path):
    write_csv(tmp_path / "a.csv")
    write_csv(tmp_path / "a.tsv", "\t")
    write_jsonl(tmp_path / "a.jsonl")
    write_jsonl(tmp_path / "b.ndjson", as_text=True)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress((tmp_path / "a.csv").read_bytes()))
    for name in ("a.csv", "a.tsv", "a.jsonl", "b.ndjson", "a.csv.gz"):
        found = list(read_texts(tmp_path / name, "text", "labels"))
        assert [(text.replace("\r\n", "\n"), names) for text, names in found] == PAIRS, name
    assert list(read_texts(tmp_path / "a.jsonl")) == PAIRS
    # Names of one encoding, whose byte order mark is ignored.
    for encoding in ("utf-8", "UTF8", "utf_8", "U8"):
        assert [text for text, _ in read_texts(tmp_path / "a.csv", "id", encoding=encoding)] == [
            "0",
            "1",
            "2",
        ]
    with pytest.raises(LookupError, match="unknown encoding: utf-9"):
        read_texts(tmp_path / "a.csv", encoding="utf-9")


def test_several_columns_are_joined_and_labels_may_be_missing(tmp_path):
    (tmp_path / "a.csv").write_text("title,abstract,subjects\nA,B,x|y\nC,,\n")
    wanted = [("A\nB", ["x", "y"]), ("C", [])]
    assert list(read_texts(tmp_path / "a.csv", "title,abstract", "subjects", separator="|")) == wanted
    assert list(read_texts(tmp_path / "a.csv", ["title"])) == [("A", []), ("C", [])]


def test_parquet(tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    texts, labels = zip(*PAIRS, strict=True)
    parquet.write_table(pa.table({"text": list(texts), "labels": list(labels)}), tmp_path / "a.parquet")
    assert list(read_texts(tmp_path / "a.parquet")) == PAIRS


def test_library_formats(tmp_path):
    (tmp_path / "a.tsv").write_text("A title\t<http://a/1> <http://a/2>\nOther\tplain\tnames\n\nNone\t\n")
    wanted = [("A title", ["http://a/1", "http://a/2"]), ("Other", ["plain", "names"]), ("None", [])]
    assert list(read_texts(tmp_path / "a.tsv")) == wanted
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "1.txt").write_text("first")
    (folder / "1.key").write_text("cats\nyoung animals\n\n")
    (folder / "2.txt").write_text("second")
    (folder / "2.tsv").write_text("<http://a/1>\tcats\n<http://a/2>\tdogs\n<http://a/3>\n")
    (folder / "3.txt").write_text("third")
    wanted = [
        ("first", ["cats", "young animals"]),
        ("second", ["cats", "dogs", "http://a/3"]),
        ("third", []),
    ]
    assert list(read_texts(folder)) == wanted


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "text,labels\na,b,c\n", "line 2: expected 2 cells, got more"),
        ("a.csv", "title,labels\na,b\n", r"line 2: expected the column 'text', got \['title', 'labels'\]"),
        ("a.jsonl", '{"text": "a"}\n[1]\n', r"line 2: expected a JSON object, got \[1\]"),
        ("a.jsonl", '{"text": "a"\n', "line 1: expected a JSON object"),
        ("a.jsonl", '{"text": 3}\n', "line 1: expected text in 'text', got 3"),
        ("a.jsonl", '{"text": "a", "labels": [3]}\n', r"line 1: expected label names, got \[3\]"),
        ("a.jsonl", "[" * 100_000, "line 1: expected a JSON object"),
        ("a.tsv", "no tab here\n", "line 1: expected a text, a tab and label names"),
        ("a.xlsx", "", "expected a folder or a file that ends in"),
        ("a.csv", b"text,labels\n\xff\xfe,a\n", "expected text in utf-8"),
        ("a.csv", "text,text,labels\na,b,c\n", "expected each column name only once, got 'text' twice"),
        (
            "a.csv.gz",
            gzip.compress(b"text\n" + bytes(range(32, 127)) * 99, mtime=0)[:-20],
            "gzip stream is damaged",
        ),
        ("a.jsonl.gz", gzip.compress(b'{"text": "a"}\n', mtime=0)[:-8] + bytes(8), "gzip stream is damaged"),
        ("a.jsonl.gz", b"\x1f\x8b\x08\x00" + bytes(6) + b"\xff" * 9, "gzip stream is damaged"),
    ],
)
def test_malformed_files_name_the_line(name, content, message, tmp_path):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=message):
        list(read_texts(path, None if name.endswith("tsv") else "text"))


@pytest.mark.parametrize(("right", "given"), [(",", ";"), ("|", ";"), (";", ",")])
def test_a_wrong_separator_is_noticed(right, given, tmp_path):
    cells = [right.join(["law", "tax", f"topic {at}"]) for at in range(20)]
    lines = "".join(f'text {at},"{cell}"\n' for at, cell in enumerate(cells))
    (tmp_path / "a.csv").write_text("text,labels\n" + lines + "none,\n")
    with pytest.warns(UserWarning, match=f"20 of 20 cells .* contain '{re.escape(right)}'"):
        found = list(read_texts(tmp_path / "a.csv", separator=given))
    assert found[0][1] == [cells[0]]
    rows = list(read_texts(tmp_path / "a.csv", separator=right))
    assert rows[0][1] == ["law", "tax", "topic 0"]


def test_single_labels_and_names_with_commas_are_no_wrong_separator(tmp_path):
    rows = [
        ("a", "law"),
        ("b", "Doe, Jane"),
        ("c", "tax"),
        ("d", "cats; dogs, other"),
        ("e", "x"),
        ("f", "y"),
    ]
    (tmp_path / "a.csv").write_text("text,labels\n" + "".join(f'{text},"{cell}"\n' for text, cell in rows))
    assert len(list(read_texts(tmp_path / "a.csv"))) == 6  # warnings are errors


def test_parquet_reads_the_wanted_columns_and_names_the_others(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {"title": ["a", "b"], "tags": [["x", "y"], None], "size": [1, 2]}
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    assert list(read_texts(tmp_path / "a.parquet", "title", "tags")) == [("a", ["x", "y"]), ("b", [])]
    assert list(read_texts(tmp_path / "a.parquet", "title")) == [("a", []), ("b", [])]
    with pytest.raises(ValueError, match=r"row 0: expected the column 'text', got \['title', 'tags', 'size'"):
        list(read_texts(tmp_path / "a.parquet"))
    with pytest.raises(ValueError, match="row 0: expected label names, got 1"):
        list(read_texts(tmp_path / "a.parquet", "title", "size"))
    (tmp_path / "b.parquet").write_bytes(b"no table")
    with pytest.raises(ValueError, match=r"b\.parquet: "):
        list(read_texts(tmp_path / "b.parquet"))


def test_files_may_begin_with_a_byte_order_mark(tmp_path):
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "1.txt").write_text("first", encoding="utf-8-sig")
    (folder / "1.key").write_text("cats\u2028and dogs\r\nlaw\r\n", encoding="utf-8-sig", newline="")
    assert list(read_texts(folder)) == [("first", ["cats\u2028and dogs", "law"])]
    (tmp_path / "a.jsonl").write_text('{"text": "a", "labels": ["x"]}\n{"text": null}\n', "utf-8-sig")
    assert list(read_texts(tmp_path / "a.jsonl")) == [("a", ["x"]), ("", [])]
    (folder / "1.txt").write_bytes(b"\xff")
    with pytest.raises(ValueError, match=r"1\.txt: expected text in utf-8"):
        list(read_texts(folder))


def test_two_files_are_read_at_the_same_time(tmp_path):
    """A long cell is read although another file has ended in between."""
    (tmp_path / "a.csv").write_text("text,labels\na,x\n")
    (tmp_path / "b.csv").write_text(f"text,labels\nb,x\n{'long ' * 50_000},y\n")
    before = csv.field_size_limit()
    second = read_texts(tmp_path / "b.csv")
    assert next(second) == ("b", ["x"])
    assert list(read_texts(tmp_path / "a.csv")) == [("a", ["x"])]
    assert len(next(second)[0]) == 250_000
    assert csv.field_size_limit() == before


def test_spaces_between_columns_and_empty_names_are_left_out(tmp_path):
    (tmp_path / "a.csv").write_text("title,note,labels\na,b,x;;\n")
    assert list(read_texts(tmp_path / "a.csv", "title, note")) == [("a\nb", ["x"])]
    (tmp_path / "a.tsv").write_text("a\t<> <x> y\n")
    assert list(read_texts(tmp_path / "a.tsv")) == [("a", ["x", "y"])]


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"expected a folder with texts"):
        list(read_texts(tmp_path))

import gzip
import json
from time import perf_counter

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import sparse

from manylabel.datasets import load_arff, load_xc

# Original files: name of the label list, options of `load_arff`, and the same data as a file for `load_xc`.
REAL = {
    f"{name}-{part}": (name, {}, f"{name}/{part}")
    for name in ("bibtex", "birds", "emotions", "enron", "flags", "medical", "yeast")
    for part in ("test", "train")
}
REAL |= {
    "Corel5k-test-sparse": ("Corel5k", {}, "corel5k/test"),
    "Corel5k-train-sparse": ("Corel5k", {}, "corel5k/train"),
    "foodtruck": ("foodtruck", {}, "foodtruck/all"),
    "genbase-test": ("genbase", {"ignore": ["protein"]}, "genbase/test"),
    "hmc-cellcycle_FUN.valid": (None, {}, "hmc-cellcycle-fun/valid"),
    "meka-Music_missing_classes": (None, {"missing_labels": "absent"}, None),
}
REAL |= dict.fromkeys(["meka-Enron", "meka-Music", "meka-OHSUMED-F", "meka-Yeast"], (None, {}, None))


def load_real(data, name):
    labels, options, _ = REAL[name]
    xml = labels and data / "_arff" / f"{labels}.xml.gz"
    return load_arff(data / "_arff" / f"{name}.arff.gz", xml, return_names=True, **options)


@pytest.mark.parametrize("name", REAL)
def test_real_files_hold_the_same_in_both_forms(data, name):
    X, Y, feature_names, label_names = load_real(data, name)
    (about,) = [
        f for f in json.loads((data / "_arff/index.json").read_text()) if f["file"] == f"{name}.arff.gz"
    ]
    assert sparse.issparse(X) == (about["form"] == "sparse")
    assert X.shape == (about["examples"], len(feature_names))
    assert Y.shape == (about["examples"], len(label_names))
    if same := REAL[name][2]:
        X_same, Y_same = load_xc(data / f"{same}.txt.gz")
        # Missing values are filled in for `load_xc`, and NaN here.
        X_same, dense = X_same.toarray(), X.toarray() if sparse.issparse(X) else X
        missing = np.isnan(dense)
        assert missing.any() == name.startswith("hmc")
        np.testing.assert_array_equal(dense[~missing], X_same[~missing])
        assert Y.shape == Y_same.shape
        assert (Y_same != Y).nnz == 0
        meta = json.loads((data / same).parent.joinpath("meta.json").read_text())
        assert label_names == meta["label_names"]


def test_every_real_file_is_in_the_table(data):
    assert {path.name.removesuffix(".arff.gz") for path in data.glob("_arff/*.arff.gz")} == set(REAL)


def test_missing_classes_are_the_same_examples(data):
    X, Y, *_ = load_real(data, "meka-Music")
    X_missing, Y_missing, *_ = load_real(data, "meka-Music_missing_classes")
    np.testing.assert_array_equal(X, X_missing)
    assert Y.nnz > 0
    assert (Y_missing.shape, Y_missing.nnz) == (Y.shape, 0)  # every value is missing
    with pytest.raises(ValueError, match=r"line 84: expected a value for label `amazed-suprised` .*got `\?`"):
        load_arff(data / "_arff" / "meka-Music_missing_classes.arff.gz")


def load(tmp_path, text, xml=None, **options):
    path = tmp_path / "data.arff"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    if xml is not None:
        (tmp_path / "labels.xml").write_text(xml, encoding="utf-8")
        xml = tmp_path / "labels.xml"
    return load_arff(path, xml, return_names=True, **options)


HEADER = """% A comment
@RELATION 'all kinds: -C 1'

@Attribute label {0,1}
@attribute 'a number' REAL  % another
@ATTRIBUTE answer{yes,NO}
@attribute sex { F , M }
@attribute "the \\"size\\"" {small,'not so small',large}
@attribute count integer
"""
NAMES = ["a number", "answer", "sex=M"]
NAMES += [f'the "size"={size}' for size in ("small", "not so small", "large")] + ["count"]


def test_dense_rows(tmp_path):
    rows = """@DATA
1,0.5,yes,F,'not so small',-3
% nothing

0 , 1e-3 ,NO, M ,large,+7 % end
0,?,?,?,?,?
"""
    X, Y, feature_names, label_names = load(tmp_path, HEADER + rows)
    assert isinstance(X, np.ndarray)
    assert (X.dtype, type(Y), Y.dtype) == (np.float32, sparse.csr_array, np.int32)
    assert (feature_names, label_names) == (NAMES, ["label"])
    nan = np.nan
    expected = [[0.5, 1, 0, 0, 1, 0, -3], [0.001, 0, 1, 0, 0, 1, 7], [nan] * 7]
    np.testing.assert_array_equal(X, np.float32(expected))
    assert Y.toarray().ravel().tolist() == [1, 0, 0]


def test_sparse_rows_omit_the_first_value(tmp_path):
    rows = """@data
{}
{1 0.5, 2 NO,3 M , 4 'not so small', 5 -3}
{5 1,0 1,4 small}
{ 4 ?, 1 ? }
"""
    X, Y, feature_names, _ = load(tmp_path, HEADER + rows, dtype=np.float64)
    assert (type(X), X.dtype) == (sparse.csr_array, np.float64)
    assert X.has_canonical_format
    assert feature_names == NAMES
    nan = np.nan
    expected = [
        [0, 1, 0, 1, 0, 0, 0],
        [0.5, 0, 1, 0, 1, 0, -3],
        [0, 1, 0, 1, 0, 0, 1],
        [nan, 1, 0, nan, nan, nan, 0],
    ]
    np.testing.assert_array_equal(X.toarray(), expected)
    assert Y.toarray().ravel().tolist() == [0, 0, 1, 0]


def test_labels_of_any_wording(tmp_path):
    header = """@relation 'r: -C -5'
@attribute x numeric
@attribute a {1,0}
@attribute b {False,TRUE}
@attribute c {no,yes}
@attribute d numeric
@attribute e {0}
"""
    _, Y, _, names = load(tmp_path, header + "@data\n7,1,False,yes,1.0,0\n7,0,TRUE,no,0,0\n")
    assert names == list("abcde")
    assert Y.toarray().tolist() == [[1, 0, 1, 1, 0], [0, 1, 0, 0, 0]]
    _, Y, *_ = load(tmp_path, header + "@data\n{0 7}\n{1 0, 4 1}\n")
    assert Y.toarray().tolist() == [[1, 0, 0, 0, 0], [0, 0, 0, 1, 0]]


XML = """<?xml version="1.0" encoding="utf-8"?>
<labels xmlns="http://mulan.sourceforge.net/labels">
<!-- <label name="not this"/> -->
<label name="b &amp; c"><label name='d'></label></label>
</labels>
"""


def test_xml_wins(tmp_path):
    text = """@relation 'r: -C 2'
@attribute a numeric
@attribute 'b & c' {0,1}
@attribute d {0,1}
@data
5,1,0
"""
    X, Y, feature_names, label_names = load(tmp_path, text, XML)
    assert (feature_names, label_names) == (["a"], ["b & c", "d"])
    assert (X.tolist(), Y.toarray().tolist()) == ([[5]], [[1, 0]])
    (tmp_path / "labels.xml").write_bytes(gzip.compress(XML.encode()))
    (tmp_path / "data.arff").write_bytes(gzip.compress(text.encode()))
    X_packed, Y_packed = load_arff(bytes(tmp_path / "data.arff"), str(tmp_path / "labels.xml"))
    assert (X_packed.tolist(), Y_packed.toarray().tolist()) == (X.tolist(), Y.toarray().tolist())


def test_hierarchy_brings_ancestors(tmp_path):
    text = """@relation tree
@attribute x numeric
@attribute class hierarchical 1,1/2/3,1/4,5/6
@data
1,1/2/3@1/4
2,5/6
?,?
"""
    X, Y, _, names = load(tmp_path, text, missing_labels="absent")
    assert names == ["1", "1/2", "1/2/3", "1/4", "5", "5/6"]
    assert Y.toarray().tolist() == [[1, 1, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1], [0] * 6]
    assert np.isnan(X[2, 0])


def test_the_deepest_hierarchy(tmp_path):
    path = "/".join(map(str, range(100)))
    text = f"@relation tree\n@attribute class hierarchical {path},0/2\n@data\n{path}\n0/1@0/2\n"
    _, Y, _, names = load(tmp_path, text)
    assert names == [path[:end] for end in range(len(path)) if path[end] == "/"] + [path, "0/2"]
    assert Y.toarray().tolist() == [[1] * 100 + [0], [1, 1] + [0] * 98 + [1]]


def test_labels_nested_deeply(tmp_path):
    text = "@relation r\n@attribute a {0,1}\n@attribute x numeric\n@data\n1,2\n"
    n = 10_000
    _, Y, _, names = load(tmp_path, text, '<label name="a">' * n + "</label>" * n)
    assert (names, Y.toarray().tolist()) == (["a"], [[1]])


def test_long_label_lists(tmp_path):
    """A label list of 12 MB is read in linear time. Counting lines anew for each label took minutes."""
    text = "@relation r\n@attribute a {0,1}\n@attribute x numeric\n@data\n1,2\n"
    xml = "<labels>\n" + '<label name="a"></label>\n' * 500_000 + "</labels>"
    _, Y, _, names = load(tmp_path, text, xml)
    assert (names, Y.toarray().tolist()) == (["a"], [[1]])
    with pytest.raises(ValueError, match=r"labels\.xml, line 400002: expected names of attributes"):
        load(tmp_path, text, "<labels>\n" + '<label name="a"/>\n' * 400_000 + '<label name="b"/></labels>')


def test_ctrl_c_stops_the_reading_of_a_label_list(tmp_path, interrupt):
    """Ctrl-C stops the reading before the error at the end of the list is found."""
    text = "@relation r\n@attribute a {0,1}\n@attribute x numeric\n@data\n1,2\n"
    files = tmp_path / "data.arff", tmp_path / "labels.xml"
    with pytest.raises(ValueError, match=r"line 1: expected </labels>, got `</label>`"):
        load(tmp_path, text, "<labels>" + '<l><label name="a"/></l>' * 700_000 + "</label>")
    started = perf_counter()
    with pytest.raises(ValueError, match="line 1"):
        load_arff(*files)
    took = perf_counter() - started

    def stopped_after(seconds):
        try:
            interrupt(seconds)
            try:
                load_arff(*files)
            except KeyboardInterrupt:
                return True
            except ValueError:
                interrupt(0)
        except KeyboardInterrupt:
            pass  # it came after the error
        return False

    # A later reading may be faster than the measured one.
    assert any(stopped_after(share * took) for share in (0.5, 0.3, 0.2, 0.1))


def test_names_of_other_times(tmp_path):
    text = "@relation 'r: -C 1'\n@attribute größe {0,1}\n@attribute 'Maß' {über,unter,groß}\n@data\n1,groß\n"
    for encoding in ("utf-8", "utf-8-sig", "latin-1"):
        X, _, feature_names, label_names = load(tmp_path, text.encode(encoding).replace(b"\n", b"\r\n"))
        assert (label_names, feature_names) == (["größe"], ["Maß=über", "Maß=unter", "Maß=groß"])
        assert X.tolist() == [[0, 0, 1]]


def test_attributes_left_out(tmp_path):
    text = """@relation 'r: -C 1'
@attribute a {0,1}
@attribute id string
@attribute when date "yyyy-MM-dd"
@attribute x numeric
@data
1,'it''s me',?,4
"""
    message = (
        r"line 3: expected only numeric and nominal features .*"
        r"got the string attribute `id`, the date attribute `when`"
    )
    with pytest.raises(ValueError, match=message):
        load(tmp_path, text)
    text = text.replace("it''s", "it\\'s")
    X, _, names, _ = load(tmp_path, text, ignore=["when", "id"])
    assert (X.tolist(), names) == ([[4]], ["x"])
    with pytest.raises(
        ValueError, match=r"`ignore` must be names of attributes, got `ID`, which .*data\.arff"
    ):
        load(tmp_path, text, ignore=["ID"])


def test_parameters(tmp_path):
    with pytest.raises(ValueError, match='`missing_labels` must be "error", "absent" or "unknown", got None'):
        load(tmp_path, "", missing_labels=None)
    with pytest.raises(TypeError, match="`ignore` must be a sequence of names, got the str 'id'"):
        load(tmp_path, "", ignore="id")
    with pytest.raises(ValueError, match="`dtype` must be float32 or float64, got int64"):
        load(tmp_path, "", dtype=int)
    with pytest.raises(FileNotFoundError, match="nothing"):
        load_arff(tmp_path / "nothing.arff")
    X, Y, *_ = load(tmp_path, HEADER + "@data\n")
    assert (X.shape, Y.shape) == ((0, 7), (0, 1))


START = "@relation 'r: -C 1'\n@attribute a {0,1}\n@attribute x numeric\n@attribute k {u,v,w}\n"
DATA = START + "@data\n"
MALFORMED = {
    "empty": ("", r"line 1: expected @relation, got the end of the file"),
    "binary": (b"\x00\x01\x02@relation", r"line 1: expected @relation, got `\\0\\u\{1\}\\u\{2\}@relation`"),
    "no relation": ("@attribute a numeric\n", r"line 1: expected @relation, got `@attribute a numeric`"),
    "two relations": ("@relation r\n@relation r\n", r"line 2: expected @attribute, got `@relation r`"),
    "no attributes": ("@relation r\n@data\n", r"line 2: expected @attribute, got `@data`"),
    "no data": (START, r"line 5: expected @attribute or @data, got the end of the file"),
    "stray text": (START + "1,2,3\n", r"line 5: expected @attribute or @data, got `1,2,3`"),
    "no name": (
        "@relation r\n@attribute\n",
        r"line 2: expected the name of an attribute, got the end of the",
    ),
    "no type": ("@relation r\n@attribute a\n", r"line 2: expected the type of `a`: numeric.*got the end of"),
    "strange type": (
        "@relation r\n@attribute a relational\n",
        r"line 2: expected the type of `a`.*`relational`",
    ),
    "values left open": ("@relation r\n@attribute a {0,1\n", r"line 2: expected `,` or `}` .*got the end of"),
    "values empty": ("@relation r\n@attribute a {}\n", r"line 2: expected a nominal value, got `}`"),
    "value twice": (
        "@relation r\n@attribute a {u,v,u}\n",
        r"line 2: expected each nominal value once, got `u`",
    ),
    "name twice": (
        START + "@attribute x real\n",
        r"line 5: expected an attribute name that differs from the name in line 3, got `x` again",
    ),
    "quote left open": (
        "@relation r\n@attribute 'a numeric\n",
        r"line 2: expected a closing quotation mark `'`, got `'a numeric`",
    ),
    "no labels told": (
        DATA.replace(": -C 1", ""),
        r"line 1: expected label attributes, given by the file `xml`.*`-C n`",
    ),
    "-C without number": (DATA.replace("-C 1", "-C"), r"line 1: expected `-C n`.*got `'r: -C'`"),
    "-C 0": (DATA.replace("-C 1", "-C 0"), r"line 1: expected `-C n`.*got `'r: -C 0'`"),
    "-C too large": (
        DATA.replace("-C 1", "-C -4"),
        r"line 1: expected `-C n` with at most 3 labels.*got -C -4",
    ),
    "label of words": (
        DATA.replace("-C 1", "-C -1"),
        r"line 4: expected label `k` with the values 0/1, no/yes or false/true, got \{u, v, w\}",
    ),
    "label not 0 or 1": (DATA.replace("-C 1", "-C 2") + "1,2,u\n", r"line 6: expected 0 or 1 for label `x`"),
    "label unknown": (DATA + "?,2,u\n", r"line 6: expected a value for label `a` \(or set `missing_labels"),
    "too few values": (DATA + "1,2,u\n1,2\n", r"line 7: expected 3 values, got 2"),
    "too many values": (DATA + "1,2,u,3\n", r"line 6: expected 3 values, got more values"),
    "empty value": (DATA + "1,,u\n", r"line 6: expected a value, got `,u`"),
    "no number": (DATA + "1,two,u\n", r"line 6: expected a finite number .* for `x`, got `two`"),
    "not finite": (DATA + "1,inf,u\n", r"line 6: expected a finite number .* for `x`, got `inf`"),
    "undeclared value": (DATA + "1,2,U\n", r"line 6: expected one of \{u, v, w\} for `k`, got `U`"),
    "missing in quotes": (DATA + "1,2,'?'\n", r"line 6: expected one of \{u, v, w\} for `k`, got `\?`"),
    "quote open in data": (DATA + "1,2,'u\n", r"line 6: expected a closing quotation mark `'`, got `'u`"),
    "text after quote": (DATA + "1,2,'u' v\n", r"line 6: expected the end of the line, got `v`"),
    "sparse after dense": (
        DATA + "1,2,u\n{0 1}\n",
        r"line 7: expected values without braces, as in the first example",
    ),
    "dense after sparse": (
        DATA + "{0 1}\n1,2,u\n",
        r"line 7: expected values in braces, as in the first example, got `1,2,u`",
    ),
    "index too large": (DATA + "{3 1}\n", r"line 6: expected an attribute index below 3 .*got `3`"),
    "index negative": (DATA + "{-1 1}\n", r"line 6: expected an attribute index below 3 .*got `-1`"),
    "index twice": (DATA + "{1 1,1 2}\n", r"line 6: expected each attribute once, got attribute 1 twice"),
    "value missing": (DATA + "{1}\n", r"line 6: expected a value, got `}`"),
    "brace left open": (DATA + "{1 2\n", r"line 6: expected `,` or `}`, got the end of the line"),
    "text after brace": (DATA + "{1 2} 3\n", r"line 6: expected the end of the line, got `3`"),
    "cut gzip": (
        gzip.compress(DATA.encode())[:-20],
        r"line \d: expected a valid gzip stream, got a truncated",
    ),
    "path undeclared": (
        "@relation r\n@attribute c hierarchical a/b\n@data\na@b\n",
        r"line 4: expected declared paths of `c`, joined by @, got `b`",
    ),
    "path empty": (
        "@relation r\n@attribute c hierarchical a,,b\n",
        r"line 2: expected paths of `c`.*got `a,,b`",
    ),
    "path too deep": (
        "@relation r\n@attribute c hierarchical a," + "/".join("a" * 10_000) + "\n@data\na\n",
        r"line 2: expected paths of `c` with at most 100 parts, got `a/a/a",
    ),
    "name too long": (
        "@relation 'r: -C 1'\n@attribute " + "a" * 4097 + " {u,v,w}\n",
        r"line 2: expected an attribute name of at most 4096 bytes, got `aaa",
    ),
    "two hierarchies": (
        "@relation r\n@attribute c hierarchical a\n@attribute d hierarchical a\n@data\n",
        r"line 1: expected one hierarchical attribute, got 2 hierarchical attributes",
    ),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_files_are_told_with_their_line(tmp_path, case):
    text, message = MALFORMED[case]
    with pytest.raises(ValueError, match=r"data\.arff, " + message):
        load(tmp_path, text)


def test_malformed_label_lists(tmp_path):
    with pytest.raises(
        ValueError, match=r"labels\.xml, line 4: expected names of attributes of .*got `b & c`"
    ):
        load(tmp_path, DATA, XML)
    with pytest.raises(ValueError, match=r"labels\.xml, line 5: expected </labels>, got the end of the file"):
        load(tmp_path, DATA, XML.replace("</labels>\n", ""))
    with pytest.raises(ValueError, match=r"labels\.xml, line 1: expected <label name=.*got none"):
        load(tmp_path, DATA, "")
    text = "@relation r\n@attribute c hierarchical a\n@attribute l {0,1}\n@data\n"
    with pytest.raises(
        ValueError, match=r"data\.arff, line 2: expected hierarchical attributes only as labels .*got `c`"
    ):
        load(tmp_path, text, '<labels><label name="l"/></labels>')


@settings(deadline=None, max_examples=300)
@given(
    start=st.sampled_from([b"", b"@relation r\n@attribute ", DATA.encode(), (DATA + "{").encode()]),
    garbage=st.one_of(st.binary(), st.text("01,{}'\"\\%?uvw \n\t-").map(str.encode)),
)
def test_no_content_is_more_than_a_value_error(read_or_refused, start, garbage):
    read_or_refused(load_arff, "data.arff", start + garbage)


# A value in quotes with escapes, as a file may contain it.
def quoted(value, mark):
    escaped = value.replace("\\", "\\\\").replace(mark, "\\" + mark).replace("\n", "\\n").replace("\r", "\\r")
    return f"{mark}{escaped}{mark}"


names = st.lists(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=3, max_size=9, unique=True
)


@settings(deadline=None)
@given(
    names=names, mark=st.sampled_from("'\""), rows=st.lists(st.tuples(st.integers(0, 8), st.floats(width=32)))
)
def test_quoting_loses_nothing(tmp_path_factory, names, mark, rows):
    assume(names[0] not in "lx")
    rows = [(k % len(names), value) for k, value in rows if np.isfinite(value)]
    text = f"@relation 'r: -C 1'\n@attribute l {{0,1}}\n@attribute {quoted(names[0], mark)} "
    text += f"{{{','.join(quoted(name, mark) for name in names)}}}\n@attribute x real\n@data\n"
    text += "".join(f"1,{quoted(names[k], mark)},{value!r}\n" for k, value in rows)
    path = tmp_path_factory.mktemp("quoting") / "data.arff"
    path.write_bytes(text.encode())
    X, _, feature_names, _ = load_arff(path, return_names=True)
    assert feature_names == [f"{names[0]}={name}" for name in names] + ["x"]
    chosen = np.eye(len(names), dtype=np.float32)[[k for k, _ in rows]].reshape(-1, len(names))
    np.testing.assert_array_equal(X[:, :-1], chosen)
    np.testing.assert_array_equal(X[:, -1], np.float32([value for _, value in rows]))


@pytest.mark.parametrize("sparse", [False, True])
def test_missing_labels_can_be_unknown(tmp_path, sparse):
    path = tmp_path / "unknown.arff"
    rows = ["{0 1,1 ?,2 0.5}", "{0 ?}"] if sparse else ["1,?,0.5", "?,0,0"]
    header = "@relation 'tiny: -C 2'\n@attribute red {0,1}\n@attribute blue {0,1}\n@attribute width numeric\n"
    path.write_text(header + "@data\n" + "\n".join(rows) + "\n")
    _, Y = load_arff(path, missing_labels="unknown")
    np.testing.assert_array_equal(Y.toarray(), [[1, np.nan], [np.nan, 0]])
    _, absent = load_arff(path, missing_labels="absent")
    np.testing.assert_array_equal(absent.toarray(), [[1, 0], [0, 0]])
    assert absent.dtype == np.int32
    with pytest.raises(ValueError, match="a value for label"):
        load_arff(path)

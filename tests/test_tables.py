"""Tables whose first row or column is not what it seems (kind 12), and files of digits under other names (13)."""

import gzip
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from refusals import refused

from nnclassroom.commands import main
from nnclassroom.notebook import speedup
from nncourse import datasets, datasets_idx
from nncourse.datasets import mnist, read_csv
from nncourse.model import files

POINTS = [(0.942, -1.397), (1.32, 0.371), (-1.016, -0.072), (2.179, -0.831), (-1.309, 0.194), (2.993, -0.647)]
ROWS = [f"{x},{y},{number % 2}" for number, (x, y) in enumerate(POINTS)]
BODY = "\n".join(ROWS) + "\n"


def many(count: int = 40, seed: int = 3) -> list[tuple[float, float, int]]:
    """Points with labels 0 and 1, those of class 0 first."""
    drawn = random.Random(seed)
    return [(round(drawn.gauss(0, 1), 3), round(drawn.gauss(0, 1), 3), int(2 * n >= count)) for n in range(count)]


def table(rows: Sequence[Sequence[object]], header: str = "") -> str:
    return "\n".join(filter(None, [header, *(",".join(map(str, row)) for row in rows)])) + "\n"


def same_as_plain(path: Path, **options) -> None:
    """The table is BODY's, whatever stands around it."""
    data = read_csv(path, **options)
    np.testing.assert_array_equal(data.X, np.float32(POINTS))
    assert data.labels.tolist() == [0, 1, 0, 1, 0, 1]


# ---- what is read ----------------------------------------------------------------------------------------------------

SEMICOLONS = "a;b;label\n" + BODY.replace(",", ";")
READ = {
    "comment_first": "# made by hand\na,b,label\n" + BODY,
    "comments_without_a_header": "# made by hand\n# twice\n" + BODY,
    "header_in_a_comment": "# a,b,label\n" + BODY,
    "comment_in_quotes": '"# made, by, hand"\na,b,label\n' + BODY,
    "header_over_two_lines": '"a\n(cm)",b,label\n' + BODY,
    "header_over_four_lines": '"a\n(cm)\n",b,"label\n"\n' + BODY,
    "separator_line": "sep=,\na,b,label\n" + BODY,
    "separator_line_of_semicolons": "\ufeffSEP=;\r\n" + SEMICOLONS.replace("\n", "\r\n"),
    "separator_line_quoted": '"sep=,"\n' + BODY,
    "separator_line_that_commas_follow": "sep=|\n" + BODY.replace(",", "|"),
    "empty_rows": "a,b,label\n" + BODY + ",,\n,,\n",
    "empty_rows_with_blanks": "a,b,label\r\n" + BODY.replace("\n", "\r\n") + ' , ,"" \r\n\r\n,,',
    "empty_rows_first": ",,\n\n" + BODY,
    "semicolons": SEMICOLONS,
    "semicolons_and_empty_rows": SEMICOLONS + ";;\n",
    "tabs": BODY.replace(",", "\t"),
    "tabs_beside_commas": BODY.replace(",", ",\t"),
    "decimal_commas": SEMICOLONS.replace(".", ","),
    "decimal_commas_in_quotes": "\n".join(",".join(f'"{x}"'.replace(".", ",") for x in r.split(",")) for r in ROWS),
    "decimal_commas_between_tabs": BODY.replace(",", "\t").replace(".", ","),
    "comma_in_a_name": '"a, in cm";b;label\n' + BODY.replace(",", ";"),
    "utf_16": ("a,b,label\n" + BODY).encode("utf-16"),
}


@pytest.mark.parametrize("name", READ)
def test_kind_12_what_stands_around_a_table_is_read(name, csv_file):
    same_as_plain(csv_file(READ[name]))


def test_kind_12_names_over_lines_and_in_comments(csv_file):
    assert read_csv(csv_file(READ["header_over_two_lines"])).features == ("a (cm)", "b")
    assert read_csv(csv_file(READ["header_in_a_comment"])).features == ("a", "b")
    assert read_csv(csv_file(READ["comments_without_a_header"])).features == ("x1", "x2")


# ---- which column holds the classes ----------------------------------------------------------------------------------

PIXELS = [(n % 10, n * 37 % 251, n * 91 % 256, 0) for n in range(40)]
MISPLACED = ["label", "Class", '"TARGET"', "'diagnosis'", "y", " Clase ", "etiqueta", "objetivo", "diagnóstico"]


@pytest.mark.parametrize("name", MISPLACED)
@pytest.mark.parametrize("place", [0, 1])
def test_kind_12_label_first(name, place, csv_file):
    """label_first: a header that names the labels elsewhere than last is refused, and the line says how to fix it."""
    header = ["p0", "p1", "p2"]
    header.insert(place, name)
    rows = [[*row[1 : 1 + place], row[0], *row[1 + place :]] for row in PIXELS]
    path = csv_file(table(rows, ",".join(header)))
    said = refused(read_csv, path)
    bare = name.strip().strip('"')
    assert str(path) in said and "--label" in said and bare.strip("'") in said
    for label in (bare, bare.upper(), place + 1, str(place + 1)):
        data = read_csv(path, label=label)
        assert data.labels.tolist() == [row[0] for row in PIXELS] and data.features == ("p0", "p1", "p2")
        np.testing.assert_array_equal(data.X, np.float32(PIXELS)[:, 1:])
    assert read_csv(path, label=4).labels.max() == 0  # asked for, so believed


@pytest.mark.parametrize(
    "header", ["a,b,label", "x,y,label", "x,y,group", "class,a,diagnosis", "y1,classic,outcome", "Y_hat,b,target"]
)
def test_kind_12_other_headers_are_no_mistake(header, csv_file):
    same_as_plain(csv_file(f"{header}\n{BODY}"))


def test_kind_12_targets_in_several_columns(csv_file):
    path = csv_file("a,b,label,y\n5,6,0.25,-1\n7,8,0,2.5\n")
    assert read_csv(path, inputs=2).Y.tolist() == [[0.25, -1], [0, 2.5]]
    assert "--label" in refused(read_csv, csv_file("y,b,low,high\n5,6,0.25,-1\n7,8,0,2.5\n"), inputs=2, outputs=2)


@pytest.mark.parametrize(
    ("label", "said"),
    [(0, "1 to 3"), (-1, "1 to 3"), ("4", "1 to 3"), ("+0", "1 to 3"), ("lable", "did you mean label"), ("", "label")],
)
def test_kind_12_a_wrong_label_is_refused(label, said, csv_file):
    assert said in refused(read_csv, csv_file("a,b,label\n" + BODY), label=label)
    assert "no header" in refused(read_csv, csv_file(BODY), label="label")
    assert "columns 1 and 2" in refused(read_csv, csv_file("a,a,label\n" + BODY), label="a")
    assert "CSV file" in refused(datasets.load, "moons", label=label)


def test_kind_12_label_and_a_network(csv_file):
    path = csv_file(table(PIXELS, "label,p0,p1,p2"))
    data = read_csv(path, inputs=3, outputs=10, label="label")
    assert data.Y.shape == (40, 10) and data.labels.tolist() == [row[0] for row in PIXELS]
    assert "the file has 4" in refused(read_csv, path, inputs=2, outputs=2, label="label")
    assert "the file has 4" in refused(read_csv, path, inputs=4, label="label")
    with_a_fault = csv_file(table([*PIXELS, (0.5, 1, 2, 3)], "label,p0,p1,p2"))
    assert "row 42, column 1 ('label')" in refused(read_csv, with_a_fault, label="label")


# ---- columns of row numbers ------------------------------------------------------------------------------------------


def numbered(first: int = 0, step: int = 1, shuffled: bool = False) -> list[list[object]]:
    rows: list[list[object]] = [[first + step * n, *row] for n, row in enumerate(many())]
    if shuffled:
        random.Random(1).shuffle(rows)
    return rows


ROW_NUMBERS = {
    "index_column": table(numbered(), ",a,b,label"),
    "unnamed_by_pandas": table(numbered(), "Unnamed: 0,a,b,label"),
    "unnamed_twice": table(numbered(), "Unnamed: 0.1,a,b,label"),
    "unnamed_last": table([[*row, 0] for row in many()], "a,b,label,"),
    "of_R": table([[f'"{row[0]}"', *row[1:]] for row in numbered(1)], '"","a","b","label"'),
    "number_sign": table(numbered(1), "#,a,b,label"),
    "id": table(numbered(), "id,a,b,label"),
    "Id_from_1": table(numbered(1), "Id,a,b,label"),
    "PassengerId": table(numbered(892), "PassengerId,a,b,label"),
    "patient_id_drawn": table(numbered(17, 3, shuffled=True), "patient_id,a,b,label"),
    "index_shuffled": table(numbered(shuffled=True), "index,a,b,label"),
    "fila": table(numbered(1), "fila,a,b,label"),
    "número": table(numbered(1), "Número,a,b,label"),
    "no_header": table(numbered()),
    "no_header_shuffled": table(numbered(1, shuffled=True)),
}


@pytest.mark.parametrize("name", ROW_NUMBERS)
def test_kind_12_index_column(name, csv_file, capsys, tmp_path):
    path = csv_file(ROW_NUMBERS[name])
    said = refused(read_csv, path)
    assert "column" in said and "delete it" in said
    command = ["train", "--dataset", str(path), "--layers", "3,4,1", "--model", str(tmp_path / "m.npz")]
    assert main(command) == 2
    shown = capsys.readouterr()
    assert "accuracy" not in shown.out and shown.err.count("\n") == 1


def test_kind_12_a_column_that_may_count_rows_is_said(csv_file, capsys, tmp_path):
    """By its values alone it may be a time; so it is used, and not in silence."""
    path = csv_file(table(numbered(), "a,b,c,label"))
    assert "column 1 ('a')" in read_csv(path).notes[0]
    command = f"train --dataset {path} --layers 3,4,1 --epochs 1 --model {tmp_path / 'm.npz'}"
    assert main(command.split()) == 0
    assert "column 1 ('a')" in capsys.readouterr().err


def test_kind_12_the_last_column_may_be_the_index(csv_file):
    rows = [(*row, n) for n, row in enumerate(many())]
    for header in ("a,b,kind,index", "a,b,kind,place", ""):
        assert "column 4" in read_csv(csv_file(table(rows, header))).notes[0]
    assert read_csv(csv_file(table(rows)), label=3).notes != ()  # as a feature
    assert "delete it" in refused(read_csv, csv_file(table(rows, "a,b,label,index")), label="label")
    assert not read_csv(csv_file("a,b,class_id\n1,5,0\n2,3,1\n3,3,2\n")).notes  # a sample of each class


@pytest.mark.parametrize("rows", [numbered(100), numbered(139, -1), numbered(1990)])
def test_kind_12_columns_that_count_from_elsewhere_are_said(rows, csv_file):
    assert len(read_csv(csv_file(table(rows))).notes) == 1


@pytest.mark.parametrize(
    "content",
    [
        table([(n, n % 3) for n in range(30)]),  # the only feature
        table([(n + 1, 2 * n, 0.5, n % 2) for n in range(4)]),
        table([(1990 + 2 * n, 0.25 * n, n % 2) for n in range(30)]),
        table([(n, 0.25 * n, n % 2) for n in range(12) for _ in range(2)]),
        table([(7, 0.5, 0), (7, 0.25, 1), (9, 1.5, 0)], "id,a,label"),
        table([(0.5 + n, 0.25, n % 2) for n in range(12)], "id,a,label"),
    ],
    ids=["alone", "few", "years", "twice", "ids_of_groups", "fractions"],
)
def test_kind_12_numbers_that_are_features_are_read(content, csv_file):
    data = read_csv(csv_file(content))
    assert data.X.shape[1] >= 1 and not data.notes


# ---- a first row of numbers ------------------------------------------------------------------------------------------

WIDE = [[round(x + n, 3) for n in range(29)] + [label] for x, _, label in many()]
HEADERS_OF_NUMBERS = {
    "header_of_numbers": table(many(), "0,1,2"),
    "from_1": table(many(), "1,2,3"),
    "from_5": table(many(), "5,6,7"),
    "with_points": table(many(), "0.0,1.0,2.0"),
    "quoted": table(many(), '"0","1","2"'),
    "six_rows": "0,1,2\n" + BODY,
    "thirty_columns": table(WIDE, ",".join(map(str, range(30)))),
    "pixels": table([(*[n * m % 256 for m in range(3, 12)], n % 10) for n in range(20)], ",".join(map(str, range(10)))),
    "narrow_pixels": table([(*row[1:], row[0] % 2) for row in PIXELS], "0,1,2,3"),
    "semicolons": "0;1;2\n" + BODY.replace(",", ";").replace(".", ","),
    "index_and_numbers": table(numbered(), ",0,1,2"),
    "numbers_and_a_name": table(many(), "0,1,label"),
}


@pytest.mark.parametrize("name", HEADERS_OF_NUMBERS)
def test_kind_12_header_of_numbers(name, csv_file):
    said = refused(read_csv, csv_file(HEADERS_OF_NUMBERS[name]))
    assert "row 1" in said and "name" in said


@pytest.mark.parametrize(
    "content",
    [
        "0,1\n0.5,0\n0.7,1\n",
        "0,1,2\n3,5,0\n4,4,1\n",
        "0,1,2\n0.5,1,2\n1,1,2\n0.25,0,1\n0.75,0,0\n",
        table([range(n, n + 7) for n in range(5)]),
        table([(0, 1, 2), *((n, n + 1, n + 2) for n in range(1, 9))]),
        table([(1, 2, 3, 4, 5, 0), *((n, 2, 3, 4, 5, n % 2) for n in range(20))]),
    ],
    ids=["grid", "few_whole", "label_again", "all_in_sequence", "all_in_sequence_too", "no_sequence"],
)
def test_kind_12_a_first_row_of_data_is_read(content, csv_file):
    assert len(read_csv(csv_file(content)).X) == content.count("\n")


# ---- labels of one class ---------------------------------------------------------------------------------------------


def test_kind_12_one_class_is_tested_but_not_trained(csv_file, capsys, tmp_path):
    model = str(tmp_path / "m.npz")
    train = ["train", "--layers", "2,3,1", "--epochs", "2", "--model", model, "--dataset"]
    assert main([*train, str(csv_file("a,b,label\n" + BODY))]) == 0
    capsys.readouterr()
    one = str(csv_file(table([row[:2] + (0,) for row in many()], "a,b,label")))
    assert main([*train, one]) == 2
    shown = capsys.readouterr()
    assert "accuracy" not in shown.out and "two classes" in shown.err and shown.err.count("\n") == 1
    assert main(["test", "--dataset", one, "--model", model]) == 0
    shown = capsys.readouterr()
    assert "40 samples" in shown.out and "all labels are 0" in shown.err and shown.err.count("\n") == 1


def test_kind_12_label_first_without_a_header(csv_file, capsys, tmp_path):
    """As a copy of MNIST comes: the last pixel is always 0."""
    path = str(csv_file(table(PIXELS)))
    train = ["train", "--layers", "3,4,10", "--epochs", "2", "--model", str(tmp_path / "m.npz"), "--dataset", path]
    assert main(train) == 2
    assert "--label" in capsys.readouterr().err
    assert main([*train, "--label", "1"]) == 0
    assert main(["test", "--dataset", path, "--model", str(tmp_path / "m.npz")]) == 0
    assert "all labels" not in capsys.readouterr().err


@pytest.mark.parametrize("ending", ["npz", "m"])
def test_a_model_remembers_the_column_of_its_classes(ending, csv_file, capsys, tmp_path):
    path, model = str(csv_file(table(PIXELS, "label,p0,p1,p2"))), str(tmp_path / f"m.{ending}")
    train = ["train", "--epochs", "2", "--model", model, "--dataset", path]
    assert main([*train, "--layers", "3,4,10", "--label", "label"]) == 0
    assert files.load(model).provenance["label"] == "label"
    assert main([*train, "--resume", model]) == 0
    assert files.load(model).provenance["label"] == "label"
    capsys.readouterr()
    test = ["test", "--model", model, "--dataset"]
    assert main([*test, path]) == 0
    first = capsys.readouterr().out
    assert main([*test, path, "--label", "1"]) == 0 and capsys.readouterr().out == first
    last = str(csv_file(table([(*row[1:], row[0]) for row in PIXELS], "p0,p1,p2,klasse")))
    assert main([*test, last]) == 2 and "--label" in capsys.readouterr().err
    assert main([*test, last, "--label", "4"]) == 0 and capsys.readouterr().out == first
    assert main([*test, last, "--label", "0"]) == 2 and capsys.readouterr().err.count("\n") == 1


def test_a_report_reads_both_parts_by_the_same_column(csv_file, tmp_path):
    for part in ("train", "test"):
        csv_file(table(PIXELS, "label,p0,p1,p2")).rename(tmp_path / f"mine_{part}.csv")
    training, test, _ = speedup.load_sets(str(tmp_path / "mine_train.csv"), "label")
    assert training.name == "mine_train" and test.name == "mine_test" and training.labels.max() == 9
    np.testing.assert_array_equal(training.labels, test.labels)
    assert "two classes" in refused(speedup.load_sets, str(csv_file(table(PIXELS))))


# ---- what is refused, in one true line -------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ['"1,234"', "1,5"])
def test_kind_12_no_numbers(field, csv_file):
    said = refused(read_csv, csv_file(f"a,b,label\n1.5,2,0\n3,{field},1\n"))
    assert "row 3" in said and ("column 2" in said or "4 columns" in said)


def test_kind_12_a_row_of_what_is_no_number_is_no_header(csv_file):
    for first in ("1_0,2_0,1_0", "nan,nan,nan", "inf,1,0"):
        assert "row 1, column 1" in refused(read_csv, csv_file(f"{first}\n{BODY}"))


def test_kind_12_decimal_commas_and_points_are_not_mixed(csv_file):
    assert "row 3, column 1" in refused(read_csv, csv_file("a;b;label\n0,5;1,2;0\n1.234;1,5;1\n"))
    assert "row 2, column 1" in refused(read_csv, csv_file("a;b;label\n1.234,5;1,2;0\n1,5;1,5;1\n"))
    assert "row 1, column 1" in refused(read_csv, csv_file("1,234,567;1;0\n3,5;2;1\n"))
    assert "row 1, column 1" in refused(read_csv, csv_file("1,234\t1\t0\n3\t2\t1\n"))  # 1.234 or 1234


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("1 2 0\n3 4 1\n", "one column"),
        ("A table of mine\na,b,label\n" + BODY, "row 1, 'A table of mine'"),
        ("sep=,\n", "the file has none"),
        ("# nothing\n", "the file has none"),
        ("a;b;label\n", "the file has none"),
        ("a,b,label\ncm,kg,-\n" + BODY, "row 2, column 1"),
        ("a,b,label\n1,2,0\n1,2\n", "row 3 has 2 columns"),
        ('"a,b,label\n' + BODY, "columns"),
    ],
)
def test_kind_12_true_lines_about_other_tables(content, said, csv_file):
    message = refused(read_csv, csv_file(content))
    assert said in message and "there are none" not in message


# ---- kind 13: IDX files under other names ----------------------------------------------------------------------------

SAMPLE = datasets.FOLDER / datasets.SAMPLE
USUAL = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def put(folder: Path, spelling: Callable[[str], str], packed: bool = False) -> None:
    """The four files of the sample, under other names."""
    for usual in USUAL:
        path = folder / spelling(usual)
        path.parent.mkdir(parents=True, exist_ok=True)
        content = (SAMPLE / f"{usual}.gz").read_bytes()
        path.write_bytes(content if packed else gzip.decompress(content))


SPELLINGS: dict[str, tuple[str, Callable[[str], str], bool]] = {
    "a_dot": ("mnist", lambda usual: usual.replace("-idx", ".idx"), False),
    "a_dot_packed": ("mnist", lambda usual: usual.replace("-idx", ".idx") + ".gz", True),
    "upper_case": ("mnist", str.upper, False),
    "upper_case_packed": ("mnist", lambda usual: usual.upper() + ".GZ", True),
    "underscores": ("mnist", lambda usual: usual.replace("-", "_"), False),
    "packed_without_saying": ("mnist", str, True),
    "torchvision": ("MNIST/raw", str, False),
    "torchvision_in_the_folder": ("mnist/MNIST/raw", lambda usual: usual + ".gz", True),
    "kaggle": ("mnist", lambda usual: f"{usual.replace('-idx', '.idx')}/{usual}", False),
    "capitals": ("Mnist", lambda usual: usual.replace("-idx", ".idx"), False),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_kind_13_files_are_found_in_any_spelling(name, data_folder):
    folder, spelling, packed = SPELLINGS[name]
    put(data_folder / folder, spelling, packed)
    wanted = mnist(name=datasets.SAMPLE)
    for data in (mnist(), datasets.mnist_or_digits(), mnist(folder=data_folder / folder)):
        assert data.name == "mnist"
        np.testing.assert_array_equal(data.X, wanted.X)
        np.testing.assert_array_equal(data.labels, wanted.labels)
    assert datasets.mnist_or_digits("test").name == "mnist"


def test_kind_13_the_usual_name_goes_first_and_hidden_copies_do_not_count(data_folder):
    put(data_folder / "mnist", str)
    for usual in USUAL:
        (data_folder / "mnist" / usual.replace("-idx", ".idx")).write_bytes(b"no IDX file")
        (data_folder / "mnist" / f"._{usual}").write_bytes(b"of macOS")
        (data_folder / "mnist" / "__MACOSX").mkdir(exist_ok=True)
    assert len(mnist().X) == 3000


def test_kind_13_other_sets_of_the_same_names_are_not_taken(data_folder):
    put(data_folder / "KMNIST/raw", str)
    put(data_folder / "mnist/FashionMNIST/raw", str)
    assert datasets.mnist_or_digits().name == datasets.SAMPLE
    put(data_folder / "FashionMNIST/raw", str)
    assert mnist(name="fashion_mnist").classes == datasets.FASHION
    assert "not there" in refused(mnist, folder=data_folder / "mnist")


NOWHERE = ["http://127.0.0.1:9"]  # the discard port: nobody listens


def test_kind_13_offline_the_files_that_are_there_are_named(data_folder):
    (data_folder / "mnist").mkdir()
    (data_folder / "mnist" / "images_of_digits.bin").write_bytes(b"?")
    said = refused(mnist, mirrors=NOWHERE)
    assert "images_of_digits.bin" in said and f"put it into {data_folder / 'mnist'}" in said
    assert "--dataset mnist_sample" in said and str(datasets.FOLDER) not in said
    assert "images_of_digits.bin" in refused(mnist, folder=data_folder / "mnist")


def test_kind_13_offline_without_a_folder_of_that_name(data_folder, monkeypatch):
    (data_folder / "train.idx").write_bytes(b"?")
    said = refused(mnist, mirrors=NOWHERE)
    assert f"put it into {data_folder / 'mnist'}" in said and "train.idx" in said
    monkeypatch.delenv("NNCOURSE_DATA")
    said = refused(mnist, mirrors=NOWHERE)
    assert f"put it into {datasets.FOLDER / 'mnist'}" in said and "--dataset mnist_sample" in said
    (data_folder / "mnist").mkdir()
    assert "no files" in refused(mnist, folder=data_folder / "mnist")


def test_kind_13_a_part_of_the_files(data_folder):
    put(data_folder / "MNIST/raw", lambda usual: usual.replace("-idx", ".idx"))
    (data_folder / "MNIST/raw/train-labels.idx1-ubyte").unlink()
    said = refused(mnist, mirrors=NOWHERE)
    assert "train-images.idx3-ubyte" in said and "train-labels-idx1-ubyte.gz" in said
    assert datasets.mnist_or_digits().name == datasets.SAMPLE


def test_many_files_are_not_all_named(tmp_path):
    for number in range(50):
        (tmp_path / f"{number:02d}.png").touch()
    assert datasets_idx.named(tmp_path, "mnist").count(".png") < 20 and "50" in datasets_idx.named(tmp_path, "mnist")

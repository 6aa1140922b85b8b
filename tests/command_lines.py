"""Command lines, right and wrong, and a working folder with the files that they name."""

import os
from pathlib import Path

import numpy as np

from nncourse.model import files
from nncourse.model.network import make_network

TRAIN = "train --dataset good.csv --layers 2,3,1 --epochs 2 --model new.npz"
RESUME = "train --resume model.npz --dataset good.csv --model new.npz"
TEST = "test --dataset good.csv --model model.npz"


def fill(work: Path) -> None:
    """Data and models, good and bad."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(40, 2)).round(3)
    rows = [f'{a},{b},"{int(a + b > 0)}"' for a, b in X]
    good = "\n".join(['"V1","V2","Class"', *rows]) + "\n"
    for name, text in {
        "good.csv": good,
        "bare.csv": good.replace('"', "").replace("V1,V2,Class\n", ""),
        "words.csv": good.replace(f"{X[7, 1]}", "seven"),
        "nan.csv": good.replace(f"{X[7, 1]}", "nan"),
        "ragged.csv": good + "1,2\n",
        "labels.csv": good + "0.5,0.5,3\n",
        "half.csv": good + "0.5,0.5,0.5\n",
        "wide.csv": "1,2,3,4,5,1\n6,7,8,9,1,0\n",
        "empty.csv": "",
        "header.csv": '"V1","V2","Class"\n',
        "corrupt.npz": "PK\x03\x04 no more",
        "corrupt.m": "3\n2 3 1\n0.1 0.2\n",
        "image.csv": "\x89PNG\r\n\0",
    }.items():
        (work / name).write_text(text, "latin-1")
    (work / "folder.csv").mkdir()
    (work / "folder.npz").mkdir()
    os.mkfifo(work / "pipe.npz")
    for name in ("model.npz", "model.m"):
        files.save(files.Model(make_network([2, 3, 1], seed=5)), work / name)
    files.save(files.Model(make_network([7, 3, 1])), work / "other.npz")
    for key in ("epochs", "seed"):
        files.save(files.Model(make_network([2, 3, 1]), provenance={key: "many"}), work / f"no_{key}.npz")


WRONG = [
    "",
    "learn",
    "--epochs 3",
    "train",
    *(f"train --dataset good.csv {text}" for text in ("--layers 2,3,1", "--model new.npz")),
    "train --layers 2,3,1 --model new.npz",
    *(f"{TRAIN} --dataset {name}.csv" for name in ("no_such", "words", "nan", "ragged", "labels", "half", "wide")),
    *(f"{TRAIN} --dataset {name}.csv" for name in ("empty", "header", "image", "folder", "no/where")),
    *(f"{TRAIN} --dataset {name}" for name in ("no_such", "breast_cancer", "model.npz", "a" * 300, "a" * 300 + ".csv")),
    *(f"{TRAIN} --layers {layers}" for layers in ("2", "2,x,1", "2,,1", "2,0,1", "2,-3,1", "3,3,1", "2.5,1")),
    *(f"{TRAIN} --layers {layers}" for layers in ("2,1000000,1000000,1", "2,99999999999999999999999,1")),
    *(f"{TRAIN} --epochs {number}" for number in ("-1", "0", "x", "1.5", "")),
    *(f"{TRAIN} --batch-size {number}" for number in ("-1", "0", "x")),
    *(f"{TRAIN} --batch_number {number}" for number in ("0", "2.5")),
    *(f"{TRAIN} --learning-rate {number}" for number in ("nan", "inf", "0", "-0.1", "x", "1e-400", "1e999")),
    *(f"{TRAIN} --validation {number}" for number in ("nan", "1", "-0.5", "2", "0.0001", "0.9999", "x")),
    *(f"{TRAIN} --seed {number}" for number in ("-1", "x", "1.5")),
    *(f"{TRAIN} --scaling {name}" for name in ("minmax", "")),
    *(f"{TRAIN} --cost {name}" for name in ("mean", "categorical_cross_entropy,", "__init__")),
    *(f"{TRAIN} --activation {name}" for name in ("sigmoidal", "softmax", "tanh,", "tanh,tanh,tanh", ",")),
    f"{TRAIN} --cost binary_cross_entropy --activation tanh,tanh",
    f"{TRAIN} --initialiser zeros",
    *(f"{line} --backend {name}" for line in (TRAIN, TEST) for name in ("gpu", "torch", "Numpy")),
    *(f"{TRAIN} --use {text}" for text in ("dense_forward", "=numpy", "dense_forward=", "dense=numpy", "sigmoid=x")),
    *(f"{TRAIN} --use {text}" for text in ("dense_forward=tiled", "name=numpy", "mine=1", "emulate=1", "sigmoid=cupy")),
    *(f"{TRAIN} --optimizer {name}" for name in ("adagard", "", "Adam")),
    *(f"{TRAIN} --momentum {number}" for number in ("1", "-0.1", "nan", "x")),
    *(f"{TRAIN} --l2 {number}" for number in ("-1", "nan", "inf", "x")),
    f"{TRAIN} --optimizer adam --momentum 0.9",
    *(f"{TRAIN} --optimizer adam {text}" for text in ("--beta 0.9", "--beta1 1", "--beta2 -0.1", "--epsilon 0")),
    f"{TRAIN} --beta 0.9",
    f"{TRAIN} --optimizer adam --plan numpy",
    *(f"{TRAIN} --schedule {text}" for text in ("linear", "step", "step,0,0.5", "step,2,nan")),
    *(f"{TRAIN} --schedule {text}" for text in ("exponential,2", "cosine,x")),
    f"{TRAIN} --optimizer adam --model new.m",
    f"{TRAIN} --momentum 0.5 --model new.m",
    f"{TRAIN} --bogus",
    f"{TRAIN} --epoch 3",
    f"{TRAIN} surplus",
    *(f"{TRAIN} --model {name}" for name in ("folder.npz", "no/where.npz", "pipe.npz", "good.csv/x.npz", ".")),
    *(f"{line} --model {'a' * 300}" for line in (TRAIN, TEST)),
    *(f"train --resume {name} --dataset good.csv --model new.npz" for name in ("no.npz", "corrupt.npz", "other.npz")),
    *(f"train --resume no_{name}.npz --dataset good.csv --model new.npz" for name in ("epochs", "seed")),
    *(f"{RESUME} {text}" for text in ("--optimizer adam", "--momentum 0.5", "--layers 2,4,1", "--cost mae")),
    f"{RESUME} --scaling none",
    *(f"{TEST} --model {name}.npz" for name in ("no", "corrupt", "folder", "other")),
    *(f"{TEST} --model {name}" for name in ("corrupt.m", "good.csv")),
    *(f"{TEST} --dataset {name}" for name in ("wide.csv", "words.csv", "labels.csv", "breast_cancer", "no_such.csv")),
    f"{TEST} --epochs 3",
    "--train --test --dataset good.csv --model model.npz",
    "check no_such",
    *(f"check {text}" for text in ("--kernel fast", "dense_forward --kernel fast", "dense_forward --kernel atomic")),
    "time no_such",
    *(f"time softmax --size {size}" for size in ("n", "n=0", "n=-1", "n=x", "n=²", "n=1.5", "m=3", "=3")),
    "time softmax --size batch=99999999 --size n=99999999",
    *(
        f"time convolution_forward --size {size}"
        for size in ("k=40", "k=0", "h_in=0", "stride=0", "before=-1", "h_out=9", "w_out=28", "batch=999999999", "x=1")
    ),
    "time convolution_forward --size k=5 --size h_in=3 --size before=0",
    "time maxpool_backward --size h_in=0 --size size=2 --size stride=1 --size padding=1",
    "time confusion_matrix --size classes=0",
    f"time softmax --size n={'9' * 40}",
    "info surplus",
]

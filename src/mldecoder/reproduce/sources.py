"""The data behind the tables: how much of it the paper or its authors state, and where it is to be had."""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["SOURCES", "Count", "Source"]


@dataclass(frozen=True)
class Count:
    """How many there should be, who says so, and by what share it may differ where it is said to be about that."""

    what: str
    number: int
    stated: str
    about: float = 0.0


@dataclass(frozen=True)
class Source:
    """A dataset: its counts, the layout that is read, what to say to the reader, and where it is to be had.

    ``held_out`` are the labels that are trained and those that never are, in a zero-shot set.
    """

    name: str
    train: Count
    val: Count
    labels: Count
    format: str
    layout: str
    recipe: str
    get: tuple[str, ...]
    held_out: tuple[Count, ...] = ()


def _source(
    name: str,
    train: tuple[int, str],
    val: tuple[int, str],
    labels: tuple[int, str],
    *,
    format_: str,
    layout: str,
    recipe: str,
    get: tuple[str, ...],
    about: float = 0.0,
    held_out: tuple[Count, ...] = (),
) -> Source:
    return Source(
        name,
        Count("training pictures", *train, about),
        Count("validation pictures", *val),
        Count("labels", *labels, about),
        format_,
        layout,
        recipe,
        get,
        held_out,
    )


_PAPER = "the paper (arXiv:2111.12933)"

SOURCES: Mapping[str, Source] = {
    "coco": _source(
        "MS-COCO 2014",
        (82_081, f"{_PAPER}, those with a label"),
        (40_137, f"{_PAPER}, those with a label"),
        (80, _PAPER),
        format_="COCO",
        layout="annotations/instances_{train,val}2014.json, train2014/ and val2014/",
        recipe="coco",
        get=(
            "http://images.cocodataset.org/zips/train2014.zip",
            "http://images.cocodataset.org/zips/val2014.zip",
            "http://images.cocodataset.org/annotations/annotations_trainval2014.zip",
        ),
    ),
    "voc": _source(
        "Pascal VOC 2007",
        (5_011, f"{_PAPER}, trainval"),
        (4_952, f"{_PAPER}, test"),
        (20, _PAPER),
        format_="VOC",
        layout="VOCdevkit/VOC2007 with JPEGImages, Annotations and ImageSets/Main, trainval and test in one",
        recipe="voc",
        get=(
            "http://host.robots.ox.ac.uk/pascal/VOC/voc2007/VOCtrainval_06-Nov-2007.tar",
            "http://host.robots.ox.ac.uk/pascal/VOC/voc2007/VOCtest_06-Nov-2007.tar",
        ),
    ),
    "nus-wide": _source(
        "NUS-WIDE",
        (161_789, "the dataset's TrainImagelist.txt"),
        (107_859, "the dataset's TestImagelist.txt"),
        (1_006, f"{_PAPER}, 925 seen and 81 unseen"),
        format_="NUS-WIDE",
        layout="ImageList/, Groundtruth/, ConceptsList/, NUS_WID_Tags/ and the pictures in Flickr/",
        recipe="nus-wide-zsl",
        held_out=(Count("seen labels", 925, _PAPER), Count("unseen labels", 81, _PAPER)),
        get=(
            "https://lms.comp.nus.edu.sg/wp-content/uploads/2019/research/nuswide/NUS-WIDE.html (lists, labels, tags)",
            "the pictures, by the form on that page: many are gone from Flickr, and copies differ in their names",
        ),
    ),
    "open-images": _source(
        "Open Images v6",
        (9_000_000, f"{_PAPER}, 9 million"),
        (41_620, _PAPER),
        (9_600, _PAPER),
        format_="Open Images",
        layout="*-annotations-{human,machine}-imagelabels.csv, *class-descriptions.csv, classes-trainable.txt, train/",
        recipe="open-images",
        get=("https://storage.googleapis.com/openimages/web/download_v6.html",),
        about=0.01,
    ),
    "imagenet": _source(
        "ImageNet-1k",
        (1_281_167, "ImageNet Large Scale Visual Recognition Challenge 2012"),
        (50_000, "ImageNet Large Scale Visual Recognition Challenge 2012"),
        (1_000, "ImageNet Large Scale Visual Recognition Challenge 2012"),
        format_="class folders",
        layout="train/ and val/ with a folder of pictures for each of the 1,000 classes",
        recipe="imagenet-a2",
        get=(
            "https://www.image-net.org/download.php (an account is needed): ILSVRC2012_img_train.tar, "
            "ILSVRC2012_img_val.tar; the validation pictures have to be sorted into class folders",
        ),
    ),
    "cifar100": _source(
        "CIFAR-100",
        (50_000, "the dataset's page"),
        (10_000, "the dataset's page"),
        (100, "the dataset's page"),
        format_="CIFAR-100",
        layout="cifar-100-binary/ with train.bin, test.bin and fine_label_names.txt",
        recipe="cifar100",
        get=("https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",),
    ),
    "cars": _source(
        "Stanford Cars",
        (8_144, "the dataset's development kit"),
        (8_041, "the dataset's development kit"),
        (196, "the dataset's development kit"),
        format_="Stanford Cars",
        layout="devkit/, cars_test_annos_withlabels.mat, cars_train/ and cars_test/",
        recipe="stanford-cars",
        get=("the page of the authors is gone; copies of car_ims.tgz and cars_annos.mat are on public mirrors",),
    ),
    "pets": _source(
        "Oxford-IIIT Pet",
        (3_680, "the dataset's trainval list"),
        (3_669, "the dataset's test list"),
        (37, "the dataset's page"),
        format_="table or class folders",
        layout="class folders in train/ and test/, or a table with the columns file, breed and split",
        recipe="quick",
        get=("https://www.robots.ox.ac.uk/~vgg/data/pets/",),
    ),
}

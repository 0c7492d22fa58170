"""Tiny copies of published datasets, with the file names, headers and folders of the real ones.

Each builder takes a folder and returns what a user would give as ``--data``. Where a layout comes from stands with it.
"""

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mldecoder.data.nus_wide import flickr_id
from tests.data.picture_files import picture, write

# MS-COCO: keys as in instances_val2017.json, https://cocodataset.org/#format-data; category ids have gaps.


def instances(path: Path, names: list[str], labels: dict[int, list[int]]) -> None:
    """An annotation file: ``labels`` holds the categories of the objects of a picture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    images = [
        {"license": 4, "file_name": name, "height": 16, "width": 24, "id": 1000 + i} for i, name in enumerate(names)
    ]
    annotations = [
        {"segmentation": [], "area": 702.1, "iscrowd": i % 2, "image_id": 1000 + picture_, "bbox": [1, 2, 3, 4],
         "category_id": category, "id": 10 * picture_ + i}
        for picture_, categories in labels.items()
        for i, category in enumerate(categories)
    ]  # fmt: skip
    categories = [
        {"supercategory": "outdoor", "id": 13, "name": "stop sign"},
        {"supercategory": "person", "id": 1, "name": "person"},
        {"supercategory": "indoor", "id": 90, "name": "toothbrush"},
    ]
    content = {"info": {"year": 2014}, "licenses": [], "images": images, "annotations": annotations}
    path.write_text(json.dumps({**content, "categories": categories}))


def coco(root: Path, year: str = "2014", below: str = "") -> Path:
    train = [f"COCO_train{year}_{i:012}.jpg" for i in (9, 25, 30)]
    val = [f"COCO_val{year}_{i:012}.jpg" for i in (42, 73)]
    for part, names in (("train", train), ("val", val)):
        for i, name in enumerate(names):
            picture(root / below / f"{part}{year}" / name, seed=i)
    instances(root / f"annotations/instances_train{year}.json", train, {0: [1, 1, 90], 2: [13]})
    instances(root / f"annotations/instances_val{year}.json", val, {0: [90]})
    return root


# Pascal VOC: elements as in Annotations/000005.xml of VOC2007, http://host.robots.ox.ac.uk/pascal/VOC/voc2007/
VOC_OBJECT = """<object><name>{}</name><pose>Rear</pose><truncated>0</truncated><difficult>{}</difficult>
<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>9</xmax><ymax>9</ymax></bndbox></object>"""


def voc_entry(year: Path, name: str, *objects: tuple[str, int]) -> None:
    """A picture and its annotation: names of objects, and whether they are difficult."""
    picture(year / "JPEGImages" / f"{name}.jpg", seed=int(name[-3:]))
    inside = "".join(VOC_OBJECT.format(*one) for one in objects)
    text = f"<annotation><folder>VOC2007</folder><filename>{name}.jpg</filename>{inside}</annotation>"
    write(year / "Annotations" / f"{name}.xml", text)


def voc(root: Path) -> Path:
    year = root / "VOCdevkit" / "VOC2007"
    voc_entry(year, "000005", ("chair", 0), ("chair", 1), ("sofa", 1))
    voc_entry(year, "000007", ("car", 0))
    voc_entry(year, "000012", ("person", 1))
    voc_entry(year, "000001", ("dog", 0), ("person", 0))
    main = year / "ImageSets" / "Main"
    write(main / "trainval.txt", "000005\n000007\n000012\n")
    write(main / "train.txt", "000005\n000012\n")
    write(main / "val.txt", "000007\n")
    write(main / "test.txt", "000001\n")
    write(main / "car_trainval.txt", "000005 -1\n000007  1\n000012 -1\n")
    return root


# NUS-WIDE: folders, file names and separators as in the archives Groundtruth, ImageList, ConceptsList and NUS_WID_Tags
# of https://lms.comp.nus.edu.sg/wp-content/uploads/2019/research/nuswide/NUS-WIDE.html (fewer labels and pictures).
NUS_CONCEPTS = ["airport", "animal", "beach"]
NUS_TAGS = ["nature", "beach", "sky", "interestingness"]
NUS_TRAIN = ["actor\\0001_2124494179.jpg", "zebra\\0002_1701420169.jpg", "tower\\0003_381708603.jpg"]
NUS_TEST = ["dog\\0009_249918118.jpg", "cat\\0010_2635942202.jpg"]
_TRUTH = {"Train": ["100", "011", "000"], "Test": ["010", "001"]}
_USERS = {"Train": ["0100", "1010", "0001"], "Test": ["1000", "0110"]}


def nus_labels(root: Path, *, truth: bool = True) -> Path:
    """The lists and labels without the pictures."""
    write(root / "ImageList/TrainImagelist.txt", "".join(f"{name}\r\n" for name in NUS_TRAIN))
    write(root / "ImageList/TestImagelist.txt", "".join(f"{name}\r\n" for name in NUS_TEST))
    write(root / "ConceptsList/Concepts81.txt", "\n".join(NUS_CONCEPTS) + "\n")
    write(root / "NUS_WID_Tags/TagList1k.txt", "\n".join(NUS_TAGS) + "\n")
    for part in ("Train", "Test"):
        for j, concept in enumerate(NUS_CONCEPTS):
            if truth:
                path = root / f"Groundtruth/TrainTestLabels/Labels_{concept}_{part}.txt"
                write(path, "".join(f"{row[j]}\n" for row in _TRUTH[part]))
        write(root / f"NUS_WID_Tags/{part}_Tags81.txt", "".join(" ".join(row) + " \n" for row in _TRUTH[part]))
        write(root / f"NUS_WID_Tags/{part}_Tags1k.dat", "".join("\t".join(row) + "\t\n" for row in _USERS[part]))
    return root


def as_listed(name: str) -> str:
    return "Flickr/" + name.replace("\\", "/")


def flat(name: str) -> str:
    return "images/" + name.rpartition("\\")[2]


def by_number(name: str) -> str:
    return f"images/{flickr_id(name)}.jpg"


def by_number_and_secret(name: str) -> str:
    return f"images/98796_{flickr_id(name)}_f86eb60ccf_m.jpg"


NUS_NAMINGS = [as_listed, flat, by_number, by_number_and_secret]


def nus_wide(root: Path, naming: Callable[[str], str] = as_listed, *, truth: bool = True) -> Path:
    nus_labels(root, truth=truth)
    for i, name in enumerate(NUS_TRAIN + NUS_TEST):
        picture(root / naming(name), seed=i)
    return root


def nus_wide_by_number(root: Path) -> Path:
    return nus_wide(root, by_number)


def nus_wide_csv(root: Path) -> Path:
    """Header and cells as in nus_wid_data.csv of ASL and ML-Decoder: labels are a list in Python's spelling."""
    rows = [f"{flat(name)},\"['animal', 'beach']\",train" for name in NUS_TRAIN]
    rows += [f"{flat(name)},['airport'],val" for name in NUS_TEST]
    write(root / "nus_wid_data.csv", "filepath,label,split_name\n" + "\n".join(rows) + "\n")
    for i, name in enumerate(NUS_TRAIN + NUS_TEST):
        picture(root / by_number_and_secret(name), seed=i)
    return root


# Open Images: file names and headers of https://storage.googleapis.com/openimages/web/download_v7.html (image-level
# labels).
_OI_HEADER = "ImageID,Source,LabelName,Confidence\n"
_OI_CLASSES = [
    ("/m/011k07", "Tortoise"),
    ("/m/0k4j", "Car"),
    ("/m/01g317", "Person"),
    ("/g/11abc", '"Sprenger, tulip"'),
]


def open_images(root: Path) -> Path:
    text = "LabelName,DisplayName\n" + "".join(f"{i},{name}\n" for i, name in _OI_CLASSES)
    write(root / "oidv6-class-descriptions.csv", text)
    human = (
        "000002b66c9c498e,verification,/m/0k4j,1\n000002b66c9c498e,verification,/m/011k07,0\n"
        "000002b97e5471a0,crowdsource-verification,/m/01g317,1\n0000048549557964,verification,/m/0k4j,0\n"
        "000002b66c9c498e,verification,/m/unlisted,1\n"
    )
    write(root / "oidv6-train-annotations-human-imagelabels.csv", _OI_HEADER + human)
    machine = (
        "000002b66c9c498e,machine,/m/011k07,0.9\n000002b66c9c498e,machine,/m/01g317,0.8\n"
        "000002b97e5471a0,machine,/m/0k4j,0.3\n"
    )
    write(root / "train-annotations-machine-imagelabels.csv", _OI_HEADER + machine)
    validation = "0001eeaf4aed83f9,verification,/m/0k4j,1\n0004886b7d043cfd,verification,/g/11abc,1\n"
    write(root / "validation-annotations-human-imagelabels.csv", _OI_HEADER + validation)
    for i, name in enumerate(("000002b66c9c498e", "000002b97e5471a0")):
        picture(root / "train" / f"{name}.jpg", seed=i)
    picture(root / "validation" / "0001eeaf4aed83f9.jpg")
    picture(root / "validation" / "0004886b7d043cfd.jpg")
    return root


# ImageNet: folders of synsets as in the archive of the challenge (ILSVRC2012), https://image-net.org/challenges/LSVRC/


def imagenet(root: Path, below: str = "ILSVRC/Data/CLS-LOC", val: str = "val") -> Path:
    picture(root / below / "train/n01440764/n01440764_10026.JPEG")
    picture(root / below / "train/n01443537/n01443537_10007.JPEG")
    picture(root / below / val / "n01443537/ILSVRC2012_val_00000236.JPEG")
    return root


# CIFAR-100: both versions of https://www.cs.toronto.edu/~kriz/cifar.html
CIFAR_PIXELS = np.random.default_rng(0).integers(0, 256, (5, 3, 32, 32), dtype=np.uint8)
CIFAR_COARSE, CIFAR_FINE = [1, 0, 1, 1, 0], [2, 0, 1, 2, 1]
CIFAR_NAMES = ["apple", "aquarium_fish", "baby"]


def cifar_binary(root: Path) -> Path:
    folder = root / "cifar-100-binary"
    write(folder / "fine_label_names.txt", "\n".join(CIFAR_NAMES) + "\n")
    write(folder / "coarse_label_names.txt", "aquatic_mammals\nfish\n")
    for name, chosen in (("train.bin", range(3)), ("test.bin", range(3, 5))):
        records = [bytes([CIFAR_COARSE[i], CIFAR_FINE[i]]) + CIFAR_PIXELS[i].tobytes() for i in chosen]
        (folder / name).write_bytes(b"".join(records))
    return folder


def cifar_pickled(root: Path) -> Path:
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    for name, chosen in (("train", slice(0, 3)), ("test", slice(3, 5))):
        content = {
            "data": CIFAR_PIXELS[chosen].reshape(-1, 3072),
            "fine_labels": CIFAR_FINE[chosen],
            "coarse_labels": CIFAR_COARSE[chosen],
        }
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))
    meta = {"fine_label_names": CIFAR_NAMES, "coarse_label_names": ["a"]}
    (folder / "meta").write_bytes(pickle.dumps(meta, protocol=2))
    return folder


# Stanford Cars: files and fields as torchvision.datasets.StanfordCars expects them; cars_annos.mat is the original's.
CAR_NAMES = ["AM General Hummer SUV 2000", "Acura RL Sedan 2012"]


def structs(rows: list[dict[str, object]]) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    """A MATLAB struct array."""
    array = np.empty(len(rows), dtype=[(name, object) for name in rows[0]])
    for i, row in enumerate(rows):
        array[i] = tuple(row.values())
    return array


def box(label: int) -> dict[str, object]:
    return {"bbox_x1": 1, "bbox_y1": 2, "bbox_x2": 9, "bbox_y2": 9, "class": label}


def cars(root: Path) -> Path:
    scipy = pytest.importorskip("scipy.io")
    (root / "devkit").mkdir(parents=True)
    scipy.savemat(root / "devkit/cars_meta.mat", {"class_names": np.array(CAR_NAMES, dtype=object)})
    train = [{**box(1), "fname": "00001.jpg"}, {**box(2), "fname": "00002.jpg"}]
    scipy.savemat(root / "devkit/cars_train_annos.mat", {"annotations": structs(train)})
    test = [{**box(2), "fname": "00001.jpg"}]
    scipy.savemat(root / "cars_test_annos_withlabels.mat", {"annotations": structs(test)})
    for name in ("cars_train/00001.jpg", "cars_train/00002.jpg", "cars_test/00001.jpg"):
        picture(root / name)
    return root


def cars_original(root: Path) -> Path:
    scipy = pytest.importorskip("scipy.io")
    rows = [
        {"relative_im_path": f"car_ims/00000{i}.jpg", **box(label), "test": test}
        for i, (label, test) in enumerate([(1, 0), (2, 0), (1, 1)])
    ]
    for row in rows:
        picture(root / str(row["relative_im_path"]))
    content = {"annotations": structs(rows), "class_names": np.array(CAR_NAMES, dtype=object)}
    scipy.savemat(root / "cars_annos.mat", content)
    return root

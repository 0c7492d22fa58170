"""Stanford Cars with its development kit in MATLAB files.

Layout: ``devkit/cars_meta.mat``, ``devkit/cars_train_annos.mat``, ``cars_test_annos_withlabels.mat``, ``cars_train/``,
``cars_test/`` (as torchvision expects it), or ``cars_annos.mat`` and ``car_ims/`` (the original archive). Copies as
class folders or tables are read by the readers of those. The .mat files need SciPy.
"""

from pathlib import Path
from typing import Any

from mldecoder.data.dataset import Dataset, Files, ImageSet, Targets, describe
from mldecoder.data.options import DataOptions
from mldecoder.errors import DataError

__all__ = ["find", "read"]


def find(path: Path) -> str | None:
    """What marks the path as Stanford Cars, if anything does."""
    for name in ("cars_annos.mat", "devkit/cars_train_annos.mat", "cars_train_annos.mat"):
        if (path / name).is_file():
            return name
    return None


def read(path: Path, options: DataOptions) -> Dataset:
    """Read the training and the test part."""
    if (path / "cars_annos.mat").is_file():
        content = _load(path / "cars_annos.mat")
        labels = _names(content["class_names"])
        entries = _entries(content["annotations"], path / "cars_annos.mat", "relative_im_path", "")
        train = [(name, label) for name, label, test in entries if not test]
        val = [(name, label) for name, label, test in entries if test]
    else:
        kit = path / "devkit" if (path / "devkit").is_dir() else path
        labels = _names(_load(kit / "cars_meta.mat")["class_names"])
        train = _kit_part(kit / "cars_train_annos.mat", "cars_train/")
        tests = [folder / "cars_test_annos_withlabels.mat" for folder in (path, kit)]
        file = next((file for file in tests if file.is_file()), None)
        val = _kit_part(file, "cars_test/") if file else []
    notes = () if val else ("cars_test_annos_withlabels.mat is not there, so there is no test part.",)
    sets = [
        ImageSet(
            Files(Path(options.images) if options.images else path, [name for name, _ in part]),
            Targets.from_classes([label for _, label in part], num_classes=len(labels)),
            labels,
            options.task or "single-label",
        )
        for part in (train, val)
        if part
    ]
    second = sets[1] if val else None
    found = str(find(path))
    return Dataset(
        sets[0], second, path.name, "Stanford Cars", describe("Stanford Cars", sets[0], second, found), notes
    )


def _load(file: Path) -> dict[str, Any]:
    try:
        from scipy.io import loadmat
    except ImportError:
        raise DataError(f"{file.name} needs SciPy. Install it, or use a copy of the cars in class folders.") from None
    try:
        content: dict[str, Any] = loadmat(file, squeeze_me=True)
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{file} must be a MATLAB file; it cannot be read ({error}).") from None
    return content


def _names(raw: Any) -> tuple[str, ...]:  # noqa: ANN401 - a MATLAB value
    return tuple(str(name) for name in raw)


def _entries(raw: Any, file: Path, field: str, prefix: str) -> list[tuple[str, int, bool]]:  # noqa: ANN401
    names = raw.dtype.names or ()
    if "class" not in names or field not in names:
        raise DataError(f"{file} must have the fields class and {field}, got {', '.join(names)}.")
    tests = raw["test"] if "test" in names else [0] * raw.size
    rows = zip(raw[field].ravel(), raw["class"].ravel(), tests, strict=True)
    return [(f"{prefix}{name}", int(label) - 1, bool(test)) for name, label, test in rows]


def _kit_part(file: Path, prefix: str) -> list[tuple[str, int]]:
    return [(name, label) for name, label, _ in _entries(_load(file)["annotations"], file, "fname", prefix)]

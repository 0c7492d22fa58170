"""Which part of the original picture the model saw: the way back through the preprocessing."""

from mldecoder.config import PreprocessingConfig

__all__ = ["Box", "seen_box"]

Box = tuple[float, float, float, float]
"""Left, top, right and bottom in pixels of the original; beyond its border where the picture was padded."""


def seen_box(width: int, height: int, preprocessing: PreprocessingConfig) -> Box:
    """The part of an upright picture of this size that became the model's input.

    Squashing takes the whole picture. Cropping takes its middle (first of pictures more than 8 times as long as wide,
    then after the shorter side was resized), rounded to pixels as torchvision rounds.
    """
    if preprocessing.resize == "squash":
        return 0.0, 0.0, float(width), float(height)
    longest = 8 * min(width, height)
    part_width, part_height = min(width, longest), min(height, longest)
    left, top = round((width - part_width) / 2), round((height - part_height) / 2)
    shorter = round(min(preprocessing.size) / preprocessing.crop_pct)
    new_width, new_height = _resized(part_width, part_height, shorter)
    crop_height, crop_width = preprocessing.size
    x, y = _offset(new_width, crop_width), _offset(new_height, crop_height)
    scale_x, scale_y = part_width / new_width, part_height / new_height
    return (
        left + x * scale_x,
        top + y * scale_y,
        left + (x + crop_width) * scale_x,
        top + (y + crop_height) * scale_y,
    )


def _resized(width: int, height: int, shorter: int) -> tuple[int, int]:
    """Sides after the shorter one was brought to ``shorter``."""
    if width <= height:
        return shorter, int(shorter * height / width)
    return int(shorter * width / height), shorter


def _offset(side: int, crop: int) -> int:
    """Where a centred crop begins; below 0 where the picture is smaller and was padded."""
    return -((crop - side) // 2) if crop > side else round((side - crop) / 2)

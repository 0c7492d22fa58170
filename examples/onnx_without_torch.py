"""Tag pictures with an exported model; needs numpy, onnxruntime and Pillow only.

mldecoder export runs/last --format onnx --with-preprocessing --with-sigmoid --out model.onnx
python examples/onnx_without_torch.py model.onnx photo.jpg
"""

import json
import sys

import numpy as np
import onnxruntime
from PIL import Image

session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
about = json.loads(session.get_modelmeta().custom_metadata_map["mldecoder"])
prepare, (height, width) = about["preprocessing"], about["preprocessing"]["size"]
kind = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3}[prepare["interpolation"]]  # Pillow's numbers
for path in sys.argv[2:]:
    picture = Image.open(path).convert("RGB")
    if prepare["resize"] == "crop":  # the shorter side to its length, then the middle
        side, short = round(min(height, width) / prepare["crop_pct"]), min(picture.size)
        picture = picture.resize((side * picture.width // short, side * picture.height // short), kind)
        left, top = round((picture.width - width) / 2), round((picture.height - height) / 2)
        picture = picture.crop((left, top, left + width, top + height))
    picture = picture.resize((width, height), kind)
    (scores,) = session.run(None, {"images": np.asarray(picture)[None]})
    for i in np.argsort(-scores[0])[:5]:
        there = "yes" if about["thresholds"] is None or scores[0, i] >= about["thresholds"][i] else "no"
        print(f"{about['labels'][i]} {scores[0, i]:.4f} {there}")

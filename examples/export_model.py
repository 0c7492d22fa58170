"""Export a model to ONNX, and tag a picture with it in a process that has never heard of torch.

pip install 'mldecoder[export]'
python examples/export_model.py
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

import mldecoder as mld
from mldecoder.data import scenes
from mldecoder.export import export_model


def main() -> None:
    head = {"kind": "ml-decoder", "width": 64, "ff_width": 64}
    model = mld.create_model("test_resnet", labels=scenes.LABELS, head=head, img_size=64)  # or mld.load("runs/last")
    with TemporaryDirectory() as name:
        photo, path = Path(name) / "photo.png", Path(name) / "model.onnx"
        Image.fromarray(scenes.draw(0, "val")[0]).save(photo)
        made = export_model(model, path, "onnx", with_preprocessing=True, with_sigmoid=True)
        print(f"{made.bytes / 1e6:.1f} MB, largest difference from the model {made.difference:.0e}")

        [prediction] = model.eval().predict(photo, top_k=1, threshold=0.0)
        print(f"torch says {prediction.tags[0].label} {prediction.tags[0].score:.4f}")

        script = Path(__file__).with_name("onnx_without_torch.py")
        done = subprocess.run(
            [sys.executable, str(script), str(path), str(photo)], capture_output=True, text=True, check=True
        )
        print("onnxruntime says", done.stdout.splitlines()[0])


if __name__ == "__main__":
    main()

# ---
# jupyter:
#   kernelspec:
#     name: python3
#     display_name: Python 3
#     language: python
# ---

# %% [markdown]
# # Five photos, from start to served
#
# This notebook makes a classifier from a folder of photos, adds a class, shows it unknown things, removes a class, and serves the model
# over HTTP. It uses drawn pictures, so that it runs anywhere. Put your own folder in their place.

# %%
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from urllib.request import Request, urlopen

import matplotlib.pyplot as plt
from PIL import Image

from fiveshot import Recognizer
from fiveshot.data import draw_samples
from fiveshot.recognizer import evaluate

warnings.filterwarnings("ignore", message="IProgress")  # bars of progress stay text in this page
work = Path(tempfile.mkdtemp())
os.chdir(work)
draw_samples("samples", seed=0)
classes = sorted(folder.name for folder in Path("samples/learn").iterdir())
figure, axes = plt.subplots(len(classes), 5, figsize=(6, 6))
for row, name in zip(axes, classes, strict=True):
    for axis, photo in zip(row, sorted(Path("samples/learn", name).iterdir()), strict=True):
        axis.imshow(Image.open(photo))
        axis.set(xticks=[], yticks=[])
    row[0].set_ylabel(name)
plt.show()

# %% [markdown]
# ## Learn
#
# A model is a directory. It learns four classes, each from five photos. `learn` leaves out each photo in turn and reports how well
# the others recognize it.

# %%
things = Recognizer.create("things")
for name in classes[:4]:
    report = things.learn(name, f"samples/learn/{name}")
    print(f"{name:10s} {report.photos} photos, {report.verdict}, most like {report.nearest}")

# %% [markdown]
# ## Recognize photos, known and unknown

# %%
photos = sorted(Path("samples/test").glob("*/1.jpg")) + sorted(Path("samples/strange").iterdir())
seen = things.predict(photos)
figure, axes = plt.subplots(2, 4, figsize=(8, 4.6))
for axis, photo, one in zip(axes.flat, photos, seen, strict=True):
    axis.imshow(Image.open(photo))
    axis.set_title(
        f"{one.label or 'unknown'} {100 * one.probability:.0f} %" if one.label else "unknown", fontsize=10
    )
    axis.set(xticks=[], yticks=[])
plt.show()

# %% [markdown]
# The model has not learned trees yet, and the last three pictures show none of its classes. Now it learns trees from five photos. No
# other class changes.

# %%
things.learn("tree", "samples/learn/tree")
print(things.predict("samples/test/tree/1.jpg")[0].label)
evaluation = evaluate(things, "samples/test")
print(f"{100 * evaluation.accuracy:.0f} % of {evaluation.photos} photos it has not seen")

# %% [markdown]
# ## Forget a class
#
# `forget` removes a class. Afterwards the model equals one that never saw the class. `undo` brings it back, unless `for_good=True` erased
# it.

# %%
things.forget("apple")
print(things.snapshot.classes)
things.undo()
print(things.snapshot.classes)
things.close()

# %% [markdown]
# ## Serve it
#
# The service offers the same directory over HTTP: a page for people at `/`, and an API for programs. Here it runs in its own
# process, as on a server, and picks a free port.

# %%
service = subprocess.Popen(
    [sys.executable, "-m", "fiveshot", "serve", "things", "--port", "0"],
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
)
address = ""
while "http://" not in address:
    address = service.stdout.readline()
address = "http://" + address.split("http://")[1].split()[0].rstrip("/")


def ask(path: str, photos: list[Path] | None = None, method: str | None = None) -> dict:
    """Send photos as a form, as a browser would, and return the answer."""
    body, kind = None, "application/json"
    if photos:
        edge = "fiveshot-part"
        kind = f"multipart/form-data; boundary={edge}"
        parts = [
            f'--{edge}\r\nContent-Disposition: form-data; name="photos"; filename="{photo.name}"\r\n\r\n'.encode()
            + photo.read_bytes()
            for photo in photos
        ]
        body = b"\r\n".join([*parts, f"--{edge}--\r\n".encode()])
    with urlopen(Request(address + path, data=body, headers={"Content-Type": kind}, method=method)) as answer:
        return json.load(answer)


while True:
    try:
        ask("/v1/ready")
        break
    except OSError:
        time.sleep(0.2)
print(json.dumps(ask("/v1/predict?top=2", [Path("samples/test/house/2.jpg")]), indent=1)[:600])

# %% [markdown]
# You can also teach a class over HTTP. When the answer comes, the class is on the disk.

# %%
print(ask("/v1/classes/chessboard/photos", [Path("samples/strange/1.jpg"), Path("samples/strange/2.jpg")]))
service.terminate()
service.wait(timeout=30)
with Recognizer.open("things") as again:
    print(again.snapshot.classes)

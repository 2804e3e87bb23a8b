"""With the embedded backbone, vectors, statistics and models of a cluster need no PyTorch and no scikit-learn."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pictures import CLASSES, draw_folder

WORK = """
import sys

class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "torchvision", "timm", "sklearn"):
            raise ImportError(name)

sys.meta_path.insert(0, Refused())

from pathlib import Path
from fiveshot.backbones import BackboneSpec
from fiveshot.scale import ClusterStatistics, Ridge, StatisticsPlan, create_from_statistics, open_catalog
from fiveshot.scale._pipeline import concatenate, good_rows
from fiveshot.scale._pipeline import vector_facts
from fiveshot.scale._pipeline import Decode, Forward, read_shard
from fiveshot.scale._reducer import merge_parts, reduce_blocks
from fiveshot.scale._statistics import choose_settings

photos, model = sys.argv[1:]
spec = BackboneSpec(device="cpu")
facts = vector_facts(spec, "float32", dataset="birds")
decode, forward = Decode(facts.preprocessing), Forward(spec, fingerprint=facts.fingerprint, dtype="float32")
(shard,) = open_catalog(photos, seed=0, holdout=None).shards
batch = concatenate([forward(decode(batch)) for batch in read_shard(shard)])
plan = StatisticsPlan(head="unbiased-lda", ridge=Ridge(16))
settings = choose_settings(plan.head, good_rows(batch, splits=(0,)))
reductions = plan.reductions(settings)
tally, *parts = reduce_blocks(lambda block: block, reductions, batch)
values = {}
for name, reduction in reductions.items():
    own, parts = parts[: reduction.buckets], parts[reduction.buckets :]
    values[name] = merge_parts(reduction, *own)
found = ClusterStatistics(
    facts.provenance, facts.identity, tally.images, **values, head=plan.head, settings=settings, notes=plan.notes
)
with create_from_statistics(model, found, device="cpu") as recognizer:
    print(tally.images, recognizer.show().base_classes)
"""


def test_vectors_statistics_and_a_model(tmp_path: Path) -> None:
    photos = draw_folder(tmp_path / "birds", per_class=3, seed=0, splits=("train",))
    command = [sys.executable, "-c", WORK, str(photos), str(tmp_path / "model")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == [str(3 * len(CLASSES)), str(len(CLASSES))]

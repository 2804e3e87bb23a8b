"""Make the weights and the graphs of the embedded backbone from the original network.

    python benchmarks/make_backbone.py WEIGHTS.safetensors

WEIGHTS.safetensors has the tensors of timm's `tiny_vit_5m_224` without classifier, in float32. They are stored in
half precision. MODEL_CARD.md in the same folder names their source. The script prints how much rounding changes
the features of random images, and writes the graphs again.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from fiveshot.backbones.embedded import EMBEDDED_FILE, SIZE, graph_file, open_session, run_session
from fiveshot.backbones.export import write_graphs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path)
    given = parser.parse_args()
    weights = {name: array.astype(np.float32) for name, array in load_file(given.weights).items()}
    halves = {name: array.astype(np.float16) for name, array in weights.items()}
    save_file(halves, EMBEDDED_FILE)
    EMBEDDED_FILE.chmod(0o644)
    write_graphs()
    graph = graph_file(adapted=False).read_bytes()
    images = np.random.default_rng(0).normal(size=(20, 3, SIZE, SIZE)).astype(np.float32)
    stored = {name: array.astype(np.float32) for name, array in halves.items()}
    exact, rounded = (run_session(open_session(graph, arrays), images) for arrays in (weights, stored))
    lengths = np.linalg.norm(exact, axis=1) * np.linalg.norm(rounded, axis=1)
    print(f"cosine of features before and after rounding: {np.min((exact * rounded).sum(axis=1) / lengths):.6f}")


if __name__ == "__main__":
    main()

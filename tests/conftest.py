from __future__ import annotations

import sys
from pathlib import Path

import torch
from hypothesis import settings

sys.path.append(str(Path(__file__).parent))  # for what tests of several folders share

# jsonschema would compile the grammar of a format that no schema here has, for seconds, in every process.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

# Small matrices are slower on several threads, and the same run everywhere is worth more than fresh examples.
torch.set_num_threads(1)
settings.register_profile("fiveshot", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("fiveshot")

"""Commands that take minutes and are run with less to do, and commands that no test can run; each with its reason.

A pattern is searched for in a command. Of ``SMALLER`` every rule that fits is applied, in this order; ``NOT_RUN``
is about what comes out. What is not run is still checked: its program, sub-command, options and files must exist.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from functools import cache

from pages import all_pages
from stand_ins import BROKER, MOSQUITTO


@dataclass(frozen=True)
class Rule:
    """What to look for in a command, what to put in its place, and why."""

    pattern: str
    replacement: str
    reason: str


@dataclass(frozen=True)
class Exempt:
    """A command that is not run, and why."""

    pattern: str
    reason: str


BENCH = r"^(fiveshot (?:--plugin \S+ )?(?:cluster )?bench .*)"
SMALLER = (
    Rule(BENCH + r"--seeds (?!3 --out pair)\d+", r"\1--seeds 1", "one draw of the shots, if it is not compared"),
    Rule(r"^(fiveshot bench (?!.*(?:--list|--seeds)).*)$", r"\1 --seeds 1", "one draw of the shots"),
    Rule(r"^fiveshot bench$", "fiveshot bench cub200/small --methods ncm", "all of them take most of a minute"),
    Rule(
        r"^(fiveshot bench --features cub200)(?![\w-])", r"\1 --methods ncm", "C-RanPAC takes more than a minute"
    ),
    Rule(BENCH + r"cub200/big", r"\1cub200/small", "600 base photographs instead of 3,000"),
    Rule(BENCH + r"--projections 10{3,4}\b", r"\1--projections 64", "random features cost their square"),
    Rule(r"^(fiveshot bench cub200/\S+)(?!.*--methods)", r"\1 --methods ncm,teen", "others take minutes"),
    Rule(BENCH + r"--methods ncm,c-fecam", r"\1--methods ncm,teen", "C-FeCAM takes long"),
    Rule(r"(bench --features mine\.npz)", r"\1 --projections 64", "random features cost their square"),
    Rule(
        r"(bench --images photos)",
        r"\1 --methods ncm,unbiased-lda --shots 3",
        "five photos, of which one is a test",
    ),
    Rule(
        r"(fiveshot paper (?:table1|figure3)) --projections 1000",
        r"\1 --projections 64 --features-dir features",
        "features of eight values instead of 192",
    ),
    Rule(r"hf://me/things", "file://$PWD/hub", "a folder in the place of the hub, which cannot be reached"),
    Rule(r"^(fiveshot paper all .*)--seeds 5 --projections 1000", r"\1--seeds 1", "minutes"),
    Rule(r"(fiveshot paper )all", r"\1table6 --projections 64", "all of them take minutes"),
    Rule(r"^(fiveshot cluster extract (?!.*--address).*)$", r"\1 --workers 1", "every worker imports torch"),
    Rule(r"^(fiveshot tune --images photos)", r"\1 --set epochs=1 --device cpu", "forty epochs take minutes"),
    Rule(r"for seed in range\(2, 8\)", "for seed in range(2, 3)", "15 base photos instead of 90"),
    Rule(r"(benchmarks/weight\.py).*", r"\1 --rounds 1 --tolerant", "once, beside everything else that runs"),
    Rule(r"(benchmarks/recognizer\.py).*", r"\1 --base 4 --classes 8 --repeats 1", "few classes, once"),
    Rule(
        r"(benchmarks/service\.py).*",
        r"\1 --seconds 1 --clients 2 --photos 1 --classes 1 --bare-seconds 0.1 --bare-batch 1",
        "a second instead of a minute",
    ),
    Rule(r"(benchmarks/soak\.py).*", r"\1 --minutes 0.05", "seconds instead of ten minutes"),
    Rule(r"(benchmarks/extremes\.py).*", r"\1 --classes 20 --requests 5", "twenty classes instead of 100,000"),
    Rule(r"(benchmarks/many_classes\.py).*", r"\1 --classes 20 --samples 7", "twenty classes instead of 1,000"),
    Rule(r"(benchmarks/heads\.py).*", r"\1 --heads ncm --side 256", "the published procedure takes minutes"),
    Rule(
        r"(benchmarks/default_head\.py) .*--cost.*",
        r"\1 cub200/small=embedded:cub200 --cost --threads 1 --projections 64",
        "C-RanPAC with 10,000 random features takes minutes",
    ),
    Rule(
        r"(benchmarks/default_head\.py) (?!.*--cost).*",
        r"\1 cub200/small=embedded:cub200 --seeds 1 --projections 64",
        "C-RanPAC with 10,000 random features takes minutes",
    ),
    Rule(
        r"(benchmarks/extraction\.py)(?!.*--device cuda).*",
        r"\1 --images 4 --rounds 1 --seconds 0.1 --runtimes torch --batch-size 2 --workers 1",
        "four photos instead of 300",
    ),
    Rule(
        r"(benchmarks/tuning\.py).*",
        r"\1 --device cpu --model test_vit --images 24 --steps 1 --batches 8 --plain-batch 8 --plain-workers 0",
        "ViT-B/16 wants a GPU",
    ),
    Rule(r"(benchmarks/bias_simulation\.py).*", r"\1 --repeats 1", "one draw"),
    Rule(
        r"(benchmarks/default_head_ideas\.py).*",
        r"\1 cub200/small=embedded:cub200 --episodes 2",
        "two episodes of a small start instead of eight of a big one",
    ),
    Rule(r"(benchmarks/ablation_default\.py).*", r"\1 --seeds 0 --rows default --sets 1", "one row of thirteen"),
    Rule(
        r"(benchmarks/bias_other_heads\.py).*",
        r"\1 --heads ncm --values 0 --seeds 0 --sets 1",
        "one of some fifty runs",
    ),
    Rule(r"(benchmarks/tune_on_base\.py).*", r"\1 --heads ncm --sets 1", "one head on one set"),
    Rule(r"^(fiveshot watch (?!.*--limit).*)$", r"\1 --limit 1", "it would go on until Ctrl-C"),
    Rule(
        r"(benchmarks/negatives\.py).*", r"\1 --species 10 --negatives 0 5 --draws 1", "one draw, no photographs"
    ),
    Rule(r"(benchmarks/levels\.py).*", r"\1 --seeds 1 --rates 0.1", "one draw"),
)
NOT_RUN = (
    Exempt(r"tools/container\.py", "wants root; tests/packaging/test_container.py runs it where that is allowed"),
    Exempt(r"benchmarks/published_code\.py", "wants a checkout of the published code, which nothing here brings"),
    Exempt(r"benchmarks/page\.py", "minutes in a browser; tests/service/page goes through the views"),
    Exempt(r"benchmarks/no_base\.py", "minutes, and photographs; it ends with status 1 where a goal is missed"),
    Exempt(r"benchmarks/unsure\.py", "minutes"),
    Exempt(r"benchmarks/background\.py", "needs photographs"),
    Exempt(r"benchmarks/unknown\.py", "minutes"),
    Exempt(r"benchmarks/(unknown_ideas|view_scatter)\.py", "minutes, and photographs"),
    Exempt(r"benchmarks/sharpness\.py", "minutes, and photographs of CIFAR-100"),
    Exempt(r"benchmarks/scale\.py", "starts clusters for minutes; tests/scale runs some"),
    Exempt(r"benchmarks/review\.py", "minutes"),
    Exempt(r"benchmarks/sorting\.py", "minutes"),
    Exempt(r"^pip install ", "changes the environment that the tests run in"),
    Exempt(r"^fiveshot --install-completion", "changes the shell of who runs the tests"),
    Exempt(r"^make ", "is what runs this test"),
    Exempt(r"^fiveshot label-studio ", "waits for a Label Studio; tests/service runs it"),
    Exempt(r"^ray start ", "starts a cluster that outlives the page"),
    Exempt(r"--address auto\b", "joins a cluster that somebody has started"),
    Exempt(r"--device cuda\b|benchmarks/gpu\.py", "wants a GPU"),
    Exempt(r"^fiveshot data fetch (?!cars)", "downloads"),
    Exempt(r"backbones? hf://", "downloads"),
    Exempt(r"--root data\b", "wants the photographs of CUB-200"),
    Exempt(r"^python -m pytest ", "is part of the tests that this one is part of"),
    Exempt(r"benchmarks/cropping\.py", "wants the photographs of CUB-200; tests/benchmark runs it on drawings"),
    Exempt(r"benchmarks/make_packs\.py", "wants photographs and a GPU"),
    Exempt(r"benchmarks/make_backbone\.py", "writes over the weights, from a file that is not here"),
    Exempt(r"benchmarks/views\.py --data", "wants photographs and a GPU"),
    Exempt(r"benchmarks/first_task_ideas\.py", "wants photographs and a GPU"),
    Exempt(r"benchmarks/adapter_search\.py", "wants photographs and a GPU; tests/tuning runs it on drawings"),
)


def smaller(text: str) -> str:
    """Return a command or a program with less to do."""
    for rule in SMALLER:
        text = re.sub(rule.pattern, rule.replacement, text)
    return text


def exemption(text: str) -> Exempt | None:
    """Return what a command is not run for, if anything."""
    return next((entry for entry in NOT_RUN if re.search(entry.pattern, text)), None)


def is_benchmark(text: str) -> bool:
    """Tell whether a command measures something, which changes nothing in its directory."""
    return text.startswith("python benchmarks/")


def left_out(text: str, page: str) -> str | None:
    """Return why a command of a page is not run; None for one that is."""
    text = smaller(text)
    if entry := exemption(text):
        return entry.reason
    if re.search(r"\bcurl\b", text) and shutil.which("curl") is None:
        return "curl is not installed here"
    if BROKER in text and (MOSQUITTO is None or shutil.which("mosquitto_sub") is None):
        return "mosquitto and mosquitto-clients are not installed here"
    first = _benchmark_pages().get(text, page)
    return None if first == page else f"is run for {first}"


@cache
def _benchmark_pages() -> dict[str, str]:
    """Return the first page of each benchmark."""
    found: dict[str, str] = {}
    for page in all_pages():
        for command in page.commands:
            if is_benchmark(command.text):
                found.setdefault(smaller(command.text), page.name)
    return found

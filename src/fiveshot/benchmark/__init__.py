"""Benchmark: protocols, runs of heads under them, sweeps, summaries, and what the paper reports."""

from fiveshot.benchmark._published import (
    BetaAblation,
    PaperResult,
    PartsAblation,
    PublishedFigures,
    paper_beta_ablation,
    paper_methods,
    paper_parts_ablation,
    paper_protocols,
    paper_result,
    read_published,
)
from fiveshot.benchmark.comparison import Comparison, compare_runs
from fiveshot.benchmark.job import Job, embedded_source, open_features
from fiveshot.benchmark.protocol import (
    PROTOCOLS,
    Protocol,
    Session,
    draw_shots,
    get_protocol,
    listed_sessions,
    sessions,
)
from fiveshot.benchmark.record import RunRecord, SessionImages, Summary, find_runs, summarize_all, summarize_runs
from fiveshot.benchmark.run import Outcome, run, run_job, sweep

__all__ = [
    "PROTOCOLS",
    "BetaAblation",
    "Comparison",
    "Job",
    "Outcome",
    "PaperResult",
    "PartsAblation",
    "Protocol",
    "PublishedFigures",
    "RunRecord",
    "Session",
    "SessionImages",
    "Summary",
    "compare_runs",
    "draw_shots",
    "embedded_source",
    "find_runs",
    "get_protocol",
    "listed_sessions",
    "open_features",
    "paper_beta_ablation",
    "paper_methods",
    "paper_parts_ablation",
    "paper_protocols",
    "paper_result",
    "read_published",
    "run",
    "run_job",
    "sessions",
    "summarize_all",
    "summarize_runs",
    "sweep",
]

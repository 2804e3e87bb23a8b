"""Benchmarks: protocols, runs of heads, sweeps, summaries, and the paper's results."""

from fiveshot.benchmark._paper_results import (
    BetaAblation,
    PaperResult,
    PartsAblation,
    paper_beta_ablation,
    paper_methods,
    paper_parts_ablation,
    paper_protocols,
    paper_result,
)
from fiveshot.benchmark._published import OverallFigures, PublishedFigures, read_published, shipped_figures
from fiveshot.benchmark.comparison import LOWER_IS_BETTER as LOWER_IS_BETTER
from fiveshot.benchmark.comparison import MEASURES as MEASURES
from fiveshot.benchmark.comparison import RESAMPLED as RESAMPLED
from fiveshot.benchmark.comparison import Comparison, compare_runs
from fiveshot.benchmark.first_task import PLAIN as PLAIN
from fiveshot.benchmark.first_task import FirstTask, find_datasets, first_tasks
from fiveshot.benchmark.first_task import first_task_seconds as first_task_seconds
from fiveshot.benchmark.job import ALPHA as ALPHA
from fiveshot.benchmark.job import DEFAULT_PROTOCOL as DEFAULT_PROTOCOL
from fiveshot.benchmark.job import Job, embedded_source, open_features
from fiveshot.benchmark.job import choose_features as choose_features
from fiveshot.benchmark.job import choose_protocol as choose_protocol
from fiveshot.benchmark.job import features_fingerprint as features_fingerprint
from fiveshot.benchmark.job import make_jobs as make_jobs
from fiveshot.benchmark.protocol import (
    PROTOCOLS,
    Protocol,
    Session,
    draw_shots,
    get_protocol,
    listed_sessions,
    sessions,
)
from fiveshot.benchmark.protocol import ShotDraw as ShotDraw
from fiveshot.benchmark.record import RunRecord, SessionImages, Summary, find_runs, summarize_all, summarize_runs
from fiveshot.benchmark.record import installed_versions as installed_versions
from fiveshot.benchmark.record import is_finished as is_finished
from fiveshot.benchmark.record import mean_hm as mean_hm
from fiveshot.benchmark.run import MINUTE as MINUTE
from fiveshot.benchmark.run import WIDTHS as WIDTHS
from fiveshot.benchmark.run import Outcome, run, run_job, sweep
from fiveshot.benchmark.run import estimated_memory as estimated_memory
from fiveshot.benchmark.run import estimated_seconds as estimated_seconds
from fiveshot.benchmark.run import finished_and_waiting as finished_and_waiting

__all__ = [
    "PROTOCOLS",
    "BetaAblation",
    "Comparison",
    "FirstTask",
    "Job",
    "Outcome",
    "OverallFigures",
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
    "find_datasets",
    "find_runs",
    "first_tasks",
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
    "shipped_figures",
    "summarize_all",
    "summarize_runs",
    "sweep",
]

"""Reports: tables in four formats, the paper's tables and figures, and one HTML page about runs."""

from fiveshot.reports._bench import ablation_table, bench_table, bench_tables
from fiveshot.reports._comparison import (
    PairedVariants,
    against_table,
    comparison_tables,
    further_table,
    paired_variants,
)
from fiveshot.reports._formats import as_csv, as_latex, as_markdown, as_rich, as_text, write_table
from fiveshot.reports._paper import MAIN_TABLES as MAIN_TABLES
from fiveshot.reports._paper import PaperOutput, make_paper
from fiveshot.reports._table import Cell, Column, Number, Row, Table
from fiveshot.reports._variants import Experiment, Variant, experiments
from fiveshot.reports.page import write_report
from fiveshot.reports.paper_plan import DATASETS as DATASETS
from fiveshot.reports.paper_plan import FURTHER_TARGETS as FURTHER_TARGETS
from fiveshot.reports.paper_plan import TARGETS as TARGETS
from fiveshot.reports.paper_plan import MissingFeatures, find_feature_files
from fiveshot.reports.paper_plan import protocols_of as protocols_of
from fiveshot.reports.paper_plan import resolve_target as resolve_target
from fiveshot.reports.pictures import write_mistakes as write_mistakes
from fiveshot.reports.pictures import write_review as write_review
from fiveshot.reports.pictures import write_sorting as write_sorting

__all__ = [
    "Cell",
    "Column",
    "Experiment",
    "MissingFeatures",
    "Number",
    "PairedVariants",
    "PaperOutput",
    "Row",
    "Table",
    "Variant",
    "ablation_table",
    "against_table",
    "as_csv",
    "as_latex",
    "as_markdown",
    "as_rich",
    "as_text",
    "bench_table",
    "bench_tables",
    "comparison_tables",
    "experiments",
    "find_feature_files",
    "further_table",
    "make_paper",
    "paired_variants",
    "write_report",
    "write_table",
]

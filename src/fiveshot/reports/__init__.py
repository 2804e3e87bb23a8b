"""Reports: tables in four formats, the paper's tables and figures, and one HTML page about runs."""

from fiveshot.reports.page.page import write_report
from fiveshot.reports.paper.feature_files import MissingFeatures, find_feature_files
from fiveshot.reports.paper.make import PaperOutput, make_paper
from fiveshot.reports.tables.bench import ablation_table, bench_table, bench_tables
from fiveshot.reports.tables.formats import as_csv, as_latex, as_markdown, as_rich, as_text, write_table
from fiveshot.reports.tables.table import Cell, Column, Number, Row, Table
from fiveshot.reports.variants import Experiment, Variant, experiments

__all__ = [
    "Cell",
    "Column",
    "Experiment",
    "MissingFeatures",
    "Number",
    "PaperOutput",
    "Row",
    "Table",
    "Variant",
    "ablation_table",
    "as_csv",
    "as_latex",
    "as_markdown",
    "as_rich",
    "as_text",
    "bench_table",
    "bench_tables",
    "experiments",
    "find_feature_files",
    "make_paper",
    "write_report",
    "write_table",
]

"""Reports: tables in four formats, the paper's tables and figures, and one HTML page about runs."""

from fiveshot.reports.ablation_table import ablation_table
from fiveshot.reports.bench_table import bench_table, bench_tables
from fiveshot.reports.csv import as_csv
from fiveshot.reports.feature_files import MissingFeatures, find_feature_files
from fiveshot.reports.files import write_table
from fiveshot.reports.html import write_report
from fiveshot.reports.latex import as_latex
from fiveshot.reports.markdown import as_markdown
from fiveshot.reports.paper import PaperResult, make_paper
from fiveshot.reports.table import Cell, Column, Number, Row, Table
from fiveshot.reports.terminal import as_rich, as_text
from fiveshot.reports.variants import Experiment, Variant, experiments

__all__ = [
    "Cell",
    "Column",
    "Experiment",
    "MissingFeatures",
    "Number",
    "PaperResult",
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

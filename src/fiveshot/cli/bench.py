"""``fiveshot bench``, ``report`` and ``compare``: run benchmarks and show their results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from fiveshot.cli import completion, options
from fiveshot.cli.output import (
    answering,
    check_format,
    echo,
    echo_json,
    image_bar,
    print_table,
    run_bar,
    status,
    when_stopped,
)
from fiveshot.errors import InputError, counted
from fiveshot.loggers import Loggers

if TYPE_CHECKING:
    from fiveshot.benchmark import Job, Outcome, PublishedFigures, RunRecord
    from fiveshot.benchmark import Protocol as ChosenProtocol

RunJobs = Callable[..., "Iterable[Outcome]"]  # called with jobs and the folder for runs
FULL_DRAWS = 5
METHODS = ("ncm", "teen", "fecam", "c-fecam", "ranpac", "c-ranpac", "unbiased-lda")  # the paper's, and the default
WORTH_SAYING = 2.0  # seconds
WHEN_STOPPED = "finished runs are kept; the same command without --fresh continues"

# Options of 'bench' and 'paper'.
PHOTOS_PANEL = "Photos instead of features"
PhotoBackbone = Annotated[
    str | None,
    Option(
        metavar="NAME",
        help="Network for photos. See 'fiveshot backbones'.",
        rich_help_panel=PHOTOS_PANEL,
        autocompletion=completion.backbones,
    ),
]
PhotoWeights = Annotated[
    Path | None,
    Option(metavar="FILE", help="Local file with the weights of the network.", rich_help_panel=PHOTOS_PANEL),
]

# Options of 'bench' and 'cluster bench'.
PROTOCOL = "Change the protocol"
RUNS = "Runs and results"
Protocol = Annotated[
    str | None,
    Argument(
        metavar="[PROTOCOL]",
        help="Protocol, such as cub200/big. See 'fiveshot bench --list'.",
        autocompletion=completion.protocols,
    ),
]
Methods = Annotated[
    str | None,
    Option(
        metavar="NAMES",
        help="Methods, separated by commas.",
        show_default="the paper's six and the default head",
        autocompletion=completion.methods,
    ),
]
Features = Annotated[
    str | None,
    Option(
        metavar="FILE|NAME", help="Feature file (.safetensors or .npz), or embedded features such as cub200-big."
    ),
]
HeadSettings = Annotated[
    list[str] | None,
    Option("--set", metavar="NAME=VALUE", help="Set a head parameter; alpha=auto lets it be chosen; repeatable."),
]
Base = Annotated[int | None, Option(metavar="N", help="Classes in the base session.", rich_help_panel=PROTOCOL)]
Increment = Annotated[
    int | None, Option(metavar="N", help="Classes in each later session.", rich_help_panel=PROTOCOL)
]
Shots = Annotated[int | None, Option(metavar="N", help="Images per new class.", rich_help_panel=PROTOCOL)]
OrderSeed = Annotated[
    int | None, Option(metavar="N", help="Seed of the class order; the paper's is 1993.", rich_help_panel=PROTOCOL)
]
ShotSeed = Annotated[int | None, Option(metavar="N", help="First seed of the shots.", rich_help_panel=PROTOCOL)]
ShotDraw = Annotated[
    str | None,
    Option(metavar="WAY", help="random, first (as in the published code), or listed.", rich_help_panel=PROTOCOL),
]
Sessions = Annotated[
    Path | None, Option(metavar="FOLDER", help="Folder with the official session lists.", rich_help_panel=PROTOCOL)
]
Out = Annotated[
    Path, Option(metavar="FOLDER", help="Folder for runs; finished runs are not repeated.", rich_help_panel=RUNS)
]
Fresh = Annotated[bool, Option("--fresh", help="Repeat finished runs.", rich_help_panel=RUNS)]
Format = Annotated[
    str, Option("--format", metavar="NAME", help="terminal, markdown, latex, csv or json.", rich_help_panel=RUNS)
]
Against = Annotated[
    Path | None,
    Option(
        metavar="FILE|NAME",
        help="JSON file of published figures to compare with, or shipped ones such as privilege-cub200.",
        rich_help_panel=RUNS,
        autocompletion=completion.published,
    ),
]


@when_stopped(WHEN_STOPPED)
def bench(
    protocol: Protocol = None,
    methods: Methods = None,
    seeds: options.Seeds = None,
    full: options.Full = False,
    features: Features = None,
    images: Annotated[
        Path | None,
        Option(
            metavar="PLACE",
            help="Folder or archive of images by class, instead of features.",
            rich_help_panel=PHOTOS_PANEL,
        ),
    ] = None,
    dataset: Annotated[
        str | None,
        Option(
            metavar="NAME",
            help="With --root: dataset to extract features of.",
            show_default="that of the protocol",
            rich_help_panel=PHOTOS_PANEL,
            autocompletion=completion.datasets,
        ),
    ] = None,
    root: Annotated[
        Path | None,
        Option(
            metavar="FOLDER",
            help="Folder that holds the dataset: extract its features first.",
            rich_help_panel=PHOTOS_PANEL,
        ),
    ] = None,
    backbone: PhotoBackbone = None,
    weights: PhotoWeights = None,
    adapter: Annotated[
        str | None,
        Option(
            metavar="FILE|NAME",
            help="Adapter file, or embedded adapter such as cub200-big.",
            rich_help_panel=PHOTOS_PANEL,
            autocompletion=completion.adapters,
        ),
    ] = None,
    preprocessing: Annotated[
        str,
        Option(
            metavar="NAME",
            help="weights: as the network was trained; paper; or paper:cars and so on.",
            rich_help_panel=PHOTOS_PANEL,
        ),
    ] = "weights",
    skip_bad: Annotated[
        bool, Option("--skip-bad", help="Skip images that cannot be read.", rich_help_panel=PHOTOS_PANEL)
    ] = False,
    flavor: options.Flavor = "paper",
    projections: options.Projections = None,
    settings: HeadSettings = None,
    device: options.HeadDevice = None,
    workers: Annotated[int, Option(metavar="N", help="Number of processes.")] = 1,
    memory: Annotated[
        float | None, Option(metavar="GB", help="Memory for all processes.", show_default="80 % of free memory")
    ] = None,
    listing: Annotated[bool, Option("--list", help="List protocols and methods, and exit.")] = False,
    base: Base = None,
    increment: Increment = None,
    shots: Shots = None,
    order_seed: OrderSeed = None,
    shot_seed: ShotSeed = None,
    shot_draw: ShotDraw = None,
    sessions: Sessions = None,
    out: Out = Path("runs"),
    fresh: Fresh = False,
    output: Format = "terminal",
    against: Against = None,
    log: options.LogTo = None,
) -> None:
    """Run few-shot class-incremental methods through a protocol and print their accuracies.

    With --root or --images, the features are extracted first, and kept for the next time.

    Example: fiveshot bench cub200/big --methods ncm,c-fecam --seeds 3
    """
    if listing:
        _print_lists()
        return
    printing = choose_printing(output, against)
    loggers = Loggers(log or ())
    network = {"backbone": backbone, "weights": weights, "adapter": adapter, "preprocessing": preprocessing}
    if images is not None or root is not None:
        if features is not None:
            raise InputError("photos and --features exclude each other", hint="give one of them")
        named = (dataset or _dataset_of(protocol)) if images is None else dataset
        features = _extracted(images, named, root, network, skip_bad=skip_bad)
    else:
        _refuse_unused({**network, "dataset": dataset, "skip-bad": skip_bad})
    plan = plan_runs(
        protocol,
        features,
        methods=chosen_methods(methods, full=full),
        seeds=draws(seeds, full=full),
        flavor=flavor,
        projections=projections,
        settings=settings or (),
        device=device,
        sessions=sessions,
        changes={
            "base_classes": base,
            "increment": increment,
            "shots": shots,
            "order_seed": order_seed,
            "shot_seed": shot_seed,
            "shot_draw": shot_draw,
        },
    )
    from fiveshot.benchmark import sweep

    limit = int(memory * 1e9) if memory is not None else None
    run = partial(sweep, workers=workers, memory=limit, fresh=fresh)
    records = run_and_log(run, plan, out, loggers, fresh=fresh)
    print_results(plan, records, printing)
    if seeds is None and not full:
        echo("note: one draw of the shots; add --seeds 5, or --full for all methods", err=True)


@dataclass(frozen=True)
class Printing:
    """How to print results: the format, and published figures to print below them."""

    output: str
    published: PublishedFigures | None = None


def choose_printing(output: str, against: Path | None) -> Printing:
    """Check the options for printing, and read the published figures, before anything is run."""
    check_format(output)
    if against is None:
        return Printing(output)
    if output in ("csv", "json"):
        raise InputError(
            f"--against adds a table, and the format {output} holds one only",
            hint="leave --against out, or choose another --format",
            code="unused_option",
        )
    from fiveshot.benchmark import read_published

    return Printing(output, read_published(against))


@dataclass(frozen=True)
class Plan:
    """The runs of a benchmark, and the head parameters that were set for them."""

    protocol: ChosenProtocol
    jobs: Sequence[Job]
    given: dict[str, Any]


def plan_runs(
    protocol: str | None,
    features: str | None,
    *,
    methods: Sequence[str],
    seeds: int,
    flavor: Literal["paper", "published"],
    projections: int | None,
    settings: Iterable[str],
    device: str | None,
    sessions: Path | None,
    changes: dict[str, Any],
    here: bool = True,
) -> Plan:
    """Return the runs that the options ask for; ``here`` is False for runs on other machines."""
    listed = [name for name, value in changes.items() if value is not None and name != "shot_seed"]
    if sessions is not None and listed:
        option = "base" if listed[0] == "base_classes" else listed[0].replace("_", "-")
        raise InputError(f"the session lists decide --{option}", hint="leave it out", code="unused_option")
    with status("reading the features"):
        from fiveshot.benchmark import choose_features, choose_protocol, make_jobs, open_features
        from fiveshot.features import OWN_SPLIT

        source = choose_features(features, protocol)
        chosen = choose_protocol(protocol, source if features else None, changes)
        given = options.parse_settings(settings)
        jobs = make_jobs(
            chosen,
            source,
            methods=methods,
            seeds=seeds,
            flavor=flavor,
            parameters=options.head_parameters(projections, device, given, here=here),
            sessions=str(sessions) if sessions else None,
            needed=given,
        )
    if OWN_SPLIT in (note := open_features(source).provenance.note):
        echo(f"note: {note}", err=True)
    if projections is not None and not any("n_projections" in job.parameters for job in jobs):
        echo("note: --projections has no effect: none of the methods has random features", err=True)
    return Plan(chosen, jobs, given)


def run_and_log(run: RunJobs, plan: Plan, out: Path, loggers: Loggers, *, fresh: bool) -> list[RunRecord]:
    """Make the runs and log each; return the records in the order of the plan."""
    found = {}
    for outcome in followed(run, plan.jobs, out, fresh=fresh):
        found[outcome.job] = outcome.record
        with loggers.run(outcome.job.folder, outcome.record.config) as write:
            for step, values in outcome.record.logged():
                write(step, values)
    return [found[job] for job in plan.jobs]


def print_results(plan: Plan, records: Sequence[RunRecord], printing: Printing) -> None:
    """Print the results of a benchmark as tables, or as JSON."""
    if printing.output == "json":
        echo_json([_as_json(record) for record in records])
        return
    from fiveshot.benchmark import summarize_all
    from fiveshot.reports import against_table, bench_table, experiments, further_table

    provenance = records[0].provenance
    print_table(bench_table(summarize_all(records), plan.protocol, provenance, given=plan.given), printing.output)
    for experiment in experiments(records) if printing.output != "csv" else ():  # a CSV file is one table
        print_table(further_table(experiment), printing.output)
        if printing.published is not None:
            print_table(against_table(experiment, printing.published), printing.output)


def chosen_methods(names: str | None, *, full: bool) -> Sequence[str]:
    """Return the methods that the options ask for; an empty list means all.

    >>> chosen_methods("ncm, teen", full=False), chosen_methods(None, full=True)
    (['ncm', 'teen'], [])
    """
    if names:
        return [name.strip() for name in names.split(",")]
    return [] if full else METHODS


def draws(seeds: int | None, *, full: bool) -> int:
    """Return the number of draws of the shots."""
    return seeds if seeds is not None else FULL_DRAWS if full else 1


def followed(run: RunJobs, jobs: Sequence[Job], out: Path, *, fresh: bool = False) -> Iterator[Outcome]:
    """Run jobs; show the expected time, the progress and the result of each run."""
    from fiveshot.benchmark import estimated_seconds, is_finished

    with status("looking for finished runs"):
        waiting = {job for job in jobs if fresh or not is_finished(out / job.folder)}
        expected = {job: estimated_seconds(job) if job in waiting else 0.0 for job in jobs}
    total = sum(expected.values())
    if total >= WORTH_SAYING:
        echo(f"{counted(len(waiting), 'run')} to make, about {duration(total)} on an ordinary machine", err=True)
    finished: list[Job] = []
    with run_bar() as bar:

        def show(job: Job | None = None, done: int = 0, steps: int = 1) -> None:
            part = expected[job] * done / steps if job is not None else 0.0
            made = part + sum(expected[one] for one in finished)
            bar.update(made, total, runs=f"{len(finished)}/{len(jobs)} runs")

        show()
        # Quick runs come first, so that there is something to see soon.
        for outcome in run(sorted(jobs, key=expected.__getitem__), out, on_session=show):
            finished.append(outcome.job)
            show()
            bar.say(describe(outcome))
            yield outcome


def duration(seconds: float) -> str:
    """Return a time in readable form.

    >>> duration(42.3), duration(400), duration(9000)
    ('42 s', '7 minutes', '2.5 hours')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def describe(outcome: Outcome) -> str:
    """Return one line about a finished run."""
    metrics, job = outcome.record.metrics, outcome.job
    hm = metrics.sessions[-1].a_hm
    shown = "" if hm is None else f"A_HM {100 * hm:5.1f}  "
    origin = "kept from before" if outcome.reused else f"{outcome.record.seconds:.1f} s"
    if outcome.earlier_release:
        origin += f" by release {outcome.earlier_release}; --fresh runs it again"
    for name, value in outcome.record.chosen.items():
        origin += f", chose {name} = {value}"
    return (
        f"{job.protocol.name}  {job.method:9} seed {job.protocol.shot_seed}  "
        f"{shown}A_last {100 * metrics.a_last:5.1f}  A_inc {100 * metrics.a_inc:5.1f}  ({origin})"
    )


def _dataset_of(protocol: str | None) -> str:
    """Return the dataset of a protocol, by default that of the default protocol."""
    from fiveshot.benchmark import DEFAULT_PROTOCOL, get_protocol

    return get_protocol(protocol or DEFAULT_PROTOCOL).dataset


def _refuse_unused(given: dict[str, Any]) -> None:
    """Refuse options that are only for photos."""
    for option, value in given.items():
        if value not in (None, False, "weights"):
            raise InputError(
                f"--{option} needs photos", hint="name them with --images or --root", code="unused_option"
            )


def _extracted(
    images: Path | None, dataset: str | None, root: Path | None, network: dict[str, Any], *, skip_bad: bool
) -> str:
    """Return the feature file of photos; say how long it will take to make."""
    from fiveshot.backbones import DEFAULT, BackboneSpec, load_embedder, preprocessing_for
    from fiveshot.features import (
        ExtractionSettings,
        FeatureCache,
        extract,
        extraction_seconds,
        open_labeled_images,
    )

    with status("opening the images"):
        opened = open_labeled_images(images, dataset=dataset, root=root, seed=0)
    for note in opened.differences:
        echo(f"note: {note}", err=True)
    spec = BackboneSpec(
        network["backbone"] or DEFAULT,
        weights=network["weights"],
        adapter=network["adapter"],
        preprocessing=preprocessing_for(network["preprocessing"], dataset),
    )
    settings, cache = ExtractionSettings(skip_bad=skip_bad), FeatureCache()
    with status("loading the backbone"):
        embedder = load_embedder(spec)
        seconds = extraction_seconds(opened, embedder, settings, cache=cache)
    if seconds:
        count = len(opened.train) + len(opened.test)
        echo(f"{counted(count, 'photo')} to extract, about {duration(seconds)} on this machine", err=True)
    with image_bar("extracting") as progress:
        return str(extract(opened, embedder, settings, cache=cache, progress=progress).kept_path)


def _as_json(record: Any) -> dict[str, Any]:
    return {
        "config": record.config,
        "versions": dict(record.versions),
        "images": [counts._asdict() for counts in record.images],
        "seconds": record.seconds,
        "metrics": record.metrics.as_dict(),
    }


def _print_lists() -> None:
    from fiveshot.benchmark import PROTOCOLS
    from fiveshot.core.scorers import RECIPES
    from fiveshot.plugins import load_plugins

    load_plugins()
    for protocol in PROTOCOLS.values():
        sizes = protocol.session_sizes
        chosen = " of the official lists" if protocol.shot_draw == "listed" else ""
        echo(
            f"{protocol.name:24} {protocol.n_classes} classes: {sizes[0]} base, "
            f"then {len(sizes) - 1} sessions of {sizes[1]} with {protocol.shots} images each{chosen}"
        )
    for name, recipe in RECIPES.items():
        echo(f"{name:24} {recipe.description}")


def report(
    folder: Annotated[
        Path, Argument(metavar="FOLDER", help="Folder of runs (--out of bench), or a folder in it.")
    ],
    out: Annotated[
        Path | None, Option(metavar="FILE", help="Page to write.", show_default="FOLDER/report.html")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Write an HTML page with the tables, curves and settings of finished runs.

    Example: fiveshot report runs
    """
    with answering("report", as_json=as_json) as answer:
        with status("loading"):
            from fiveshot.reports import write_report
        with status("writing the page"):
            page = write_report(folder, out or folder / "report.html")
        answer.result = {"files": [str(page)]}
        answer.say(str(page))


def compare(
    first: Annotated[Path, Argument(metavar="FIRST", help="Folder with the runs of one head.")],
    others: Annotated[
        list[Path], Argument(metavar="OTHERS", help="Folders with the runs of other heads, same protocol.")
    ],
    output: Annotated[
        str, Option("--format", metavar="NAME", help="terminal, markdown, latex or csv.")
    ] = "terminal",
    as_json: options.AsJson = False,
) -> None:
    """Compare a head with others on the same draws: differences, their 95 % intervals, and p values.

    With two or more others, p is also corrected for the number of comparisons (Holm).

    Example: fiveshot compare runs/cub200-big/teen runs/cub200-big/ncm
    """
    with answering("compare", as_json=as_json) as answer:
        check_format(output)
        with status("loading"):
            from dataclasses import asdict

            from fiveshot.benchmark import find_runs
            from fiveshot.reports import comparison_tables, paired_variants
        with status("comparing"):
            pairs = paired_variants(find_runs(first), *map(find_runs, others))
        answer.result = {"comparisons": [{**pair.names, **asdict(pair.comparison)} for pair in pairs]}
        for table in () if as_json else comparison_tables(pairs):
            print_table(table, output)

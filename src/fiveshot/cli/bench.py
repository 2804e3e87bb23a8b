"""``fiveshot bench``, ``paper``, ``report`` and ``compare``: heads through a protocol, and what their runs say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Context, Option

from fiveshot.cli import completion, options
from fiveshot.cli.output import (
    KEPT,
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
from fiveshot.errors import counted
from fiveshot.loggers import Loggers

if TYPE_CHECKING:
    from fiveshot.benchmark import Job, Outcome

RunJobs = Callable[..., "Iterable[Outcome]"]  # of jobs and the folder of runs
FULL_DRAWS = 5
METHODS = ("ncm", "teen", "fecam", "c-fecam", "ranpac", "c-ranpac", "unbiased-lda")  # the paper's, and the default
WORTH_SAYING = 2.0  # seconds


@when_stopped("what was finished is kept, and the same command without --fresh goes on from there")
def bench(
    ctx: Context,
    protocol: Annotated[
        str | None,
        Argument(
            help="A named setting, such as cub200/big; see 'fiveshot bench --list'.",
            autocompletion=completion.protocols,
        ),
    ] = None,
    methods: Annotated[
        str | None,
        Option(
            help="Methods separated by commas; the paper's six and the default head unless given.",
            autocompletion=completion.methods,
        ),
    ] = None,
    seeds: options.Seeds = None,
    full: options.Full = False,
    features: Annotated[
        str | None,
        Option(help="A feature file (.safetensors or .npz), or other embedded features, such as cub200-big."),
    ] = None,
    images: Annotated[
        Path | None, Option(help="A folder or archive of images by class; features are extracted once and kept.")
    ] = None,
    skip_bad: Annotated[bool, Option("--skip-bad", help="With --images: leave out unreadable ones.")] = False,
    flavor: options.Flavor = "paper",
    projections: options.Projections = None,
    settings: Annotated[
        list[str] | None,
        Option(
            "--set",
            help="NAME=VALUE, a parameter of the heads that have it, repeatable; alpha=auto has it chosen.",
        ),
    ] = None,
    base: Annotated[int | None, Option(help="Classes in the base session.")] = None,
    increment: Annotated[int | None, Option(help="Classes in each later session.")] = None,
    shots: Annotated[int | None, Option(help="Images of a new class.")] = None,
    order_seed: Annotated[int | None, Option(help="Seed of the class order; 1993 is the paper's.")] = None,
    shot_seed: Annotated[int | None, Option(help="First seed of the shots.")] = None,
    shot_draw: Annotated[
        str | None, Option(help="'random', 'first' as in the published code, or 'listed'.")
    ] = None,
    sessions: Annotated[Path | None, Option(help="A folder of official session lists.")] = None,
    out: Annotated[Path, Option(help="Where runs are kept; finished ones are not run again.")] = Path("runs"),
    workers: Annotated[int, Option(help="Processes that run at the same time.")] = 1,
    memory: Annotated[float | None, Option(help="GB for all processes together; 80 % of what is free.")] = None,
    against: Annotated[
        Path | None, Option(help="A JSON file of published figures, shown below ours if they were measured alike.")
    ] = None,
    log: options.LogTo = None,
    device: options.HeadDevice = None,
    fresh: Annotated[bool, Option("--fresh", help="Run again what is finished.")] = False,
    output: Annotated[str, Option("--format", help="terminal, markdown, latex, csv or json.")] = "terminal",
    engine: Annotated[
        Literal["local", "ray"], Option(help="Processes of this machine, or tasks of a Ray cluster.")
    ] = "local",
    address: options.Address = None,
    listing: Annotated[bool, Option("--list", help="List protocols and methods, and leave.")] = False,
) -> None:
    """Run few-shot class-incremental methods through a protocol and print their accuracies.

    One draw of the shots unless --seeds or --full ask for more.

    Example: fiveshot bench cub200/big --methods ncm,c-fecam --seeds 3
    """
    if listing:
        _print_lists()
        return
    check_format(output)
    if output in ("csv", "json"):
        options.refuse_unused(
            ctx, "adds a table, which this --format has no room for; leave one of them out", "against"
        )
    _check_options(ctx, engine=engine, images=images, sessions=sessions)
    published, loggers = None, Loggers(log or ())
    if against is not None:  # read before anything is run
        from fiveshot.benchmark import read_published

        published = read_published(against)
    if images is not None:
        features = _extracted(images, features, skip_bad)
    with status("reading the features"):
        from fiveshot.benchmark import choose_features, choose_protocol, make_jobs

        source = choose_features(features, protocol)
        changes = {
            "base_classes": base,
            "increment": increment,
            "shots": shots,
            "order_seed": order_seed,
            "shot_seed": shot_seed,
            "shot_draw": shot_draw,
        }
        chosen = choose_protocol(protocol, source if features else None, changes)
        given = options.parse_settings(settings or ())
        jobs = make_jobs(
            chosen,
            source,
            methods=[name.strip() for name in methods.split(",")] if methods else [] if full else METHODS,
            seeds=draws(seeds, full=full),
            flavor=flavor,
            parameters=options.head_parameters(projections, device, given, here=engine == "local"),
            sessions=str(sessions) if sessions else None,
            needed=given,
        )
    if projections is not None and not any("n_projections" in job.parameters for job in jobs):
        echo("note: --projections is for heads with random features, and none is among the methods", err=True)
    if engine == "ray":
        run = _on_cluster(address, fresh=fresh)
    else:
        from fiveshot.benchmark import sweep

        limit = int(memory * 1e9) if memory is not None else None
        run = partial(sweep, workers=workers, memory=limit, fresh=fresh)
    found = {}
    for outcome in followed(run, jobs, out, fresh=fresh):
        found[outcome.job] = outcome.record
        with loggers.run(outcome.job.folder, outcome.record.config) as write:
            for step, values in outcome.record.logged():
                write(step, values)
    records = [found[job] for job in jobs]
    if output == "json":
        echo_json([_as_json(record) for record in records])
    else:
        from fiveshot.benchmark import summarize_all
        from fiveshot.reports import against_table, bench_table, experiments, further_table

        print_table(bench_table(summarize_all(records), chosen, records[0].provenance, given=given), output)
        for experiment in experiments(records) if output != "csv" else ():  # a CSV file is one table
            print_table(further_table(experiment), output)
            if published is not None:
                print_table(against_table(experiment, published), output)
    if seeds is None and not full:
        echo("note: one draw of the shots; add --seeds 5, or --full for every method there is", err=True)


def _on_cluster(address: str | None, *, fresh: bool) -> RunJobs:
    """Return what runs jobs on a Ray cluster."""
    from fiveshot.scale import sweep_on_cluster

    return lambda jobs, out, on_session: sweep_on_cluster(jobs, out, address=address, fresh=fresh)


def draws(seeds: int | None, *, full: bool) -> int:
    """Return how many draws of the shots are asked for."""
    return seeds if seeds is not None else FULL_DRAWS if full else 1


def followed(run: RunJobs, jobs: Sequence[Job], out: Path, *, fresh: bool = False) -> Iterator[Outcome]:
    """Run jobs, saying how long it may take, how far it is, and what each run found."""
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
        # The quick ones first: they tell most for a short wait.
        for outcome in run(sorted(jobs, key=expected.__getitem__), out, on_session=show):
            finished.append(outcome.job)
            show()
            bar.say(describe(outcome))
            yield outcome


def duration(seconds: float) -> str:
    """Return a time as people say it.

    >>> duration(42.3), duration(400), duration(9000)
    ('42 s', '7 minutes', '2.5 hours')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def _check_options(ctx: Context, *, engine: str, images: Path | None, sessions: Path | None) -> None:
    """Refuse options that the others leave without effect."""
    if engine == "ray":
        options.refuse_unused(ctx, options.LOCAL, "workers", "memory")
    else:
        options.refuse_unused(ctx, options.CLUSTER, "address")
    if images is None:
        options.refuse_unused(ctx, "is for images; add --images DIR, or leave it out", "skip_bad")
    if sessions is not None:
        why = "is in the session lists; leave it out with --sessions"
        options.refuse_unused(ctx, why, "base", "increment", "shots", "order_seed", "shot_draw")


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


def _extracted(images: Path, features: str | None, skip_bad: bool) -> str:
    from fiveshot.errors import InputError
    from fiveshot.features import ExtractionSettings, extracted_features

    if features is not None:
        raise InputError("--images and --features contradict each other; give one of them")
    with image_bar("extracting") as progress:
        settings = ExtractionSettings(skip_bad=skip_bad)
        return str(extracted_features(images, settings=settings, seed=0, progress=progress))


def _as_json(record: Any) -> dict[str, Any]:
    return {
        "config": record.config,
        "images": [counts._asdict() for counts in record.images],
        "seconds": record.seconds,
        "metrics": record.metrics.as_dict(),
    }


def _print_lists() -> None:
    from fiveshot.benchmark import PROTOCOLS
    from fiveshot.heads import RECIPES
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


@when_stopped(KEPT)
def paper(
    ctx: Context,
    target: Annotated[
        str,
        Argument(
            help="table1, table2, table3, table5, table6, figure1, figure2, figure3, ablation-..., or all.",
            autocompletion=completion.paper_targets,
        ),
    ],
    features_dir: Annotated[
        Path | None, Option(help="A folder of feature files; the embedded ones are used beside it.")
    ] = None,
    out: Annotated[Path, Option(help="Where tables, figures and runs are written.")] = Path("paper"),
    seeds: options.Seeds = None,
    full: options.Full = False,
    workers: Annotated[int, Option(help="Processes that run at the same time.")] = 1,
    flavor: options.Flavor = "paper",
    shot_draw: Annotated[
        Literal["random", "first"], Option(help="'random', or 'first' as the published code does.")
    ] = "random",
    projections: options.Projections = None,
    device: options.HeadDevice = None,
) -> None:
    """Regenerate a table or figure of the paper; says which features are missing, and fails where all are.

    One draw of the shots, and fewer random features where they would take over a minute, unless --full is given.

    Example: fiveshot paper table1 --features-dir features
    """
    if target == "figure2":
        why = "changes nothing in figure2, which shows features and no runs; leave it out"
        unused = ("seeds", "full", "workers", "flavor", "shot_draw", "projections", "device")
        options.refuse_unused(ctx, why, *unused)
    if target == "ablation-M":
        options.refuse_unused(ctx, "is what ablation-M varies; leave it out", "projections")
    with status("loading"):
        from fiveshot.benchmark import MINUTE, sweep
        from fiveshot.reports import make_paper

    made = make_paper(
        target,
        features_dir=features_dir,
        out=out,
        seeds=draws(seeds, full=full),
        flavor=flavor,
        shot_draw=shot_draw,
        parameters=options.head_parameters(projections, device),
        seconds=None if full else MINUTE,
        run=lambda jobs, folder: followed(partial(sweep, workers=workers), jobs, folder),
    )
    for table in made.tables:
        print_table(table, "terminal")
    for line in made.missing:
        echo(f"missing: {line}", err=True)
    for file in made.files:
        echo(file)
    if made.width is not None:
        echo(f"note: RanPAC heads with {made.width:,} random features instead of the paper's 10,000", err=True)
    if made.tables and not full and seeds is None:
        echo("for the paper's full setting (five draws, 10,000 random features) add --full", err=True)
    if not made.files:
        raise typer.Exit(1)


def report(
    folder: Annotated[Path, Argument(help="The --out folder of a benchmark, or a part of it.")],
    out: Annotated[Path | None, Option(help="The page; report.html in the folder unless given.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Write one self-contained HTML page with tables, curves and configuration of finished runs.

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
    first: Annotated[Path, Argument(help="Runs of one head: a folder below the --out of a benchmark.")],
    second: Annotated[Path, Argument(help="Runs of the other head, under the same protocol.")],
    output: Annotated[str, Option("--format", help="terminal, markdown, latex or csv.")] = "terminal",
    as_json: options.AsJson = False,
) -> None:
    """Compare two heads on the same draws: the difference in each measure, its 95 % interval, and p.

    Example: fiveshot compare runs/cub200-big/teen runs/cub200-big/ncm
    """
    with answering("compare", as_json=as_json) as answer:
        check_format(output)
        with status("loading"):
            from dataclasses import asdict

            from fiveshot.benchmark import find_runs
            from fiveshot.reports import comparison_tables, paired_variants
        with status("comparing"):
            pairs = paired_variants(find_runs(first), find_runs(second))
        answer.result = {"comparisons": [{**pair.names, **asdict(pair.comparison)} for pair in pairs]}
        for table in () if as_json else comparison_tables(pairs):
            print_table(table, output)

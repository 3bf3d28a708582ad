"""Running a Beam graph: on this machine by default, anywhere with Beam's own options."""

import difflib
import logging
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from pipeline.runtime.command_line import Parser
from pipeline.runtime.errors import ResumableError, UserError, user_error_in
from pipeline.runtime.local_workers import ending_together
from pipeline.runtime.private import leave_meeting, meeting_folder
from pipeline.runtime.quiet import without_log

with without_log(logging.WARNING):  # importing Beam warns of cloud libraries that a laptop does not need
    import apache_beam as beam
    from apache_beam.options.pipeline_options import (
        DirectOptions,
        GoogleCloudOptions,
        PipelineOptions,
        StandardOptions,
        WorkerOptions,
    )
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner
    from apache_beam.runners.runner import PipelineState, create_runner
    from apache_beam.transforms.environments import SubprocessSDKEnvironment


TEMPORARY = "beam"  # folders of runs that are under way


def beam_options(arguments: Sequence[str]) -> PipelineOptions:
    """Beam's options from what is left of a command line; an option that Beam does not know is a UserError."""
    # Beam itself ignores what it does not know. Which options there are is known to no public function of its.
    parser = Parser(add_help=False)
    for owner in {cls.__name__: cls for cls in PipelineOptions.__subclasses__()}.values():
        owner._add_argparse_args(parser)
    _, unknown = parser.parse_known_args(list(arguments))
    if unknown:
        if not unknown[0].startswith("-"):
            raise UserError(f"{unknown[0]}: not an option: quote the pattern of --input, or repeat the flag")
        known = [flag for action in parser._actions for flag in action.option_strings]
        near = difflib.get_close_matches(unknown[0].split("=")[0], known, 1)
        raise UserError(f"unknown option {unknown[0]}" + (f": did you mean {near[0]}?" if near else ": see --help"))
    options = PipelineOptions(list(arguments))
    if options.view_as(DirectOptions).direct_num_workers < 0:
        raise UserError("--direct_num_workers: at least 0, which is one a core")
    if not is_local(options):
        try:
            create_runner(options.view_as(StandardOptions).runner)
        except (ValueError, ImportError, AttributeError) as error:
            raise UserError(f"--runner {options.view_as(StandardOptions).runner}: {error}") from None
        check_submission(options)
    return options


def check_submission(options: PipelineOptions) -> None:
    """Refuses, before anything is sent, what Dataflow would fail at minutes later."""
    if options.view_as(StandardOptions).runner != "DataflowRunner":
        return
    cloud, workers = options.view_as(GoogleCloudOptions), options.view_as(WorkerOptions)
    needed = {
        "project": (cloud.project, "of the cloud"),
        "region": (cloud.region, "where the workers are to be"),
        "temp_location": (
            cloud.temp_location or cloud.staging_location,
            "a folder in a bucket, such as gs://BUCKET/temp",
        ),
        "sdk_container_image": (workers.sdk_container_image, "the image of docker/ that workers run in"),
    }
    for name, (value, what) in needed.items():
        if not value:
            raise UserError(f"--{name}: DataflowRunner needs it: {what}")


def is_local(options: PipelineOptions) -> bool:
    return options.view_as(StandardOptions).runner in (None, "DirectRunner")


def worker_processes(options: PipelineOptions) -> int:
    """How many processes a local run has."""
    direct = options.view_as(DirectOptions)
    if direct.direct_running_mode == "multi_threading":
        return 1
    return int(direct.direct_num_workers) or os.cpu_count() or 1


def local_runner(options: PipelineOptions, folder: str) -> FnApiRunner:
    """Beam's runner for one machine: in this process, or in several, which end when the folder is gone.

    (Beam's choice would be to download one first.)
    """
    direct = options.view_as(DirectOptions)
    in_process = direct.direct_num_workers == 1 and direct.direct_running_mode == "in_memory"
    if in_process or direct.direct_running_mode == "multi_threading":
        return FnApiRunner()
    direct.direct_running_mode = "in_memory"  # or the runner would put its own noisier processes in place of these
    worker = "exec " + shlex.join([sys.executable, "-P", "-m", "pipeline.runtime.beam_worker", folder])
    return FnApiRunner(default_environment=SubprocessSDKEnvironment.from_command_string(worker))


def on_accelerator(step: beam.PTransform, accelerator: str | None) -> beam.PTransform:
    """A step that asks its fleet for an accelerator, which the others of its graph then do without."""
    return step.with_resource_hints(accelerator=accelerator) if accelerator else step


def run(build: Callable[[beam.Pipeline], object], options: PipelineOptions) -> dict[str, int]:
    """Builds the graph and runs it to its end; a UserError raised by a worker comes out as itself.

    Returns the counters of a local run. Of a run elsewhere the job's id is said when it begins; one that is not waited
    for, or only made into a template, is said to be so.
    """
    own = str(os.getpid())
    folder = meeting_folder(TEMPORARY, own)
    runner = None
    if is_local(options):
        runner = local_runner(options, folder)
        logging.getLogger("apache_beam").setLevel(logging.CRITICAL)  # what fails is raised, and said once
    try:
        with ending_together(lambda: leave_meeting(TEMPORARY, own)):
            pipeline = pipeline_in(folder, runner, options)
            build(pipeline)
            result = pipeline.run()
            if not is_local(options):
                say_job(result, options)
            state = None if is_not_waited_for(options) else result.wait_until_finish()
    except Exception as error:
        if (known := user_error_in(error)) is not None:
            raise known from None
        raise
    finally:
        leave_meeting(TEMPORARY, own)
    if not is_local(options):
        if state not in (None, PipelineState.DONE):
            raise ResumableError(f"the job ended as {state}: its log says why")
        return {}
    counters = result.metrics().query()["counters"]
    return {counter.key.metric.name: int(counter.committed) for counter in counters}


def pipeline_in(folder: str, runner: FnApiRunner | None, options: PipelineOptions) -> beam.Pipeline:
    """A pipeline whose own temporary folder is made in this one, which goes with its run, or after a kill of it."""
    before = tempfile.tempdir
    try:
        tempfile.tempdir = folder
        return beam.Pipeline(runner=runner, options=options)
    finally:
        tempfile.tempdir = before


def is_template(options: PipelineOptions) -> bool:
    return bool(options.view_as(GoogleCloudOptions).template_location)


def is_not_waited_for(options: PipelineOptions) -> bool:
    return bool(options.view_as(StandardOptions).no_wait_until_finish) and not is_local(options)


def is_handed_over(options: PipelineOptions) -> bool:
    """Whether a runner was only asked to do it, some time: by a template, or as a job that is not waited for."""
    return is_template(options) or is_not_waited_for(options)


def say_job(result: Any, options: PipelineOptions) -> None:
    """What was submitted: the job's id and where it can be watched."""
    cloud = options.view_as(GoogleCloudOptions)
    if is_template(options):
        print(f"template {cloud.template_location}: written; nothing was run, and no store was made", flush=True)
        return
    if is_not_waited_for(options):
        print("the runner goes on by itself, and writes the stores", flush=True)
    if getattr(result, "has_job", False):
        place = f"https://console.cloud.google.com/dataflow/jobs/{cloud.region}/{result.job_id()}"
        print(f"job {result.job_id()}: {place}?project={cloud.project}", flush=True)
    elif name := getattr(result, "_job_id", None) or getattr(result, "job_id", None):
        print(f"job {name}", flush=True)

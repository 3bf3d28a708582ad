"""Running a Beam graph: on this machine by default, anywhere with Beam's own options."""

import argparse
import difflib
import logging
from collections.abc import Callable, Sequence

logging.disable(logging.WARNING)  # importing Beam warns of cloud libraries that a laptop does not need
import apache_beam as beam  # noqa: E402
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions  # noqa: E402

from pipeline.errors import UserError, user_error_in  # noqa: E402

logging.disable(logging.NOTSET)

LOCAL_RUNNER = "apache_beam.runners.portability.fn_api_runner.fn_runner.FnApiRunner"


def beam_options(arguments: Sequence[str]) -> PipelineOptions:
    """Beam's options from what is left of a command line; an option that Beam does not know is a UserError.

    Without --runner, or with Beam's direct runner, the graph runs here: in this process, or in
    --direct_num_workers processes. (Beam's direct runner would first try to download another one.)
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for owner in {cls.__name__: cls for cls in PipelineOptions.__subclasses__()}.values():
        owner._add_argparse_args(parser)
    _, unknown = parser.parse_known_args(list(arguments))
    if unknown:
        known = [flag for action in parser._actions for flag in action.option_strings]
        near = difflib.get_close_matches(unknown[0].split("=")[0], known, 1)
        raise UserError(f"unknown option {unknown[0]}" + (f": did you mean {near[0]}?" if near else ": see --help"))
    options = PipelineOptions(list(arguments))
    if is_local(options):
        options.view_as(StandardOptions).runner = LOCAL_RUNNER
        direct = options.view_as(DirectOptions)
        if direct.direct_num_workers != 1 and direct.direct_running_mode == "in_memory":
            direct.direct_running_mode = "multi_processing"
    return options


def is_local(options: PipelineOptions) -> bool:
    return options.view_as(StandardOptions).runner in (None, "DirectRunner", LOCAL_RUNNER)


def run(build: Callable[[beam.Pipeline], object], options: PipelineOptions) -> None:
    """Builds the graph and runs it to its end; a UserError raised by a worker comes out as itself."""
    if is_local(options):
        logging.getLogger("apache_beam").setLevel(logging.CRITICAL)  # what fails is raised, and said once
    try:
        with beam.Pipeline(options=options) as pipeline:
            build(pipeline)
    except Exception as error:
        if (known := user_error_in(error)) is not None:
            raise known from None
        raise

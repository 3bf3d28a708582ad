"""Tasks of lm-evaluation-harness by the joint model, with the language model alone beside it.

  python evaluation/run_lm_eval.py --generator models/books-tiny --energy models/books-energy \\
      --tasks lambada_openai,hellaswag --window 160 --samples 64 --limit 100 --output results/tasks.json

Three results are written and shown side by side: of the language model alone (base), of the joint model with every
log-likelihood at its lower bound (joint_lower), and at its upper bound (joint_upper): log Z of every context is
estimated from --samples of the same length. Where the two differ, more samples are needed to tell. With the results
stand the gaps between the bounds, the effective samples, and what was too long and cut. A run that was killed goes on
when the same command is given again. Without --energy there is the language model alone.

What answers a task that generates is one of --samples, drawn with --top_k and chosen by softmax(-E), and cut where the
task says; of the language model alone, one such sample. An energy knows windows as long as it was trained on: say so
with --window.

It needs lm-evaluation-harness: pip install 'residual-ebm[harness]'.
"""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from pipeline.runtime import files
from pipeline.runtime.errors import UserError, exit_with
from pipeline.runtime.settings import Settings, read_settings, setting

KEPT = ".part"


@dataclass(frozen=True, kw_only=True)
class HarnessSettings(Settings):
    """Two models (or a language model alone), tasks, and how the joint model is estimated."""

    generator: str = setting(help="the language model", metavar="DIR_OR_NAME")
    energy: str | None = setting(
        None, help="the energy model that corrects it (default: none, the language model alone)", metavar="DIR_OR_NAME"
    )
    tasks: tuple[str, ...] = setting(
        help="of the harness, or of --include_path, with commas", commas=True, metavar="A,B"
    )
    include_path: str | None = setting(None, help="a folder with tasks of your own (YAML)", metavar="DIR")
    num_fewshot: int | None = setting(None, help="examples before each (default: the task's)", metavar="N", least=0)
    limit: int | None = setting(None, help="the first N of each task (default: all)", metavar="N", least=1)
    samples: int = setting(64, help="of each context and length (default: 64)", metavar="N", least=2)
    window: int | None = setting(
        None,
        help="tokens of context and completion together (default: all that both models read)",
        metavar="N",
        least=1,
    )
    stride: int | None = setting(
        None, help="tokens of each completion that a long text is taken as (default: a window)", metavar="N", least=1
    )
    top_k: int = setting(10, help="of what is generated (default: 10)", metavar="K", least=1)
    add_bos_token: bool = setting(False, help="the start token before all contexts, as for models of this project")
    bootstrap: int = setting(1000, help="resamples for standard errors (default: 1000)", metavar="N", least=0)
    engine: str = setting("torch", help="of the generator (default: torch)", choices=("vllm", "torch"))
    seed: int = setting(0, help="(default: 0)", least=0, most=2**62 - 1)
    output: str = setting(help="a file, .json", metavar="FILE")
    overwrite: bool = setting(False, help="replace results that are there")

    def check(self) -> None:
        if not self.tasks:
            raise UserError("--tasks: at least one")
        if not self.output.endswith(".json"):
            raise UserError(f"--output {self.output}: a file whose name ends with .json")


def main(arguments: Sequence[str] | None = None) -> int:
    settings = read_settings(HarnessSettings, sys.argv[1:] if arguments is None else arguments, __doc__)
    describe(run_lm_eval(settings), settings)
    return 0


def run_lm_eval(settings: HarnessSettings) -> dict[str, Any]:
    """The harness's results of each model, as they are written."""
    check_installed()
    if files.is_file(settings.output) and not settings.overwrite:
        raise UserError(f"--output {settings.output}: there are results already: choose another name, or --overwrite")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from lm_eval.utils import handle_non_serializable

    from evaluation.harness.comparison import compared, models_of
    from evaluation.harness.pair import open_pair
    from evaluation.results.cache import ResultCache
    from pipeline.engines.environment import prepare_environment

    prepare_environment()
    pair = open_pair(settings.generator, settings.energy, settings.engine, settings.window)
    kept = ResultCache(settings.output + KEPT)
    names = ("samples", "seed", "stride", "top_k", "add_bos_token")
    models = models_of(pair, kept, **{name: getattr(settings, name) for name in names})
    try:
        results = compared(
            models, settings.tasks, settings.include_path, settings.num_fewshot, settings.limit, settings.bootstrap
        )
    except BaseException:
        kept.save()  # whatever ended it, what was drawn is not drawn again
        raise
    written = {"settings": settings.to_json(), "models": results}
    files.put(settings.output, json.dumps(written, indent=1, default=handle_non_serializable).encode())
    files.remove(kept.url)
    return written


def check_installed() -> None:
    if find_spec("lm_eval") is None:
        raise UserError("lm-evaluation-harness is not installed: pip install 'residual-ebm[harness]', or lm_eval alone")


def describe(written: dict[str, Any], settings: HarnessSettings) -> None:
    from evaluation.harness.account import in_words
    from evaluation.harness.comparison import BASE, JOINT_LOWER, table_of

    print(f"results {settings.output}")
    rows = table_of(written["models"])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  " + "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
    # The two ends of the joint model are of the same samples.
    results = written["models"].get(JOINT_LOWER) or written["models"][BASE]
    for sentence in in_words(results["config"]["residual_ebm"]):
        print(f"  {sentence}")


if __name__ == "__main__":
    exit_with(main)

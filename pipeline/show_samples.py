"""Shows what a language model makes of a few windows: contexts, their true completions, and sampled ones.

  python pipeline/show_samples.py --generator models/books-tiny --windows stores/books-test --context_length 120

Before each completion stands its log-probability under the model, log P(completion | context).
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.engines.choice import ENGINE_HELP, ENGINES, default_engine
from pipeline.engines.environment import prepare_environment
from pipeline.mining.settings import RULES
from pipeline.runtime.errors import UserError, exit_with
from pipeline.runtime.settings import Settings, read_settings, setting
from pipeline.stores.reader import Store
from pipeline.text.tokenizer import TextEncoder, load_tokenizer
from schemas.division import LEFT_TO_RIGHT, divide


@dataclass(frozen=True, kw_only=True)
class ShowSettings(Settings):
    """Which windows are completed by which generator, and how."""

    generator: str = setting(metavar="DIR_OR_NAME", help="a language model's folder or hub name")
    windows: str = setting(metavar="STORE", help="where the contexts come from")
    context_length: int | None = setting(None, metavar="TOKENS", help="default: three quarters of a window")
    count: int = setting(3, metavar="N", help="how many windows (default: 3)", least=1)
    samples: int = setting(2, metavar="N", help="completions of each (default: 2)", least=1)
    sampling: str = setting(
        "temperature", choices=RULES, help="temperature (1, the default), top_k or nucleus", group="sampling"
    )
    top_k: int = setting(10, metavar="K", help="of top_k (default: 10)", group="sampling")
    top_p: float = setting(0.9, metavar="P", help="of nucleus (default: 0.9)", group="sampling")
    engine: str = setting(default_engine(), choices=ENGINES, help=ENGINE_HELP, group="sampling")
    seed: int = setting(0, help="of the run; every window has its own from it (default: 0)", group="sampling")


def main(arguments: Sequence[str] | None = None) -> None:
    show_samples(read_settings(ShowSettings, sys.argv[1:] if arguments is None else arguments, __doc__))


def show_samples(settings: ShowSettings) -> None:
    """Prints contexts, their true completions and sampled ones."""
    store = Store(settings.windows, kind="windows")
    window = int(store.manifest.settings["window"])
    length = settings.context_length if settings.context_length is not None else window * 3 // 4
    if not 0 <= length < window:
        raise UserError(f"--context_length {length}: between 0 and {window - 1}, windows have {window} tokens")
    prepare_environment()
    # The models' libraries take seconds to import: not for --help, nor for a wrong flag.
    from pipeline.engines.generator import open_generator
    from pipeline.engines.sampling import Sampling, request_seed
    from pipeline.models.language_model import open_language_model

    sampling = Sampling(settings.sampling, settings.top_k, settings.top_p)
    open_language_model(settings.generator).check_fits(window, store.manifest.tokenizer, store.path)
    generator = open_generator(settings.generator, sampling, settings.engine, window_length=window)
    rows = store.take(range(min(settings.count, len(store))))
    tokens = [row.values.to_numpy() for row in rows["tokens"]]
    direction = generator.model.direction
    pairs = [divide(ids, length, direction) for ids in tokens]
    contexts, truths = [context for context, _ in pairs], [truth for _, truth in pairs]
    seeds = [request_seed(settings.seed, id, length) for id in rows["window_id"].to_pylist()]
    drawn = generator.sample(contexts, [window - length] * len(tokens), seeds, settings.samples)
    true_log_p = generator.log_prob(contexts, truths)
    encoder = load_tokenizer(store.path)
    for context, truth, log_p, completions in zip(contexts, truths, true_log_p, drawn, strict=True):
        print(f"\n{'context':>10}  {text(encoder, context, end=direction == LEFT_TO_RIGHT)}")
        print(f"{log_p:10.2f}  {text(encoder, truth)}   (the true one)")
        for completion, completion_log_p in zip(completions.tokens, completions.log_p, strict=True):
            print(f"{completion_log_p:10.2f}  {text(encoder, completion)}")
    generator.close()


def text(encoder: TextEncoder, ids: Sequence[int], end: bool = False, width: int = 100) -> str:
    """At most `width` characters of a text, of its end if that is what matters, on one line."""
    whole = repr(encoder.decode(ids))[1:-1]
    if len(whole) <= width:
        return whole
    return f"… {whole[-width:]}" if end else f"{whole[:width]} …"


if __name__ == "__main__":
    exit_with(main)

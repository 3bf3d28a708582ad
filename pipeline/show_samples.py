"""Shows what a language model makes of a few windows: contexts, their true completions, and sampled ones.

  python pipeline/show_samples.py --generator models/books-tiny --windows stores/books-test --context_length 120

Before each completion stands its log-probability under the model, log P(completion | context).
"""

import argparse
from collections.abc import Sequence

from pipeline.engines.choice import ENGINE_HELP, ENGINES, default_engine
from pipeline.engines.environment import prepare_environment
from pipeline.runtime.command_line import Parser
from pipeline.runtime.errors import UserError, exit_with
from pipeline.stores.reader import Store
from pipeline.text.tokenizer import TextEncoder, load_tokenizer


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    store = Store(options.windows, kind="windows")
    window = int(store.manifest.settings["window"])
    length = options.context_length if options.context_length is not None else window * 3 // 4
    if not 0 <= length < window:
        raise UserError(f"--context_length {length}: between 0 and {window - 1}, windows have {window} tokens")
    prepare_environment()
    # The models' libraries take seconds to import: not for --help, nor for a wrong flag.
    from pipeline.engines.generator import open_generator
    from pipeline.engines.sampling import Sampling, request_seed
    from pipeline.models.language_model import LEFT_TO_RIGHT, open_language_model

    sampling = Sampling(options.sampling, options.top_k, options.top_p)
    open_language_model(options.generator).check_fits(window, store.manifest.tokenizer, store.path)
    generator = open_generator(options.generator, sampling, options.engine, window_length=window)
    rows = store.take(range(min(options.count, len(store))))
    tokens = [row.values.to_numpy() for row in rows["tokens"]]
    forwards = generator.model.direction == LEFT_TO_RIGHT
    cut = length if forwards else window - length
    before, after = [ids[:cut] for ids in tokens], [ids[cut:] for ids in tokens]
    contexts, truths = (before, after) if forwards else (after, before)
    seeds = [request_seed(options.seed, id, length) for id in rows["window_id"].to_pylist()]
    drawn = generator.sample(contexts, [window - length] * len(tokens), seeds, options.samples)
    true_log_p = generator.log_prob(contexts, truths)
    encoder = load_tokenizer(store.path)
    for context, truth, log_p, completions in zip(contexts, truths, true_log_p, drawn, strict=True):
        print(f"\n{'context':>10}  {text(encoder, context, end=forwards)}")
        print(f"{log_p:10.2f}  {text(encoder, truth)}   (the true one)")
        for completion, completion_log_p in zip(completions.tokens, completions.log_p, strict=True):
            print(f"{completion_log_p:10.2f}  {text(encoder, completion)}")
    generator.close()


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(__doc__)
    parser.add_argument(
        "--generator", required=True, metavar="DIR_OR_NAME", help="a language model's folder or hub name"
    )
    parser.add_argument("--windows", required=True, metavar="STORE", help="where the contexts come from")
    parser.add_argument("--context_length", type=int, metavar="TOKENS", help="default: three quarters of a window")
    parser.add_argument("--count", type=int, default=3, metavar="N", help="how many windows (default: 3)")
    parser.add_argument("--samples", type=int, default=2, metavar="N", help="completions of each (default: 2)")
    add_sampling_options(parser)
    options = parser.parse_args(arguments)
    for flag in ("count", "samples"):
        if getattr(options, flag) < 1:
            raise UserError(f"--{flag} {getattr(options, flag)}: at least 1")
    return options


def add_sampling_options(parser: argparse.ArgumentParser) -> None:
    """How completions are drawn, and by which engine."""
    group = parser.add_argument_group("sampling")
    group.add_argument("--sampling", default="temperature", help="temperature (1, the default), top_k or nucleus")
    group.add_argument("--top_k", type=int, default=10, metavar="K", help="of top_k (default: 10)")
    group.add_argument("--top_p", type=float, default=0.9, metavar="P", help="of nucleus (default: 0.9)")
    group.add_argument("--engine", choices=ENGINES, default=default_engine(), help=ENGINE_HELP)
    group.add_argument("--seed", type=int, default=0, help="of the run; every window has its own from it (default: 0)")


def text(encoder: TextEncoder, ids: Sequence[int], end: bool = False, width: int = 100) -> str:
    """At most `width` characters of a text, of its end if that is what matters, on one line."""
    whole = repr(encoder.decode(ids))[1:-1]
    if len(whole) <= width:
        return whole
    return f"… {whole[-width:]}" if end else f"{whole[:width]} …"


if __name__ == "__main__":
    exit_with(main)

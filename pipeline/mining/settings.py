"""What has to be known to mine negatives."""

from dataclasses import dataclass, replace
from typing import Any

from pipeline.engines.choice import ENGINE_HELP, ENGINES, accelerator_setting, default_engine
from pipeline.runtime.errors import UserError
from pipeline.runtime.parts import PartSettings
from pipeline.runtime.settings import setting
from pipeline.windows.settings import WindowsSettings

RULES = ("temperature", "top_k", "nucleus")
SCORED, UNSCORED = "scored", "unscored"
WHAT, STORE, ENGINE = "what is mined", "the store", "the engine"


@dataclass(frozen=True, kw_only=True)
class MiningSettings(PartSettings):
    """Which windows are completed by which generators, how often, and where the negatives go."""

    windows: str = setting(
        metavar="STORE",
        help="a windows store; with --input and make_windows.py's other options, where it is made first",
        group=WHAT,
    )
    generators: str | None = setting(
        None,
        metavar="FILE",
        help="instead of --generator and --sampling: a YAML list, each entry with generator, and if wanted sampling, "
        "top_k, top_p, and name, of its store below --output",
        group=WHAT,
    )
    generator: tuple[str, ...] = setting(
        (),
        metavar="DIR_OR_NAME",
        help="a language model: a folder that train_lm.py made, or a hub name. May be given several times",
        group=WHAT,
    )
    sampling: tuple[str, ...] = setting(
        (),
        choices=RULES,
        help="temperature (1), top_k or nucleus (default: temperature). May be given several times",
        group=WHAT,
    )
    top_k: int = setting(10, metavar="K", help="of top_k (default: 10)", group=WHAT, least=1, most=10**9)
    top_p: float = setting(0.9, metavar="P", help="of nucleus (default: 0.9)", group=WHAT)
    context_lengths: str | None = setting(
        None,
        metavar="N,N-N,…",
        help="of which a window has one, each as likely as any other; 0-159 are all of them, the empty context "
        "included (default: 120,140; three quarters and seven eighths of windows that are not of 160 tokens)",
        group=WHAT,
    )
    every_context_length: bool = setting(
        False, help="a row for each of the lengths, instead of one drawn", group=WHAT, result=True
    )
    negatives: int = setting(
        1, metavar="N", help="samples of each context (default: 1)", group=WHAT, least=1, most=10**9, result=True
    )
    samples_per_row: int | None = setting(
        None,
        metavar="N",
        help="more negatives than that are divided into several rows and shards (default: by memory, at most 1000)",
        group=WHAT,
        least=1,
        most=10**4,
        result=True,
    )
    seed: int = setting(
        0,
        help="of the run; every window has its own from it (default: 0)",
        group=WHAT,
        least=0,
        most=2**63 - 1,
        result=True,
    )
    output: str = setting(metavar="DIR", help="its folder, on any filesystem", group=STORE)
    overwrite: bool = setting(False, help="replace a store that was made with other settings", group=STORE)
    max_duplicate_fraction: float = setting(
        0.5,
        metavar="F",
        help="stop if more than this share of the negatives, at temperature 1 and of 20 tokens or more, is equal to "
        "another window's (default: 0.5)",
        group=STORE,
        least=0,
        most=1,
    )
    max_reject_fraction: float = setting(
        0.01,
        metavar="F",
        help="stop if more than this share of the shards cannot be made, or three in a row (default: 0.01)",
        group=STORE,
        least=0,
        most=1,
    )
    positives: str = setting(
        SCORED,
        choices=(SCORED, UNSCORED),
        help="unscored: leave out the true completions' log-probabilities, which training does not need; bounds and "
        "baselines by likelihood do (default: scored)",
        group=WHAT,
    )
    engine: str = setting(default_engine(), choices=ENGINES, help=ENGINE_HELP, group=ENGINE, result=True)
    accelerator: str | None = accelerator_setting("generating", ENGINE)
    precision: str | None = setting(
        None,
        choices=("fp32", "bf16", "fp16"),
        help="precision of the generators, whose probabilities are recorded (default: fp32 on CPUs, on GPUs "
        "the weights' own)",
        group=ENGINE,
    )
    gpu_memory: float = setting(
        0.9,
        metavar="F",
        help="share of a GPU's memory, divided among the engines if there are several (default: 0.9)",
        group=ENGINE,
        least=0,
        most=1,
    )
    sequences: int | None = setting(
        None, metavar="N", help="at once in vLLM (default: 256, or fewer by memory)", group=ENGINE, least=1, most=10**5
    )
    tensor_parallel: int = setting(
        1, metavar="N", help="GPUs that share one copy of a model (default: 1)", group=ENGINE, least=1, most=64
    )
    text: WindowsSettings | None = setting(None, help="what the windows are made of in the same run", flag=False)

    def check(self) -> None:
        super().check()
        if self.part is not None and self.text is not None:
            raise UserError("--part: make the windows first, without --input here")
        if bool(self.generators) == bool(self.generator):
            raise UserError("--generator: name at least one, or a list of them with --generators, not both")
        if self.generators and self.sampling:
            raise UserError("--sampling: with --generators the list has the rules")
        if not 0 < self.top_p <= 1:
            raise UserError(f"--top_p {self.top_p}: above 0 and at most 1")

    def result(self) -> dict[str, Any]:
        """What is as usual is not said: stores that were made before it could be chosen stay the same."""
        unusual = {"positives": SCORED, "precision": None}
        changed = {name: getattr(self, name) for name, usual in unusual.items() if getattr(self, name) != usual}
        return super().result() | changed

    @property
    def rules(self) -> tuple[str, ...]:
        return self.sampling or RULES[:1]

    def of_one(self, generator: str, rule: str, top_k: int, top_p: float, output: str) -> "MiningSettings":
        """The settings that make one of several stores alone, which is what repairing it needs."""
        rules: dict[str, Any] = {"sampling": (rule,), "top_k": top_k, "top_p": top_p}
        return replace(self, generators=None, generator=(generator,), output=output, **rules)

    def to_words(self) -> list[str]:
        text = replace(self.text, output=self.windows).to_words() if self.text else []
        place = text.index("--output") if text else 0
        return super().to_words() + text[:place] + text[place + 2 :]


def context_lengths_of(given: str | None, window: int) -> tuple[int, ...]:
    """The lengths that a list of numbers and ranges names, or those that are usual for windows of so many tokens."""
    lengths = [window * 3 // 4, window * 7 // 8] if given is None else []
    for part in given.split(",") if given is not None else []:
        first, dash, last = part.partition("-")
        if not (first.strip().isdecimal() and (last.strip().isdecimal() or not dash)):
            raise UserError(f"--context_lengths {given}: numbers and ranges with commas between them: 0,120-159")
        start, end = int(first), int(last or first)
        for length in (start, end):
            if length >= window:
                raise UserError(f"--context_lengths {length}: between 0 and {window - 1}, windows have {window} tokens")
        if end < start:
            raise UserError(f"--context_lengths {part}: a range from the smaller number to the larger one")
        lengths += range(start, end + 1)
    if len(set(lengths)) < len(lengths):
        raise UserError(f"--context_lengths {given}: each length once")
    return tuple(lengths)

"""What each job of a study takes: its settings as its script reads them, and what is known of the jobs before it."""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import yaml
from transformers import AutoConfig, PretrainedConfig

import schemas
from evaluation.accuracy_grid import GridSettings
from evaluation.analyses.perturbations import PerturbationsSettings
from evaluation.analyses.random_text import RandomTextSettings
from evaluation.analyses.repetition_next_token import RepetitionNextTokenSettings
from evaluation.joint.energy_scorer import AT_ONCE
from evaluation.perplexity_bounds import BoundsSettings
from evaluation.sample_joint import JointSamplesSettings
from evaluation.score import ScoreSettings
from pipeline.engines.choice import TORCH
from pipeline.import_texts import SHARD_ROWS as IMPORTED_ROWS
from pipeline.import_texts import ImportSettings
from pipeline.mining.job import rows_of_window, samples_of_row
from pipeline.mining.settings import MiningSettings, context_lengths_of
from pipeline.runtime.errors import UserError, first_line
from pipeline.runtime.settings import Settings, read_settings
from pipeline.runtime.yaml_file import read_yaml
from pipeline.text.builtin_corpora import ALPHABET, LINES, parse_lines
from pipeline.windows.settings import WindowsSettings
from schemas.division import LEFT_TO_RIGHT, RIGHT_TO_LEFT
from studies.costs.hardware import BF16, BYTES, FP16, FP32, Machine, Sampling
from studies.costs.networks import Network, network_of
from studies.costs.stores import energies_bytes, negatives_bytes, windows_bytes
from studies.costs.texts import Texts
from studies.orchestration.study import Job
from training.energy import presets as energy_presets
from training.energy.classifier import classifier_energy
from training.energy.model import EnergyConfig
from training.energy.names import BIT, CLASSIFIER, UNIT
from training.language import presets as language_presets
from training.loop.plan import TrainingPlan
from training.loop.recipe import choose_recipe
from training.loop.run import RunSettings, make_plan
from training.train_energy import EnergySettings
from training.train_energy import plan_of as energy_plan
from training.train_lm import MASKED, LanguageModelSettings, masked_config, preset_recipe

SHARD_ROWS = 8192  # of windows, make_windows.py's default
TORCH_SEQUENCES = 32  # about what the torch engine's memory holds of the paper's models
CHECKPOINT_BYTES = 12  # for each weight that learns, beside the model: its fp32 copy and Adam's two averages


@dataclass(frozen=True)
class Cost:
    """Of one job: seconds of one GPU, tokens that networks read and make, and bytes of stores by their kind."""

    name: str
    seconds: float = 0.0
    read: float = 0.0
    generated: float = 0.0
    stores: dict[str, float] = field(default_factory=dict)
    precision: str | None = None  # of what it trains or scores with

    @property
    def section(self) -> str:
        return self.name.partition("/")[0]

    def __add__(self, other: "Cost") -> "Cost":
        kinds = {**self.stores, **other.stores}
        stores = {kind: self.stores.get(kind, 0) + other.stores.get(kind, 0) for kind in kinds}
        return Cost(
            self.name,
            self.seconds + other.seconds,
            self.read + other.read,
            self.generated + other.generated,
            stores,
            self.precision or other.precision,
        )


@dataclass(frozen=True)
class Windows:
    """A store of windows."""

    rows: int
    shards: int
    window: int
    vocabulary: int

    @property
    def tokenizer(self) -> dict[str, Any]:
        """As a manifest describes it, as far as networks depend on it."""
        return {"vocabulary_size": self.vocabulary, "eos_token_id": self.vocabulary - 1}


@dataclass(frozen=True)
class Negatives:
    """A store of negatives: rows with so many samples each, on average."""

    windows: Windows
    rows: int
    shards: int
    samples: float
    lengths: tuple[int, ...]
    every: bool
    direction: str

    @property
    def context(self) -> float:
        """Tokens, on average."""
        return sum(self.lengths) / len(self.lengths)

    @property
    def completion(self) -> float:
        return self.windows.window - self.context


@dataclass(frozen=True)
class Model:
    """A network that was trained, or comes from elsewhere."""

    config: PretrainedConfig
    network: Network
    precision: str
    direction: str = LEFT_TO_RIGHT

    @property
    def is_causal_energy(self) -> bool:
        config = self.config
        if not isinstance(config, EnergyConfig):
            return False
        return config.kind == UNIT or (config.kind == CLASSIFIER and not config.own_tokenizer)


class Planner:
    """Costs of jobs, in the order in which they run: what is made is remembered by its folder."""

    def __init__(self, machine: Machine, texts: Texts, vocabulary: int, precision: str | None, unset: Sequence[str]):
        self.machine, self.texts, self.vocabulary, self.given_precision = machine, texts, vocabulary, precision
        self.unset = set(unset)  # variables of the study that nobody has given a value
        self.windows: dict[str, Windows] = {}
        self.negatives: dict[str, Negatives] = {}
        self.models: dict[str, Model] = {}
        self.scored: set[tuple[str, str]] = set()  # by grids, which keep energies for each other

    def cost(self, job: Job) -> Cost:
        """What a job takes; nothing of a GPU where no network runs in it."""
        stages: dict[str, tuple[type[Settings], Callable[[str, Any], Cost]]] = {
            "make_windows.py": (WindowsSettings, self.make_windows),
            "train_lm.py": (LanguageModelSettings, self.train_lm),
            "mine_negatives.py": (MiningSettings, self.mine),
            "import_texts.py": (ImportSettings, self.import_texts),
            "train_energy.py": (EnergySettings, self.train_energy),
            "score.py": (ScoreSettings, self.score),
            "perplexity_bounds.py": (BoundsSettings, self.bounds),
            "sample_joint.py": (JointSamplesSettings, self.sample_joint),
            "accuracy_grid.py": (GridSettings, partial(self.grid, job.reads)),
            "perturbations.py": (PerturbationsSettings, self.perturbations),
            "random_text.py": (RandomTextSettings, self.random_text),
            "repetition_next_token.py": (RepetitionNextTokenSettings, self.next_tokens),
        }
        place = next(place for place, word in enumerate(job.command) if word.endswith(".py"))
        script = os.path.basename(job.command[place])
        if script not in stages:
            return Cost(job.name)
        kind, plan = stages[script]
        return plan(job.name, read_settings(kind, job.command[place + 1 :], None))

    # Stores.

    def make_windows(self, name: str, settings: WindowsSettings) -> Cost:
        settings = settings.settled()
        corpus, window, stride = str(settings.corpus), int(settings.window or 0), int(settings.stride or 1)
        lines = parse_lines(settings.builtin) if settings.builtin else None
        text = self.texts.find(corpus, settings.split)
        if lines:
            rows = lines.lines if lines.lines is not None else LINES[settings.split]
        elif text is None and settings.limit:
            rows = settings.limit
        else:
            text = self.texts.tokens(corpus, settings.split, name) / settings.part.of
            rows = max(0, int(text - window) // stride + 1)
        rows = min(rows, settings.limit or rows)
        known = self.windows.get(str(settings.tokenizer))
        vocabulary = settings.train_tokenizer or (known.vocabulary if known else self.vocabulary)
        if lines and not settings.tokenizer and not settings.train_tokenizer:
            vocabulary = len(ALPHABET) + 1
        made = Windows(rows, settings.shards or math.ceil(rows / SHARD_ROWS) or 1, window, vocabulary)
        self.windows[settings.output] = made
        return Cost(name, stores={"windows": windows_bytes(rows, made.shards, window, vocabulary, lines is not None)})

    def mine(self, name: str, settings: MiningSettings) -> Cost:
        if len(settings.generator) != 1 or len(settings.rules) != 1:
            raise UserError(f"{name}: mines several stores at once, which cannot be counted: an entry for each")
        windows = self.found(self.windows, settings.windows)
        model = self.model(settings.generator[0], windows)
        lengths = context_lengths_of(settings.context_lengths, windows.window)
        most = samples_of_row(settings, lengths, math.ceil(windows.rows / windows.shards), windows.window)
        chunks = math.ceil(settings.negatives / most)
        made = Negatives(
            windows,
            windows.rows * rows_of_window(settings, lengths) * chunks,
            windows.shards * chunks,
            settings.negatives / chunks,
            lengths,
            settings.every_context_length,
            model.direction,
        )
        self.negatives[settings.output] = made
        size = negatives_bytes(
            made.rows,
            made.shards,
            windows.window,
            windows.vocabulary,
            lengths,
            round(made.samples),
            made.every and len(lengths) > 1,
        )
        drawn = self.sampled(name, model, made.rows, made.samples, made.context, made.completion, settings.engine)
        real = self.read(name, model, made.rows, windows.window, settings.engine)
        return drawn + real + Cost(name, stores={"negatives": size})

    def import_texts(self, name: str, settings: ImportSettings) -> Cost:
        """A row for each block of the longer of the two texts, as much of it being generated as real."""
        tokens = max(self.texts.of_file(path, name) for path in settings.real)
        rows = math.ceil(tokens / settings.block)
        known = self.windows.get(settings.tokenizer)
        windows = Windows(
            rows, math.ceil(rows / IMPORTED_ROWS), settings.block, known.vocabulary if known else self.vocabulary
        )
        made = Negatives(windows, rows, windows.shards, 1.0, (0,), False, LEFT_TO_RIGHT)
        self.negatives[settings.output] = made
        size = negatives_bytes(rows, made.shards, settings.block, windows.vocabulary, (0,), 1)
        return Cost(name, stores={"negatives": size})

    # Trainings.

    def train_lm(self, name: str, settings: LanguageModelSettings) -> Cost:
        windows, masked = self.found(self.windows, settings.train), settings.objective == MASKED
        if masked:
            config = masked_config(str(settings.preset), windows.tokenizer, windows.window + 1)
        elif settings.preset:
            base = self.model(settings.base, windows).config if settings.base else None
            positions = max(language_presets.POSITIONS, windows.window + 1)
            config = language_presets.find_preset(settings.preset).build(windows.vocabulary, positions, base)
        else:
            config = self.model(str(settings.init), windows).config
        network = network_of(config, masked)
        plan = make_plan(settings, choose_recipe(preset_recipe(settings), settings), 1)
        direction = settings.direction or LEFT_TO_RIGHT
        return self.trained(name, settings, plan, Model(config, network, "", direction), windows.window, 1)

    def train_energy(self, name: str, settings: EnergySettings) -> Cost:
        stores = [self.store(path) for path in (*settings.train, *settings.valid)]
        windows = stores[0].windows
        window = max(store.windows.window for store in stores)
        preset = energy_presets.find_preset(settings.preset) if settings.preset else None
        if preset and preset.build:
            config: PretrainedConfig = preset.build(windows.tokenizer, window + 1)
        else:
            config = self.like(settings.preset, self.model(str(settings.init), windows).config, windows)
        negatives = settings.negatives or int(min(store.samples for store in stores))
        model = Model(config, network_of(config), "")
        mean = sum(store.rows * store.windows.window for store in stores) / sum(store.rows for store in stores)
        return self.trained(name, settings, energy_plan(settings), model, mean, 1 + negatives)

    def like(self, preset: str | None, init: PretrainedConfig, windows: Windows) -> PretrainedConfig:
        """The shape of an energy model that is that of the model to start from."""
        if isinstance(init, EnergyConfig):
            return init
        if preset == "unmasked":
            return EnergyConfig(BIT, windows.vocabulary, init.to_dict() | {"is_causal": False}, windows.vocabulary - 1)
        return classifier_energy(init, windows.vocabulary, 0, own_tokenizer=preset == "encoder")

    def trained(
        self, name: str, settings: RunSettings, plan: TrainingPlan, model: Model, window: float, sequences: int
    ) -> Cost:
        """All steps of a recipe and the validations between them; `sequences` windows make a row."""
        recipe, network = plan.recipe, model.network
        wanted = settings.precision or self.given_precision or (FP16 if recipe.mixed_precision else FP32)
        precision = self.machine.precision(wanted)
        self.models[settings.output] = Model(model.config, network, precision, model.direction)
        rows = recipe.batch_size * recipe.max_steps * sequences
        checked = math.ceil(recipe.max_steps / plan.validate_every) * plan.valid_rows * sequences
        seconds = self.machine.train_seconds(rows * network.training(window), precision)
        seconds += self.machine.score_seconds(checked * network.sequence(window), precision)
        model_bytes = BYTES[precision] * network.parameters
        checkpoint = (CHECKPOINT_BYTES + (BYTES[precision] if precision != FP32 else 0)) * network.trained
        stores = {"models": float(model_bytes), "checkpoints": float(checkpoint)}
        return Cost(name, seconds, (rows + checked) * window, 0.0, stores, precision)

    # What networks do with stores.

    def sampled(
        self, name: str, model: Model, rows: float, samples: float, context: float, completion: float, engine: str
    ) -> Cost:
        """Completions of rows, of which each has its context read once."""
        network, precision = model.network, self.sampling_precision(model, engine)
        mean = context + 1 + completion / 2
        work = Sampling(
            samples=rows * samples,
            generated=rows * samples * completion,
            length=mean,
            read_flops=rows * network.forward(context + 1),
            token_flops=network.forward(1, mean),
            weight_bytes=BYTES[precision] * network.parameters,
            cache_bytes=BYTES[precision] * network.cached,
            precision=precision,
            sequences=TORCH_SEQUENCES if engine == TORCH else None,
        )
        return Cost(name, self.machine.sample_seconds(work), rows * (context + 1), work.generated)

    def read(self, name: str, model: Model, sequences: float, length: float, engine: str = TORCH) -> Cost:
        """Sequences through a network once; an engine does something of its own for each."""
        precision = self.sampling_precision(model, engine)
        seconds = self.machine.score_seconds(sequences * model.network.sequence(length), precision)
        if engine != TORCH:
            seconds = max(seconds, sequences * self.machine.sample_ms / 1000)
        return Cost(name, seconds, sequences * length, precision=precision if engine == TORCH else None)

    def score(self, name: str, settings: ScoreSettings) -> Cost:
        return self.scored_store(name, settings.energy, self.store(settings.store))

    def scored_store(self, name: str, energy: str, store: Negatives) -> Cost:
        """A store of energies: of whole windows, or, by an energy that never looks ahead, contexts once for many."""
        model, window, count = self.model(energy, store.windows), store.windows.window, 1 + store.samples
        size = energies_bytes(store.rows, store.shards, round(store.samples), len(store.lengths) if store.every else 1)
        stores = {"energies": size}
        if model.is_causal_energy and store.direction != RIGHT_TO_LEFT and store.context:
            contexts = store.rows * math.ceil(count / AT_ONCE["cuda"])
            completions = store.rows * count * store.completion
            flops = contexts * model.network.forward(store.context + 1)
            flops += model.network.forward(completions, window + 1)
            seconds = self.machine.score_seconds(flops, model.precision)
            return Cost(name, seconds, contexts * store.context + completions, 0.0, stores, model.precision)
        return self.read(name, model, store.rows * count, window) + Cost(name, stores=stores)

    def bounds(self, name: str, settings: BoundsSettings) -> Cost:
        store = self.store(settings.negatives)
        contexts = store.windows.rows * (len(store.lengths) if store.every else 1)
        found = Cost(name)
        for other in settings.language_model:
            found += self.read(name, self.model(other, store.windows), contexts, store.windows.window)
        if settings.exact_windows and settings.energy:
            count = min(settings.exact_windows, store.windows.rows) * store.windows.vocabulary
            found += self.read(name, self.model(settings.energy, store.windows), count, store.windows.window)
        return found

    def sample_joint(self, name: str, settings: JointSamplesSettings) -> Cost:
        if settings.windows is None:
            raise UserError(f"{name}: how many prompts there are is not known here: give it windows")
        windows = self.found(self.windows, settings.windows)
        context = windows.window * 3 // 4 if settings.context_length is None else settings.context_length
        contexts, completion = min(settings.limit or windows.rows, windows.rows), windows.window - context
        # Token by token, each of the 128 likeliest has all of its samples drawn to the window's end.
        drawn = settings.drawn * (128 * completion // 2 if settings.autoregressive else 1)
        model = self.model(settings.generator, windows)
        found = self.sampled(name, model, contexts, drawn, context, completion, settings.engine)
        if settings.energy is None:
            return found
        return found + self.read(name, self.model(settings.energy, windows), contexts * (1 + drawn), windows.window)

    def grid(self, texts: dict[str, str], job: str, settings: GridSettings) -> Cost:
        """Every model on every test set that it has not been scored on for another grid."""
        path, root = settings.grid, settings.root
        grid = yaml.safe_load(texts[path]) if path in texts else read_yaml(path, schemas.read_schema("grid"))
        found = Cost(job)
        for row in grid["rows"]:
            for column in grid["columns"]:
                name = for_column(row.get("energy") or row.get("likelihood"), column["name"])
                if name is None:
                    continue
                found += self.tested(job, os.path.join(root, name), column, root)
                if "likelihood" in row:  # its threshold is found on other windows
                    valid = {"stores": for_column(row["valid"], column["name"])}
                    found += self.tested(job, os.path.join(root, name), valid, root)
        return found

    def tested(self, job: str, model: str, data: dict[str, Any], root: str) -> Cost:
        found = Cost(job)
        for path in (os.path.join(root, path) for path in data.get("stores") or []):
            if (model, path) not in self.scored:
                self.scored.add((model, path))
                found += self.scored_store(job, model, self.store(path))
        for path in (*data.get("real", ()), *data.get("generated", ())):
            real = path if path in data.get("real", ()) else data["real"][0]  # as many texts of either kind
            tokens = self.texts.of_file(real, job)
            windows = Windows(0, 1, 160, self.vocabulary)
            found += self.read(job, self.model(model, windows), tokens / windows.window, windows.window)
        return found

    def perturbations(self, name: str, settings: PerturbationsSettings) -> Cost:
        windows = self.found(self.windows, settings.windows)
        count = min(settings.limit, windows.rows) * 2 * windows.window
        models = (self.model(model, windows) for model in (settings.energy, settings.generator))
        one, other = (self.read(name, model, count, windows.window) for model in models)
        return one + other

    def random_text(self, name: str, settings: RandomTextSettings) -> Cost:
        store = self.store(settings.store)
        model, count = self.model(settings.energy, store.windows), 4 * min(settings.limit, store.rows)
        return self.read(name, model, count, store.windows.window)

    def next_tokens(self, name: str, settings: RepetitionNextTokenSettings) -> Cost:
        """Of every candidate, completions to the window's end; a point is somewhere in its last quarter."""
        window = next(iter(self.windows.values())).window
        windows = Windows(0, 1, window, self.vocabulary)
        rows, left = settings.points * settings.words, window // 8
        generator, energy = (self.model(model, windows) for model in (settings.generator, settings.energy))
        drawn = self.sampled(name, generator, rows, settings.completions, window - left, left, TORCH)
        return drawn + self.read(name, energy, rows * settings.completions, window)

    # What is there.

    def store(self, path: str) -> Negatives:
        return self.found(self.negatives, path)

    def found(self, made: dict[str, Any], path: str) -> Any:
        if path not in made:
            raise UserError(f"{path}: not made by this study, so that its size is not known: make it an entry")
        return made[path]

    def model(self, name: str, windows: Windows) -> Model:
        """One of the study, or another one by its configuration, whose weights are not needed."""
        if name in self.models:
            return self.models[name]
        if name in self.unset:
            raise UserError(f"--set {name}=…: the study's models depend on it")
        try:
            config = AutoConfig.from_pretrained(name, trust_remote_code=False)
        except (OSError, ValueError) as error:
            raise UserError(f"{name}: no model of the study, nor one that can be read ({first_line(error)})") from None
        masked = "MaskedLM" in "".join(config.architectures or [])
        own = str(getattr(config, "dtype", None) or FP32).removeprefix("torch.")
        precision = self.machine.precision({"float16": FP16, "bfloat16": BF16}.get(own, FP32))
        self.models[name] = Model(config, network_of(config, masked), precision)
        return self.models[name]

    def sampling_precision(self, model: Model, engine: str) -> str:
        """vLLM takes 16 bits wherever it can, the torch engine those of the model's file."""
        return model.precision if engine == TORCH else self.machine.precision(BF16)


def for_column(given: Any, column: str) -> Any:
    """What a row of a grid names, or names for this column."""
    return given.get(column) if isinstance(given, dict) and "real" not in given else given

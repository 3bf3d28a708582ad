"""studies/paper.yaml against the paper: each table and figure has its models, on its data, with its numbers of samples.

What is expected is spelled here a second time, from the paper's text, and compared with the commands that are run.
"""

import shlex
from collections.abc import Iterator
from itertools import product

import pytest
import yaml

from studies.orchestration.study import Job, Study
from tests.helpers.commands import ROOT

CORPORA, DIRECTIONS = ("books", "news", "wiki"), {"prefix": "left_to_right", "suffix": "right_to_left"}


@pytest.fixture(scope="module")
def jobs() -> dict[str, Job]:
    study = Study(str(ROOT / "studies/paper.yaml"), "o", {"DATA": "d", "WILD": "w"})
    return {job.name: job for job in study.jobs()}


def flags(job: Job) -> dict[str, str]:
    """A command's flags, the values of a repeated one joined with commas; a switch is empty."""
    found: dict[str, str] = {}
    name = ""
    for word in job.command:
        if word.startswith("--"):
            name = word[2:]
            found.setdefault(name, "")
        elif name:
            found[name] = f"{found[name]},{word}" if found[name] else word
    return found


def has(job: Job, **expected: str) -> None:
    given = flags(job)
    for name, value in expected.items():
        assert given.get(name) == value, f"{job.name}: --{name}: {shlex.join(job.command)}"


def named(jobs: dict[str, Job], section: str) -> Iterator[Job]:
    return (job for name, job in jobs.items() if name.startswith(f"{section}/"))


def test_windows_are_160_tokens_and_60000_of_them_are_held_out(jobs):
    for corpus, split in product(CORPORA, ("train", "valid", "test")):
        ids = {"books": "books", "news": "ccnews", "wiki": "wikitext"}
        has(jobs[f"windows/{corpus}-{split}"], corpus=ids[corpus], split=split, window="160", tokenizer="gpt2")
        assert flags(jobs[f"windows/{corpus}-{split}"]).get("limit") == (None if split == "train" else "60000")
        assert "stride" not in flags(jobs[f"windows/{corpus}-{split}"])  # the corpus's own: 40, of CCNews 160
        assert "documents" not in flags(jobs[f"windows/{corpus}-{split}"])


def test_generators_are_trained_in_both_directions_with_two_seeds(jobs):
    for corpus, seed, direction in product(CORPORA, "12", DIRECTIONS):
        job = jobs[f"language_models/{corpus}-{seed}-{direction}"]
        train, valid = (f"o/windows/{corpus}-{split}" for split in ("train", "valid"))
        has(job, preset="transf-big", seed=seed, direction=DIRECTIONS[direction], train=train, valid=valid)
    for preset, seed, direction in product(("conv", "small"), "12", DIRECTIONS):
        job = jobs[f"language_models/wiki-{preset}-{seed}-{direction}"]
        has(job, preset={"conv": "conv", "small": "transf-small"}[preset], seed=seed, direction=DIRECTIONS[direction])


def test_negatives_have_contexts_of_120_or_140_and_are_tested_on_another_seed(jobs):
    for corpus, direction, split in product(CORPORA, DIRECTIONS, ("train", "valid", "test")):
        generator = f"o/models/{corpus}-{2 if split == 'test' else 1}-{direction}"
        job = jobs[f"negatives/{corpus}-{split}-{direction}"]
        has(job, windows=f"o/windows/{corpus}-{split}", generator=generator, context_lengths="120,140", engine="vllm")
    for direction, split in product(DIRECTIONS, ("train", "valid", "test")):
        has(jobs[f"negatives/wiki-conv-{split}-{direction}"], engine="torch", context_lengths="120,140")


def both(corpus: str, split: str) -> str:
    return f"o/negatives/{corpus}-{split}-prefix,o/negatives/{corpus}-{split}-suffix"


def test_table_in_domain(jobs):
    for corpus, preset in product(CORPORA, ("linear", "bilstm-small", "bilstm-big", "unit")):
        job = jobs[f"energy_models/{corpus}-{preset}"]
        has(job, preset=preset, train=both(corpus, "train"), valid=both(corpus, "valid"))
        assert flags(job).get("init") == (f"o/models/{corpus}-1-prefix" if preset == "unit" else None)
    grid = grid_of(jobs["grids/in_domain"])
    assert [row["paper"] for row in grid["rows"] if "paper" in row] == [
        *("Linear", "BiLSTMsmall", "BiLSTMbig", "UniT", "TransfBig (log-likelihood)")
    ]
    assert [column["paper"] for column in grid["columns"]] == ["Books", "CCNews", "Wiki"]
    assert grid["columns"][0]["stores"] == ["negatives/books-test-prefix", "negatives/books-test-suffix"]
    assert grid["rows"][3]["energy"] == {
        "Books": "models/books-unit",
        "News": "models/news-unit",
        "Wiki": "models/wiki-unit",
    }
    assert grid["rows"][4]["likelihood"]["Wiki"] == "models/wiki-1-prefix"


def grid_of(job: Job) -> dict:
    (text,) = job.reads.values()
    return yaml.safe_load(text)


def test_table_cross_architecture(jobs):
    for name in ("conv", "small"):
        job = jobs[f"energy_models/wiki-{name}-unit"]
        has(job, preset="unit", init="o/models/wiki-1-prefix", train=both(f"wiki-{name}", "train"))
    grid = grid_of(jobs["grids/cross_architecture"])
    assert [entry["paper"] for entry in (*grid["rows"], *grid["columns"])] == ["Conv", "TransfSmall"] * 2
    assert grid["row_means"] is True


def test_table_cross_corpus(jobs):
    unions = {"books-wiki": ("books", "wiki"), "books-news": ("books", "news"), "news-wiki": ("news", "wiki")}
    for name, corpora in (unions | {"all": CORPORA}).items():
        job = jobs[f"energy_models/{name}-unit"]
        has(job, preset="unit", train=",".join(both(corpus, "train") for corpus in corpora))
        assert flags(job)["init"] in {f"o/models/{corpus}-1-prefix" for corpus in corpora}
    everything = ",".join(both(corpus, "train") for corpus in CORPORA)
    has(jobs["energy_models/all-bit"], preset="bit-large", init="FacebookAI/roberta-large", train=everything)
    papers = [row["paper"] for row in grid_of(jobs["grids/cross_corpus"])["rows"]]
    assert papers == [
        *("Books", "CCNews", "Wiki", "Books + Wiki", "Books + CCNews", "CCNews + Wiki", "ALL (UniT)", "ALL (BiT)")
    ]


SIZES = {"small": "small-117M", "med": "medium-345M", "big": "large-762M", "huge": "xl-1542M"}


def test_table_in_the_wild(jobs):
    """All prefixes of all corpora; fine-tuned on each set, on the smallest's, or on none."""
    every = ",".join(f"o/negatives/{corpus}-train-every-prefix" for corpus in CORPORA)
    has(jobs["energy_models/all-bit-every-prefix"], init="o/models/all-bit", train=every)
    for corpus in CORPORA:
        has(jobs[f"negatives/{corpus}-train-every-prefix"], context_lengths="0-159")
    for (size, file), (rule, ending) in product(SIZES.items(), {"top-k": "-k40", "temperature": ""}.items()):
        for split in ("train", "valid"):
            texts = {"real": f"w/webtext.{split}.jsonl", "generated": f"w/{file}{ending}.{split}.jsonl"}
            has(jobs[f"imports/{size}-{rule}-{split}"], **texts)
        job = jobs[f"energy_models/wild-{size}-{rule}"]
        has(job, init="o/models/all-bit-every-prefix", train=f"o/imports/{size}-{rule}-train")
    small = "o/imports/small-top-k-train,o/imports/small-temperature-train"
    has(jobs["energy_models/wild-small"], init="o/models/all-bit-every-prefix", train=small)
    grid = grid_of(jobs["grids/wild"])
    columns = [f"{size} {rule}" for size in ("Small", "Med", "Big", "Huge") for rule in ("top-k", "temp=1")]
    assert [column["paper"] for column in grid["columns"]] == columns
    assert grid["columns"][0]["generated"][0].endswith("w/small-117M-k40.test.jsonl")
    rows = {row["paper"]: row for row in grid["rows"]}
    assert set(rows) == {"TF-IDF", "BiT in-domain", "BiT cross-architecture", "BiT wild"}
    assert rows["TF-IDF"]["tfidf"]["Huge temp=1"]["generated"][0].endswith("w/xl-1542M.train.jsonl")
    assert rows["BiT in-domain"]["energy"]["Med top-k"] == "models/wild-med-top-k"
    assert rows["BiT cross-architecture"]["energy"] == "models/wild-small"
    assert rows["BiT wild"]["energy"] == "models/all-bit-every-prefix"


# Rows of the table "Validation and test perplexity": corpus, depth, energy, preset, what it starts from.
MAIN = [
    *(
        (text, depth, "unit", "unit", f"o/models/{text}-base-12l")
        for text in ("news", "books")
        for depth in ("12l", "24l")
    ),
    *(("news", depth, "bit-base", "bit-base", "o/models/news-masked-bit-base") for depth in ("12l", "24l")),
    ("news", "24l", "bit-med", "bit-med", "o/models/news-masked-bit-med"),
    *(
        (text, depth, f"bit-{size}-star", f"bit-{size}", f"FacebookAI/roberta-{size}")
        for text in ("news", "books")
        for depth in ("12l", "24l")
        for size in ("base", "large")
    ),
]


def test_table_of_perplexities(jobs):
    for text, depth in product(("news", "books"), ("12l", "24l")):
        more = "" if depth == "12l" else "-24l"
        has(jobs[f"language_models/{text}-base-{depth}"], preset=f"base-lm{more}", train=f"o/windows/{text}-train")
        has(jobs[f"language_models/{text}-ralm-{depth}"], preset=f"ralm{more}", base=f"o/models/{text}-base-{depth}")
        has(jobs[f"language_models/{text}-balm-{depth}"], preset=f"balm{more}")
        for held in ("valid", "test"):
            job = jobs[f"negatives/{text}-{held}-samples-{depth}"]
            has(job, context_lengths="120", negatives="100000", generator=f"o/models/{text}-base-{depth}")
    for size in ("base", "med"):
        has(jobs[f"language_models/news-masked-bit-{size}"], objective="masked", preset=f"bit-{size}")
    for text, depth, energy, preset, init in MAIN:
        recipe = "joint" if depth == "12l" else "joint-24l"
        has(jobs[f"energy_models/{text}-{depth}-{energy}"], preset=preset, init=init, recipe=recipe)
        has(jobs[f"energy_models/{text}-{depth}-{energy}"], train=f"o/negatives/{text}-joint-train-{depth}")
        has(jobs[f"negatives/{text}-joint-train-{depth}"], context_lengths="120")
        for held in ("valid", "test"):
            samples, energies = (
                f"o/negatives/{text}-{held}-samples-{depth}",
                f"o/energies/{text}-{held}-{depth}-{energy}",
            )
            others = f"o/models/{text}-ralm-{depth},o/models/{text}-balm-{depth}"
            job = jobs[f"bounds/{text}-{held}-{depth}-{energy}"]
            has(job, negatives=samples, energies=energies, language_model=others, samples_curve="")
    rows = {f"bounds/{text}-{held}-{depth}-{energy}" for text, depth, energy, *_ in MAIN for held in ("valid", "test")}
    assert rows == {job.name for job in named(jobs, "bounds") if "by-position" not in job.name}


def test_figure_of_positions(jobs):
    """BiT-Med and BiT-Large* on the 24-layer base model, 20,000 samples a position, and the exact last token."""
    job = jobs["negatives/news-by-position"]
    has(job, context_lengths="120-159", every_context_length="", negatives="20000", generator="o/models/news-base-24l")
    for energy in ("bit-med", "bit-large-star"):
        job = jobs[f"bounds/by-position-{energy}"]
        has(
            job,
            positions="",
            exact_windows="100",
            energy=f"o/models/news-24l-{energy}",
            generator="o/models/news-base-24l",
        )


def test_generation(jobs):
    """10,000 samples with k = 10 (sample_joint.py's default) for the 333 contexts of the human table and some more."""
    joint = {"12l-unit", "12l-bit-base", "12l-bit-large-star", "24l-bit-med", "24l-bit-large-star"}
    for name in joint:
        base = f"o/models/news-base-{name[:3]}"
        job = jobs[f"joint_samples/news-{name}"]
        has(job, samples="10000", limit="360", context_length="120", generator=base, windows="o/windows/news-test")
        assert "sampling" not in flags(job)


HUMAN = {  # rows of the table "Human evaluation results"
    "base-unit": ("news-base-12l:base", "news-12l-unit:chosen"),
    "base-bit-base": ("news-base-12l:base", "news-12l-bit-base:chosen"),
    "base-bit-large": ("news-base-12l:base", "news-12l-bit-large-star:chosen"),
    "base-balm": ("news-base-12l:base", "news-balm-12l:base"),
    "balm-unit": ("news-balm-12l:base", "news-12l-unit:chosen"),
    "balm-bit-base": ("news-balm-12l:base", "news-12l-bit-base:chosen"),
    "balm-bit-large": ("news-balm-12l:base", "news-12l-bit-large-star:chosen"),
    "balm-24l-bit-med": ("news-balm-24l:base", "news-24l-bit-med:chosen"),
    "bit-large-human": ("news-24l-bit-large-star:chosen", "news-24l-bit-large-star:real"),
}


def test_table_of_human_preferences(jobs):
    assert {job.name for job in named(jobs, "human")} == {f"human/{name}" for name in HUMAN}
    for name, (first, second) in HUMAN.items():
        a, b = (f"o/joint_samples/{one}" for one in (first, second))
        has(jobs[f"human/{name}"], a=a, b=b, gold="o/windows/news-test", items="333")
    for model in ("base-12l", "balm-12l", "balm-24l"):  # plain language models, with k = 10 too
        job = jobs[f"joint_samples/news-{model}"]
        has(job, generator=f"o/models/news-{model}", limit="360", context_length="120")
        assert not {"energy", "sampling"} & flags(job).keys()


def test_figures_and_analyses(jobs):
    for model in ("bilstm-small", "unit"):  # "Effect of prefix length"
        has(jobs[f"energy_models/wiki-every-prefix-{model}"], train="o/negatives/wiki-train-every-prefix", preset=model)
    both_models = "o/energies/wiki-some-prefixes-bilstm-small,o/energies/wiki-some-prefixes-unit"
    has(jobs["analyses/prefix-length"], energies=both_models)
    wiki = {"energy": "o/models/wiki-unit"}
    has(jobs["analyses/perturbations"], generator="o/models/wiki-1-prefix", windows="o/windows/wiki-test", **wiki)
    has(jobs["analyses/random-text"], store="o/negatives/wiki-test-prefix", **wiki)
    has(jobs["analyses/gradient-replacement"], generator="o/models/wiki-1-prefix", **wiki)
    has(jobs["analyses/ngrams"], samples="o/joint_samples/news-12l-bit-base")
    has(jobs["analyses/third-detector"], detector="o/models/all-bit", samples="o/joint_samples/news-24l-bit-med")
    has(jobs["analyses/densities"], negatives="o/negatives/news-test-samples-12l")
    has(jobs["analyses/repetition-next-token"], energy="o/models/news-12l-bit-base", generator="o/models/news-base-12l")
    assert "samples_curve" in flags(jobs["bounds/news-valid-12l-bit-base"])  # "Effect of number of samples"

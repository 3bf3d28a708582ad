"""Commands answer at once: help, and what is wrong with a flag, come before anything heavy is imported.

What counts are the modules that a fresh interpreter has loaded when the command ends, not seconds, which are the
machine's.
"""

import pytest

from studies.orchestration.console import commands
from tests.helpers.commands import ROOT
from tests.helpers.imports import watched

pytestmark = pytest.mark.slow  # a program for every command and every mistake
HEAVY = {
    "apache_beam",
    "arviz_stats",
    "datasets",
    "deepspeed",
    "fastapi",
    "huggingface_hub",
    "jinja2",
    "krippendorff",
    "lm_eval",
    "matplotlib",
    "pandas",
    "scipy",
    "sklearn",
    "snakemake",
    "torch",
    "transformers",
    "uvicorn",
    "vllm",
}
SCRIPTS = [str(path.relative_to(ROOT)) for path in commands().values()]


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_imports_nothing_heavy(script):
    ended, loaded = watched(script, "--help")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("usage:")
    assert sorted(loaded & HEAVY) == []


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_wrong_flag_is_said_in_one_line_before_anything_heavy_is_imported(script):
    ended, loaded = watched(script, "--no_such_flag")
    assert (ended.returncode, len(ended.stderr.splitlines())) == (2, 1), ended.stderr
    assert ended.stderr.startswith("error: ")
    assert sorted(loaded & HEAVY) == []


@pytest.mark.parametrize(
    ("script", "flags", "said"),
    [
        ("training/train_energy.py", "--train a --valid b --output c --preset bit", "--preset bit: there are linear"),
        ("training/train_energy.py", "--train a --valid b --output c --objective mse", "argument --objective"),
        ("training/train_lm.py", "--train a --valid b --output c --preset gpt", "--preset gpt: there are transf-small"),
        (
            "training/train_lm.py",
            "--train a --valid b --output c --preset conv --precision fp8",
            "argument --precision",
        ),
        ("training/plan_memory.py", "--preset gpt", "--preset gpt: there are transf-small"),
        ("evaluation/sample_joint.py", "--generator a --output b", "one of the arguments --windows --prompts"),
        ("evaluation/report.py", "--input a --output page.pdf", "--output page.pdf: a file whose name ends with"),
        (
            "evaluation/perplexity_bounds.py",
            "--negatives a --energies b --output c --exact_windows 3",
            "--exact_windows",
        ),
    ],
)
def test_a_wrong_value_too(script, flags, said):
    ended, loaded = watched(script, *flags.split())
    assert (ended.returncode, len(ended.stderr.splitlines())) == (2, 1), ended.stderr
    assert ended.stderr.startswith(f"error: {said}")
    assert sorted(loaded & HEAVY) == []

"""Commands that a report names exist, and are complete."""

import pytest

from evaluation.reporting.commands import FOLDER, analyses, usage


@pytest.mark.parametrize("script", ["score.py", "perplexity_bounds.py", "sample_joint.py", "detect.py", "report.py"])
def test_a_command_is_the_first_of_its_scripts_docstring(script):
    command = usage(script)
    assert command.startswith(f"python evaluation/{script} --")
    assert "\\" not in command
    assert usage(script, "--more").endswith(" --more")


def test_every_analysis_that_can_be_run_is_listed():
    runnable = {
        path.stem for path in (FOLDER / "analyses").glob("*.py") if '__name__ == "__main__"' in path.read_text("utf-8")
    }
    assert analyses().keys() == runnable
    assert all(f"python evaluation/analyses/{name}.py --" in command for name, command in analyses().items())

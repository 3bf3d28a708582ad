"""The packages' public faces: every name is there, and importing a package imports nothing heavy."""

import subprocess
import sys

import pytest

import evaluation
import pipeline
import training

HEAVY = ("torch", "transformers", "apache_beam", "vllm", "deepspeed", "pyarrow", "scipy", "matplotlib")


@pytest.mark.parametrize("package", [pipeline, training, evaluation])
def test_every_name_of_a_face_can_be_had(package):
    for name in package.__all__:
        assert getattr(package, name).__module__.startswith(package.__name__)
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'nothing'"):
        _ = package.nothing


def test_importing_the_packages_imports_nothing_heavy():
    script = "import sys, pipeline, training, evaluation, studies; print(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not set(HEAVY) & set(said)

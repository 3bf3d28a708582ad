"""Dataflow without a network: the job's graph as it would be submitted, and a submission to a stand-in of its service.

The stand-in answers what the real service answers and runs nothing; no worker can be had here.
"""

import http.server
import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pytest
from apache_beam.portability.api import beam_runner_api_pb2

from pipeline import make_windows, mine_negatives
from pipeline.runtime import files
from pipeline.runtime.errors import UserError
from tests.helpers.commands import free_port, run, serving
from tests.helpers.mining import save_generator

ACCELERATOR = "type:nvidia-l4;count:1;machine_type:g2-standard-8;install-nvidia-driver:5xx"
IMAGE = "registry.example/mining:0.1.0"
PLACE = ["--runner=DataflowRunner", "--project=project", "--region=us-central1", "--job_name=mine", "--no_auth"]
MACHINES = [
    f"--accelerator={ACCELERATOR}",
    "--machine_type=n2-standard-4",
    f"--sdk_container_image={IMAGE}",
    "--sdk_location=container",
    "--experiments=use_runner_v2,no_use_multiple_sdk_containers",
]


@pytest.fixture(scope="module")
def job(tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("dataflow")
    make_windows.main(f"--input builtin:sums:lines=50 --split train --output {folder}/windows".split())
    generator = save_generator(folder / "generator")
    return ["--windows", str(folder / "windows"), "--generator", generator, "--context_lengths=8", *PLACE, *MACHINES]


def read_pipeline(path: Path) -> beam_runner_api_pb2.Pipeline:
    pipeline = beam_runner_api_pb2.Pipeline()
    pipeline.ParseFromString(path.read_bytes())
    return pipeline


def environments_of(pipeline: beam_runner_api_pb2.Pipeline) -> dict[str, beam_runner_api_pb2.Environment]:
    """Of every step: where it runs, and what it asks for."""
    parts = pipeline.components
    return {
        transform.unique_name.removeprefix("Negatives/"): parts.environments[transform.environment_id]
        for transform in parts.transforms.values()
        if transform.environment_id and not transform.subtransforms
    }


def check_hints(environments: dict[str, beam_runner_api_pb2.Environment], step: str) -> None:
    """Only the step that runs a network asks for an accelerator, and for a machine that has one."""
    hint = "beam:resources:accelerator:v1"
    hinted = {name for name, environment in environments.items() if hint in environment.resource_hints}
    assert hinted == {step}
    assert environments[step].resource_hints[hint] == ACCELERATOR.encode()
    assert all(IMAGE.encode() in environment.payload for environment in environments.values())


def check_graph(pipeline: beam_runner_api_pb2.Pipeline) -> None:
    """Every stage is there, each in the image, and only the generating one asks for an accelerator."""
    environments = environments_of(pipeline)
    assert {"Look at the windows", "Shards", "Generate", "Read them again", "Finish"} <= environments.keys()
    check_hints(environments, "Generate")


def places_in(folder: Path) -> list[str]:
    """Where a job goes that is written down instead of being submitted."""
    for name in ("staging", "temp"):
        (folder / name).mkdir()
    places = [f"--template_location={folder}/job.json", f"--temp_location={folder}/temp"]
    return [*places, f"--staging_location={folder}/staging", "--dataflow_endpoint=http://localhost:1"]


def test_the_job_that_dataflow_would_get_is_whole(job, tmp_path, capsys):
    places = places_in(tmp_path)
    assert mine_negatives.main([*job, *places, f"--output={tmp_path}/store"]) == 0
    assert f"template {tmp_path}/job.json: written; nothing was run" in capsys.readouterr().out
    check_graph(read_pipeline(tmp_path / "staging/pipeline.pb"))
    template = json.loads((tmp_path / "job.json").read_text())
    pool = template["environment"]["workerPools"][0]
    assert pool["machineType"] == "n2-standard-4"  # of the steps that ask for no accelerator
    assert "no_use_multiple_sdk_containers" in template["environment"]["experiments"]
    assert {image["containerImage"] for image in pool["sdkHarnessContainerImages"]} == {IMAGE}


@pytest.mark.parametrize("lacking", ["project", "region", "sdk_container_image", "temp_location"])
def test_what_dataflow_needs_is_asked_for_before_anything_is_sent(job, tmp_path, lacking):
    places = [
        f"--temp_location={tmp_path}/temp",
        "--dataflow_endpoint=http://localhost:1",
        f"--output={tmp_path}/store",
    ]
    given = [word for word in [*job, *places] if not word.startswith(f"--{lacking}=")]
    with pytest.raises(UserError, match=f"--{lacking}: DataflowRunner needs it"):
        mine_negatives.main(given)
    assert not (tmp_path / "store").exists()


class Service(http.server.BaseHTTPRequestHandler):
    """Takes a job, and says that it is done."""

    jobs: ClassVar[list] = []

    def answer(self, content: dict) -> None:
        data = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.jobs.append((self.path, body))
        self.answer(body | {"id": "job-1", "currentState": "JOB_STATE_RUNNING"})

    def do_GET(self) -> None:
        self.answer({"id": "job-1", "currentState": "JOB_STATE_DONE", "jobMessages": [], "metrics": []})

    def log_message(self, *_: object) -> None:
        """Nothing: the test says what matters."""


@contextmanager
def service() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("localhost", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()


@pytest.mark.slow
def test_a_job_is_submitted_with_its_graph_in_the_bucket(job, tmp_path, monkeypatch):
    port = free_port()
    emulator = [str(Path(sys.executable).parent / "gcp-storage-emulator"), "start", f"--port={port}"]
    emulator += ["--host=localhost", "--default-bucket=bucket", "--in-memory"]
    with serving(emulator, port), service() as dataflow:
        places = [f"--dataflow_endpoint=http://localhost:{dataflow}", f"--output={tmp_path}/store"]
        places += ["--temp_location=gs://bucket/temp", "--staging_location=gs://bucket/staging"]
        environment = {"STORAGE_EMULATOR_HOST": f"http://localhost:{port}"}
        ended = run("pipeline/mine_negatives.py", *job, *places, env=os.environ | environment)
        assert ended.returncode == 1, ended.stderr  # the stand-in says that it is done, but there is no store
        assert "1 stores were not finished: run the same command again" in ended.stderr
        assert (
            "job job-1: https://console.cloud.google.com/dataflow/jobs/us-central1/job-1?project=project"
            in ended.stdout
        )
        monkeypatch.setenv("CLOUD_STORAGE_EMULATOR_ENDPOINT", f"http://localhost:{port}")
        url = Service.jobs[-1][1]["environment"]["sdkPipelineOptions"]["options"]["pipelineUrl"]
        (tmp_path / "pipeline.pb").write_bytes(files.read(url.replace("gs://", "gs://anonymous@")))
    check_graph(read_pipeline(tmp_path / "pipeline.pb"))
    ((path, body),) = [(path, body) for path, body in Service.jobs if path.endswith("/jobs") or "/jobs?" in path]
    assert "/projects/project/locations/us-central1/jobs" in path
    assert body["name"] == "mine"
    assert body["environment"]["workerPools"][0]["machineType"] == "n2-standard-4"

import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from evaluation import detect
from evaluation.detection.tfidf import train_tfidf
from pipeline.runtime.errors import UserError, exit_with
from schemas.results import DETECTIONS, TFIDF_SCORE
from tests.evaluation.detection.test_detector import by_hand
from tests.helpers.commands import DATA, ROOT, words

pytestmark = pytest.mark.usefixtures("one_thread")


def write(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(json.dumps({"id": 100 + place, "text": text}) + "\n" for place, text in enumerate(texts)))
    return path


def rows_of(output: Path) -> list[dict]:
    return pq.read_table(output).to_pylist()


def test_bad_texts_are_flagged_and_all_others_scored(text_models, tmp_path, capsys):
    good = [words(100, seed) for seed in range(3)]
    lines = [json.dumps({"id": "a", "text": good[0]}).encode(), b'{"text": "broken', b"", b'{"text": "caf\xe9"}']
    lines += [b'{"id": 70, "text": ""}', b"[1, 2]", b'{"id": 80, "body": "x"}', b'{"id": 90, "text": 5}']
    lines += [b'{"text": "half \\ud800"}', json.dumps({"text": good[1]}).encode()]
    (tmp_path / "some.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    (tmp_path / "good.txt").write_text(good[2])
    (tmp_path / "latin.txt").write_bytes("na\u00efve".encode("latin-1"))
    (tmp_path / "empty.txt").write_bytes(b"")
    output = tmp_path / "scores.parquet"
    arguments = ["--energy", text_models["linear"], "--input", f"{tmp_path}/*.txt", "--input", f"{tmp_path}/some.jsonl"]
    assert detect.main([*arguments, "--output", str(output)]) == 1
    assert "error: 9 of 12 texts have no score: see the column problem" in capsys.readouterr().err
    assert pq.read_schema(output).equals(DETECTIONS)
    rows = rows_of(output)
    found = {(Path(row["file"]).name, row["id"]): row for row in rows}
    assert len(found) == len(rows) == 12
    scored = {("good.txt", "good.txt"): good[2], ("some.jsonl", "a"): good[0], ("some.jsonl", "10"): good[1]}
    for key, text in scored.items():
        assert found[key]["score"] == pytest.approx(by_hand(text, text_models["linear"])[0], abs=1e-4)
        assert found[key]["problem"] is None
    problems = {key: row["problem"] for key, row in found.items() if key not in scored}
    expected = {
        "latin.txt": "invalid UTF-8 (see --encoding), at 2",
        "empty.txt": "no text",
        "2": "not JSON, at ",
        "4": "invalid UTF-8 (see --encoding), at ",
        "70": "no text",
        "6": "no text in field 'text' (it has: list; see --text_field), at ",
        "80": "no text in field 'text' (it has: id, body; see --text_field), at ",
        "90": "no text in field 'text' (it has: id, text; see --text_field), at ",
        "9": "invalid UTF-8 (a lone surrogate), at ",
    }
    assert {id for _, id in problems} == expected.keys()
    assert all(problem.startswith(expected[id]) for (_, id), problem in problems.items())
    assert all(found[key]["score"] is None and found[key]["probability"] is None for key in problems)


@pytest.mark.slow
def test_a_text_of_ten_megabytes_takes_little_memory(text_models, tmp_path):
    """With white space and without; beside it a text that is scored as ever."""
    texts = ["The whale is white. " * 500_000, "abcdefghij" * 1_000_000, words(100, 2)]
    measure = "resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10"
    code = (
        "import resource, sys, torch; from evaluation import detect; torch.set_num_threads(1)\n"
        "for name in ('short', 'long'):\n"
        "    given = [argument.replace('NAME', name) for argument in sys.argv[1:]]\n"
        f"    print('ended', detect.main(given), {measure})"
    )
    write(tmp_path / "short.jsonl", texts[2:])
    write(tmp_path / "long.jsonl", texts)
    given = [f"--energy={text_models['linear']}", f"--input={tmp_path}/NAME.jsonl", f"--output={tmp_path}/NAME.parquet"]
    ended = subprocess.run([sys.executable, "-c", code, *given], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    codes, peaks = zip(
        *(line.split()[1:] for line in ended.stdout.splitlines() if line.startswith("ended")), strict=True
    )
    assert codes == ("0", "0")
    assert int(peaks[1]) - int(peaks[0]) < 500  # megabytes; a tokenizer given the second text whole takes 1,500
    rows = rows_of(tmp_path / "long.parquet")
    assert all(row["tokens"] // 160 <= row["blocks"] <= row["tokens"] // 160 + 1 for row in rows)
    assert rows[2]["score"] == pytest.approx(by_hand(texts[2], text_models["linear"])[0], abs=1e-4)


def sets(tmp_path: Path) -> dict[str, Path]:
    """Real texts, and two kinds of generated ones: each prefers words of its own."""
    files = {}
    for name, favourites in {"real": (0, 1), "small": (2, 3), "large": (3, 4)}.items():
        for split, count in (("train", 60), ("valid", 40), ("test", 30)):
            rng = random.Random(f"{name} {split}")
            vocabulary = ["sea", "ship", "whale", "man", "tail", *(["old", "said", "no", "the", "a", "of"] * 2)]
            weights = [6 if place in favourites else 1 for place in range(len(vocabulary))]
            texts = [" ".join(rng.choices(vocabulary, weights, k=rng.randint(5, 300))) for _ in range(count)]
            files[f"{name}.{split}"] = write(tmp_path / f"{name}.{split}.jsonl", texts)
    return files


def texts_of(path: Path) -> list[str]:
    return [json.loads(line)["text"] for line in path.read_text().splitlines()]


def test_accuracy_is_that_of_scikit_learn_for_both_detectors(text_models, tmp_path, capsys):
    files = sets(tmp_path)
    output = tmp_path / "scores.parquet"
    given = ["--energy", text_models["bit-nano"], "--real", str(files["real.test"]), "--output", str(output)]
    given += [f"--generated={tmp_path}/small.test.jsonl", f"--generated={tmp_path}/large.test.jsonl"]
    for split in ("train", "valid"):
        given += [f"--tfidf_{split}", str(files[f"real.{split}"]), str(files[f"small.{split}"])]
    assert detect.main(given) == 0
    assert "balanced accuracy" in capsys.readouterr().out
    rows = pq.read_table(output)
    result = json.loads((tmp_path / "scores.json").read_text())
    assert rows.schema.equals(DETECTIONS.append(TFIDF_SCORE))
    metadata = json.loads(rows.schema.metadata[b"residual_ebm"])
    assert metadata["white_space"].startswith("every run of white space is one space")
    assert (metadata["block"], result["block"]) == (160, 160)
    assert [file["texts"] for file in result["files"]] == [30, 30, 30]
    baseline = train_tfidf(
        *(
            part
            for split in ("train", "valid")
            for real, generated in [(texts_of(files[f"real.{split}"]), texts_of(files[f"small.{split}"]))]
            for part in (real + generated, [1] * len(real) + [0] * len(generated))
        )
    )
    real = texts_of(files["real.test"])
    large, small = texts_of(files["large.test"]), texts_of(files["small.test"])
    assert np.allclose(rows["tfidf"].to_numpy(), baseline.score(real + large + small))  # sorted by name
    assert [(entry["detector"], Path(entry["generated"]).name) for entry in result["accuracy"]] == [
        (detector, name) for detector in ("energy", "tfidf") for name in ("large.test.jsonl", "small.test.jsonl", "all")
    ]
    for entry in result["accuracy"]:
        scores = rows["score" if entry["detector"] == "energy" else "tfidf"].to_numpy()
        chosen = np.array(
            [
                label == "real" or entry["generated"] in ("all", file)
                for label, file in zip(rows["label"].to_pylist(), rows["file"].to_pylist(), strict=True)
            ]
        )
        labels = np.array([label == "real" for label in rows["label"].to_pylist()])[chosen]
        scores = scores[chosen]
        assert entry["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(labels, scores > 0))
        assert entry["auroc"] == pytest.approx(roc_auc_score(labels, scores))
        low, high = entry["interval"]
        assert 0 <= low < entry["balanced_accuracy"] <= high <= 1
    tfidf = {Path(entry["generated"]).name: entry for entry in result["accuracy"] if entry["detector"] == "tfidf"}
    assert tfidf["small.test.jsonl"]["balanced_accuracy"] > 0.85


def test_what_cannot_work_is_one_line_and_exit_code_2(text_models, tmp_path, capsys):
    text = write(tmp_path / "texts.jsonl", ["a text"])
    good = {"energy": text_models["linear"], "input": str(text), "output": str(tmp_path / "scores.parquet")}
    cases = [
        ({"energy": str(tmp_path / "nowhere")}, "there is no such folder"),
        ({"input": str(tmp_path / "nothing*.jsonl")}, "--input .*: no file matches"),
        ({"real": str(tmp_path / "nothing.jsonl")}, "--real .*: no file matches"),
        ({"real": str(text)}, "it is among the texts of --real too"),
        ({"output": str(tmp_path / "scores.csv")}, "whose name ends with .parquet"),
        ({"block": "0"}, "--block 0: at least 1"),
        ({"batch_size": "0"}, "--batch_size 0: at least 1"),
    ]
    for change, message in cases:
        with pytest.raises(UserError, match=message):
            detect.main([f"--{name}={value}" for name, value in (good | change).items()])
        assert not (tmp_path / "scores.parquet").exists()
    with pytest.raises(UserError, match="--tfidf_train, --tfidf_valid: give both"):
        detect.main([*(f"--{name}={value}" for name, value in good.items()), "--tfidf_train", str(text), str(text)])
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        exit_with(lambda: detect.main([f"--{name}={value}" for name, value in (good | cases[1][0]).items()]))
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.skipif(not (DATA / "wild-gpt2").is_dir(), reason="the published texts are not here")
def test_files_as_openai_published_them(text_models, tmp_path):
    folder, output = DATA / "wild-gpt2", tmp_path / "scores.parquet"
    given = ["--real", str(folder / "webtext.test.jsonl"), "--generated", str(folder / "small-117M-k40.test.jsonl")]
    assert detect.main(["--energy", text_models["linear"], *given, "--output", str(output)]) == 0
    rows = rows_of(output)
    lines = [json.loads(line) for line in (folder / "webtext.test.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows[: len(lines)]] == [str(line["id"]) for line in lines]
    assert all(row["problem"] is None for row in rows)

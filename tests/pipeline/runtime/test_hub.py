"""The hub as a filesystem, against a stand-in for it: what is there, what is not, and what cannot be reached."""

import pytest
from huggingface_hub import CommitOperationAdd, HfApi

from pipeline.runtime import files
from pipeline.runtime.errors import UserError
from pipeline.runtime.hub_upload import DATA_SET, Upload
from tests.helpers.commands import free_port
from tests.helpers.hub import READER, TOKEN, hub_here, talking_to

FILES = {"manifest.json": b"{}", "shards/a.parquet": bytes(range(256)) * 9, "shards/b.parquet": b"b"}
PLACE = "hf://datasets/user/set"


@pytest.fixture
def hub(tmp_path):
    with hub_here() as hub, talking_to(hub, tmp_path):
        yield hub


def upload(contents: dict[str, bytes], **settings: bool) -> str:
    return Upload("user/set", DATA_SET, contents, lambda name: name.startswith("shards/")).send(
        settings.get("private", False), "Upload"
    )


def test_files_on_the_hub_are_read_as_anywhere(hub):
    upload(FILES)
    assert files.names_in(PLACE) == [".gitattributes", "manifest.json", "shards"]
    assert files.names_below(f"{PLACE}/shards") == ["a.parquet", "b.parquet"]
    assert files.names_in(f"{PLACE}/nothing") == []
    assert files.read(f"{PLACE}/shards/a.parquet") == FILES["shards/a.parquet"]
    assert files.info(f"{PLACE}/shards/a.parquet").size == 9 * 256
    assert not files.exists(f"{PLACE}/shards/c.parquet")
    with files.open_random(f"{PLACE}/shards/a.parquet") as file:
        file.seek(250)
        assert file.read(8) == bytes([250, 251, 252, 253, 254, 255, 0, 1])


def test_a_revision_is_read_as_it_was(hub):
    first = upload(FILES).rsplit("/", 1)[1]
    upload(FILES | {"manifest.json": b"{'other'}"})
    assert files.read(f"{PLACE}@{first}/manifest.json") == b"{}"
    assert files.read(f"{PLACE}/manifest.json") == b"{'other'}"
    with pytest.raises(UserError, match="no such revision: check what follows the @"):
        files.read(f"{PLACE}@{'0' * 40}/manifest.json")


def test_what_an_earlier_upload_left_goes_and_all_else_stays(hub):
    upload(FILES)
    api = HfApi()
    api.create_commit("user/set", [CommitOperationAdd("LICENSE", b"mine")], repo_type="dataset", commit_message="mine")
    upload({name: data for name, data in FILES.items() if name != "shards/b.parquet"})
    there = hub.of("user/set", "dataset")
    assert sorted(there.files) == [".gitattributes", "LICENSE", "manifest.json", "shards/a.parquet"]
    upload({name: data for name, data in FILES.items() if name != "shards/b.parquet"})
    assert len(there.commits) == 4  # the first, ours, theirs, ours: nothing new makes no commit


def test_a_killed_upload_sends_the_rest(hub):
    hub.fails = 1
    with pytest.raises(UserError, match=r"user/set: the hub answers with 400"):
        upload(FILES)
    assert sorted(hub.of("user/set", "dataset").files) == [".gitattributes"]  # nothing, not a part
    sent = len(hub.large)
    hub.asked.clear()
    upload(FILES)
    assert sum(method == "PUT" for method, *_ in hub.asked) == 2 - sent
    assert FILES.items() <= hub.of("user/set", "dataset").files.items()


def test_what_somebody_else_sends_meanwhile_is_not_undone(hub, monkeypatch):
    upload(FILES)
    looked = HfApi.list_repo_files

    def look_and_wait(*given, **named):
        found = looked(*given, **named)
        hub.of("user/set", "dataset").commit({"theirs": b""}, "theirs")
        return found

    monkeypatch.setattr(HfApi, "list_repo_files", look_and_wait)
    with pytest.raises(UserError, match=r"^user/set: somebody else wrote there at the same time .*: run the same"):
        upload({"mine": b""})
    assert hub.of("user/set", "dataset").files == {"theirs": b""}


def test_the_hub_is_not_written_file_by_file(hub):
    upload(FILES)
    for write in (lambda: files.put(f"{PLACE}/x", b""), lambda: files.remove(f"{PLACE}/manifest.json")):
        with pytest.raises(UserError, match=r"hf://.*: the hub is not written file by file: write to a folder, then"):
            write()
    assert "x" not in hub.of("user/set", "dataset").files


def test_what_is_wrong_is_said_in_a_line_with_the_way_out(hub, tmp_path):
    with pytest.raises(UserError, match=r"^hf://datasets/user/none/x: the hub has no such repository"):
        files.read("hf://datasets/user/none/x")
    with pytest.raises(UserError, match="hf://datasets/user: "):
        files.read("hf://datasets/user")
    upload(FILES, private=True)
    with talking_to(hub, tmp_path, None):
        with pytest.raises(UserError, match=r"or it is private: check the name, or log in with `hf auth login`"):
            files.read(f"{PLACE}/manifest.json")
        with pytest.raises(UserError, match=r"^user/set: no token of the hub is known"):
            upload(FILES)
    with (
        talking_to(hub, tmp_path, READER),
        pytest.raises(UserError, match="the token has no leave for this"),
    ):
        upload({"manifest.json": b"other"})
    with talking_to(hub, tmp_path, "hf_somebodyelses"), pytest.raises(UserError, match="does not accept the token"):
        upload({"manifest.json": b"other"})
    hub.repositories["dataset", "user/set"].private = False
    with pytest.raises(UserError, match=r"--private: user/set is there and is public: make it private on its page"):
        upload(FILES, private=True)


def test_a_hub_that_does_not_answer_is_named(hub, tmp_path):
    hub.address = f"http://127.0.0.1:{free_port()}"
    with talking_to(hub, tmp_path):
        for try_it in (lambda: files.read(f"{PLACE}/manifest.json"), lambda: upload(FILES)):
            with pytest.raises(UserError, match=rf"{hub.address} does not answer .*: check the network"):
                try_it()


def test_a_token_in_a_file_stays_here(hub):
    for secret in (TOKEN.encode(), b"hf_" + b"a" * 30):
        with pytest.raises(UserError, match=r"^manifest.json: there is a token of the hub in it: nothing was sent"):
            upload(FILES | {"manifest.json": b'{"command": "--token ' + secret + b'"}'})
    assert hub.repositories == {}

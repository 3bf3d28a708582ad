import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.runtime import files
from pipeline.runtime.errors import UserError


@pytest.fixture(params=["local", "memory", "file"])
def folder(request, tmp_path):
    return {"local": str(tmp_path), "memory": f"memory://{tmp_path.name}", "file": f"file://{tmp_path}"}[request.param]


def test_put_read_list_and_remove_are_the_same_everywhere(folder):
    files.put(files.join(folder, "a", "x.bin"), b"one")
    files.put(files.join(folder, "a", "x.bin"), b"two")
    files.put(files.join(folder, "b", "y.bin"), b"3")
    assert files.read(files.join(folder, "a", "x.bin")) == b"two"
    assert files.names_in(folder) == ["a", "b"]
    assert files.names_in(files.join(folder, "a")) == ["x.bin"]
    found = files.glob(files.join(folder, "*", "[xy].bin"))
    assert [files.read(url) for url in found] == [b"two", b"3"]
    assert files.glob(files.join(folder, "a", "x.bin")) == [files.join(folder, "a", "x.bin")]
    assert files.glob(files.join(folder, "a")) == []
    with files.open_random(files.join(folder, "a", "x.bin")) as file:
        file.seek(1)
        assert file.read() == b"wo"
    files.remove(files.join(folder, "a"))
    files.remove(files.join(folder, "nothing"))
    assert not files.exists(files.join(folder, "a", "x.bin"))
    assert files.names_in(files.join(folder, "a")) == []


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    target = tmp_path / "x.bin"
    files.put(str(target), b"old")
    limited = (
        "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"  # the operating system refuses larger files
        f"from pipeline.runtime import files; files.put({str(target)!r}, b'n' * 5000)"
    )
    ended = subprocess.run([sys.executable, "-c", limited], capture_output=True, text=True)
    assert "File too large" in ended.stderr
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["x.bin"]


def test_what_killed_writers_left_is_removed_and_nothing_else(tmp_path):
    (tmp_path / "shards").mkdir()
    left, kept = tmp_path / "shards" / ".00001.parquet.ab12.tmp", tmp_path / "shards" / "00000.parquet"
    left.write_bytes(b"half")
    kept.write_bytes(b"whole")
    files.remove_temporaries(str(tmp_path))
    assert kept.exists()
    assert not left.exists()


def test_a_url_of_no_filesystem_is_named():
    with pytest.raises(UserError, match="nosuch://x/y: no filesystem"):
        files.resolve("nosuch://x/y")


def test_paths_are_joined_as_urls_and_as_paths():
    assert files.join("gs://bucket/a/", "b", "c") == "gs://bucket/a/b/c"
    assert files.join(str(Path("/")), "b") == "/b"


def test_a_folder_is_copied_with_all_that_is_in_it(tmp_path):
    (tmp_path / "here/in/side").mkdir(parents=True)
    contents = {"a.bin": b"\0" * 100_000, "in/side/b.gz": b"not compressed, whatever its name", "in/empty": b""}
    for name, content in contents.items():
        (tmp_path / "here" / name).write_bytes(content)
    files.copy_folder(str(tmp_path / "here"), "memory://copies/there")
    files.copy_folder("memory://copies/there", str(tmp_path / "back"))
    assert files.names_below("memory://copies/there") == sorted(contents)
    assert {name: (tmp_path / "back" / name).read_bytes() for name in contents} == contents
    files.copy_folder(str(tmp_path / "nowhere"), str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()
    files.remove("memory://copies")


def test_links_are_never_followed_when_something_is_removed(tmp_path):
    precious, store = tmp_path / "precious", tmp_path / "store"
    for folder in (precious / "inner", store / "deep"):
        folder.mkdir(parents=True)
    for name in ("diary.txt", "inner/.x.1.tmp"):
        (precious / name).write_text("mine")
    for link in (store / "shards", store / "deep/link"):
        link.symlink_to(precious)
    files.remove_temporaries(str(store))
    for way in (["shards", "diary.txt"], ["shards", "inner"], ["deep/link/inner"]):
        with pytest.raises(UserError, match=rf"a link to {precious}, where nothing is removed: remove the link first"):
            files.remove(str(store), *way)
    with pytest.raises(UserError, match=r"it does not lie in .*store, and is not removed"):
        files.remove(str(store), "../precious/diary.txt")
    files.remove(str(store), "shards")  # the link itself
    assert not os.path.lexists(store / "shards")
    files.remove(str(store), "deep")  # and one in a folder
    assert sorted(os.listdir(store)) == []
    assert (precious / "diary.txt").read_text() == (precious / "inner/.x.1.tmp").read_text() == "mine"

"""A stand-in for the hub on this machine: what its own client asks of it, over HTTP, tokens and privacy included.

It keeps commits in memory and refuses what the hub refuses: a commit on top of another one than the last, large files
that were not sent before, a page whose head is no YAML, anybody without a token.
"""

import base64
import hashlib
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
import yaml
from huggingface_hub import constants

TOKEN = "hf_" + "TheTokenOfThisTest" * 2
READER = "hf_" + "MayOnlyReadInThisTest" * 2
LARGE = (".parquet", ".safetensors")


@dataclass
class Repository:
    private: bool
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)  # oldest first
    messages: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.commit({".gitattributes": b"*.parquet filter=lfs\n"}, "initial commit")

    @property
    def head(self) -> str:
        return list(self.commits)[-1]

    @property
    def files(self) -> dict[str, bytes]:
        return self.commits[self.head]

    def commit(self, files: dict[str, bytes], message: str) -> str:
        self.messages.append(message)
        name = hashlib.sha1(f"{len(self.commits)} {message}".encode()).hexdigest()
        self.commits[name] = files
        return name


@dataclass
class Hub:
    """What is there, and every request that came: its method, path, and whether with which token."""

    address: str = ""
    repositories: dict[tuple[str, str], Repository] = field(default_factory=dict)
    large: dict[str, bytes] = field(default_factory=dict)
    asked: list[tuple[str, str, str | None]] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)
    fails: int = 0  # so many of the next uploads of large files

    def of(self, name: str, kind: str = "model") -> Repository:
        return self.repositories[kind, name]


class Refused(Exception):
    def __init__(self, status: int, code: str = "", message: str = ""):
        self.status, self.code, self.message = status, code, message


def blob_of(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def entry(path: str, data: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "file", "path": path, "size": len(data), "oid": blob_of(data)}
    if path.endswith(LARGE):
        found["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
    return found


def tree(files: dict[str, bytes], folder: str, recursive: bool) -> list[dict[str, Any]]:
    prefix = f"{folder}/" if folder else ""
    inside = sorted(path for path in files if path.startswith(prefix))
    if not inside and folder:
        raise Refused(404, "EntryNotFound", f"{folder} does not exist")
    found: dict[str, dict[str, Any]] = {}
    for path in inside:
        parts = path.removeprefix(prefix).split("/")
        for depth in range(1, len(parts) if recursive else min(2, len(parts))):
            inner = prefix + "/".join(parts[:depth])
            found[inner] = {"type": "directory", "path": inner, "size": 0, "oid": blob_of(inner.encode())}
        if recursive or len(parts) == 1:
            found[path] = entry(path, files[path])
    return list(found.values())


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.answer()

    do_HEAD = do_POST = do_PUT = do_GET

    @property
    def token(self) -> str | None:
        return (self.headers.get("Authorization") or "").removeprefix("Bearer ") or None

    def answer(self) -> None:
        url = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(length) if length else self.chunked()
        self.query = {name: values[0] for name, values in parse_qs(url.query).items()}
        with self.hub.lock:
            self.hub.asked.append((self.command, url.path, self.token))
            try:
                self.route(unquote(url.path))
            except Refused as error:
                headers = {"X-Error-Code": error.code, "X-Error-Message": error.message}
                self.say({"error": error.message}, error.status, headers)

    def chunked(self) -> bytes:
        data = b""
        while self.headers.get("Transfer-Encoding") == "chunked" and (size := int(self.rfile.readline(), 16)):
            data += self.rfile.read(size)
            self.rfile.readline()
        if self.headers.get("Transfer-Encoding") == "chunked":
            self.rfile.readline()
        return data

    def route(self, path: str) -> None:
        if self.token not in (None, TOKEN, READER):
            raise Refused(401, "", "Invalid credentials in Authorization header")
        if path == "/api/repos/create":
            return self.create(self.json)
        if path == "/api/validate-yaml":
            return self.validate(self.json["content"])
        if found := re.fullmatch(r"/large/(\w{64})", path):
            return self.store_large(found[1])
        if found := re.fullmatch(r"/(datasets/)?([\w.-]+/[\w.-]+)\.git/info/lfs/objects/batch", path):
            return self.batch(self.json["objects"])
        if found := re.fullmatch(r"/(datasets/)?([\w.-]+/[\w.-]+)/resolve/([^/]+)/(.+)", path):
            return self.resolve(*self.state("dataset" if found[1] else "model", found[2], found[3]), found[4])
        if found := re.fullmatch(r"/api/(model|dataset)s/([\w.-]+/[\w.-]+)(?:/(\S+?)/([^/]+)(?:/(.*))?)?", path):
            return self.api(found[1], found[2], found[3] or "revision", found[4] or "main", found[5] or "")
        raise Refused(404, "", f"this stand-in does not know {path}")

    def api(self, kind: str, name: str, action: str, revision: str, rest: str) -> None:
        repository, commit = self.state(kind, name, revision)
        files = repository.commits[commit]
        match action:
            case "revision":
                siblings = [{"rfilename": path} for path in files]
                self.say({"id": name, "sha": commit, "private": repository.private, "siblings": siblings, "tags": []})
            case "tree":
                self.say(tree(files, rest, self.query.get("recursive", "").lower() in ("true", "1")))
            case "paths-info":
                wanted = parse_qs(self.body.decode()).get("paths", [])
                self.say([entry(path, files[path]) for path in wanted if path in files])
            case "preupload":
                self.may_write()
                self.say({"files": [self.mode(one["path"], files) for one in self.json["files"]]})
            case "commit":
                self.may_write()
                self.commit(repository, name)
            case _:
                raise Refused(404, "", f"this stand-in does not know {action}")

    def state(self, kind: str, name: str, revision: str) -> tuple[Repository, str]:
        repository = self.hub.repositories.get((kind, name))
        if repository is None or (repository.private and self.token is None):
            raise Refused(404 if self.token else 401, "RepoNotFound", "Repository not found")
        commit = repository.head if revision == "main" else revision
        if commit not in repository.commits:
            raise Refused(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return repository, commit

    def may_write(self) -> None:
        if self.token is None:
            raise Refused(401, "", "Invalid username or password.")
        if self.token == READER:
            raise Refused(403, "", "you need write access")

    def create(self, asked: dict[str, Any]) -> None:
        self.may_write()
        name = f"{asked.get('organization') or 'user'}/{asked['name']}"
        key = (asked.get("type") or "model", name)
        address = f"{self.hub.address}/{'datasets/' if key[0] == 'dataset' else ''}{name}"
        if key in self.hub.repositories:
            self.say({"error": "You already created this repo", "url": address}, 409)
        else:
            self.hub.repositories[key] = Repository(asked.get("visibility") == "private")
            self.say({"url": address})

    def validate(self, page: str) -> None:
        try:
            head = yaml.safe_load(page.split("---\n")[1])
        except (yaml.YAMLError, IndexError) as error:
            head, said = None, str(error)
        else:
            said = f"license {head.get('license')} is none of ours"
        if not isinstance(head, dict) or head.get("license") == "none-such":
            self.say({"errors": [{"message": said}], "warnings": []}, 400)
        else:
            self.say({"errors": [], "warnings": []})

    def mode(self, path: str, files: dict[str, bytes]) -> dict[str, Any]:
        found: dict[str, Any] = {"path": path, "uploadMode": "lfs" if path.endswith(LARGE) else "regular"}
        if path in files:
            found["oid"] = entry(path, files[path]).get("lfs", {}).get("oid") or blob_of(files[path])
        return found | {"shouldIgnore": False}

    def batch(self, objects: list[dict[str, Any]]) -> None:
        self.may_write()
        for one in objects:
            if one["oid"] not in self.hub.large:
                one["actions"] = {"upload": {"href": f"{self.hub.address}/large/{one['oid']}"}}
        self.say({"transfer": "basic", "objects": objects})

    def store_large(self, digest: str) -> None:
        if self.hub.fails:
            self.hub.fails -= 1
            raise Refused(400, "", "the connection was lost")
        if hashlib.sha256(self.body).hexdigest() != digest:
            raise Refused(400, "", "other bytes than were promised")
        self.hub.large[digest] = self.body
        self.say({})

    def commit(self, repository: Repository, name: str) -> None:
        files = dict(repository.files)
        lines = [json.loads(line) for line in self.body.splitlines()]
        header = next(line["value"] for line in lines if line["key"] == "header")
        if header.get("parentCommit") not in (None, repository.head):
            raise Refused(412, "", "A commit has happened since. Please refresh and try again.")
        for line in lines:
            value = line["value"]
            match line["key"]:
                case "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                case "lfsFile" if value["oid"] in self.hub.large:
                    files[value["path"]] = self.hub.large[value["oid"]]
                case "lfsFile":
                    raise Refused(400, "", f"{value['path']} was not uploaded")
                case "deletedFile":
                    del files[value["path"]]
        commit = repository.commit(files, header["summary"])
        self.say({"commitUrl": f"{self.hub.address}/{name}/commit/{commit}", "commitOid": commit})

    def resolve(self, repository: Repository, commit: str, path: str) -> None:
        if path not in (files := repository.commits[commit]):
            raise Refused(404, "EntryNotFound", f"{path} does not exist")
        data, status, headers = files[path], 200, {"X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        headers["ETag"] = f'"{entry(path, data).get("lfs", {}).get("oid") or blob_of(data)}"'
        if found := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or ""):
            start, end = int(found[1]), min(int(found[2] or len(data) - 1), len(data) - 1)
            if start >= len(data):
                raise Refused(416, "", "Range Not Satisfiable")
            headers["Content-Range"] = f"bytes {start}-{end}/{len(data)}"
            data, status = data[start : end + 1], 206
        self.send(data, status, headers)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def say(self, content: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.send(json.dumps(content).encode(), status, {"Content-Type": "application/json"} | (headers or {}))

    def send(self, data: bytes, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if value:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


@contextmanager
def hub_here() -> Iterator[Hub]:
    """A hub of its own, empty, until the block ends."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("HubHandler", (Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def talking_to(hub: Hub, folder: Path, token: str | None = TOKEN) -> Iterator[dict[str, str]]:
    """This process's client asks this hub, and keeps what it reads in a folder; the same, for other processes."""
    environment = {"HF_ENDPOINT": hub.address, "HF_HOME": str(folder / "home"), "HF_HUB_DISABLE_XET": "1"}
    environment |= {"HF_HUB_OFFLINE": "0"} | ({"HF_TOKEN": token} if token else {})
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
            patch.delenv(name, raising=False)
        for name, value in environment.items():
            patch.setenv(name, value)
        known = {"ENDPOINT": hub.address, "HF_HUB_OFFLINE": False, "HF_HUB_DISABLE_XET": True}
        known["HUGGINGFACE_CO_URL_TEMPLATE"] = hub.address + "/{repo_id}/resolve/{revision}/{filename}"
        known |= {"HF_HUB_CACHE": str(folder / "home/hub"), "HF_TOKEN_PATH": str(folder / "home/token")}
        for name, value in known.items():
            patch.setattr(constants, name, value)
        if "datasets" in sys.modules:  # takes seconds to import, and most of these tests need none
            patch.setattr(sys.modules["datasets"].config, "HF_ENDPOINT", hub.address)
        if "transformers.utils.hub" in sys.modules:  # it remembers the hub that it asked first
            patch.setattr(sys.modules["transformers.utils.hub"], "_hf_api", None)
        yield environment

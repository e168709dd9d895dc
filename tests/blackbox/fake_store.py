"""A folder as a bucket of an object store, for tests.

    python fake_store.py FOLDER [--bucket bucket] [--page 1000] [--fail-first 0] [--cut-after 0]

prints the port that it listens on, and then answers what S3 and the XML API of Google Cloud Storage answer
to readers: lists (of any number of pages), HEAD, and GET with Range and If-Match. Point readers at it with

    STORAGE_EMULATOR_HOST=http://127.0.0.1:PORT                                         (gs://bucket/...)
    AWS_ENDPOINT_URL=http://127.0.0.1:PORT AWS_ALLOW_HTTP=true AWS_SKIP_SIGNATURE=true  (s3://bucket/...)

It ends with its standard input, so that it cannot outlive the test that started it.
"""

import argparse
import os
import re
import sys
import threading
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


def keys(folder):
    """The names of all objects, sorted as stores sort them."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return sorted((path.relative_to(folder).as_posix() for path in files), key=str.encode)


def tag(path):
    """Something that changes when the file does."""
    found = path.stat()
    return f'"{found.st_mtime_ns:x}-{found.st_size:x}"'


def error(code):
    return f"<Error><Code>{code}</Code><Message>The test store says so</Message></Error>".encode()


class Store(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, options):
        super().__init__(("127.0.0.1", 0), Handler)
        self.options = options
        self.failures = options.fail_first
        self.cuts = 1 if options.cut_after else 0
        self.lock = threading.Lock()

    def handle_error(self, request, client_address):
        """Readers may go away in the middle of an answer."""

    def take(self, what):
        """Whether one more of a fault is due."""
        with self.lock:
            left = getattr(self, what)
            setattr(self, what, max(left - 1, 0))
            return left > 0


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # The head and the body are written one after the other.
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def do_GET(self):
        options = self.server.options
        url = urlsplit(self.path)
        bucket, _, key = unquote(url.path).lstrip("/").partition("/")
        if self.server.take("failures"):
            return self.answer(503, error("SlowDown"))
        if bucket != options.bucket:
            return self.answer(404, error("NoSuchBucket"))
        if not key:
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            return self.answer(200, self.list(query))
        path = options.folder / key
        if ".." in Path(key).parts or not path.is_file():
            return self.answer(404, error("NoSuchKey"))
        return self.object(path)

    do_HEAD = do_GET

    def list(self, query):
        folder = self.server.options.folder
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
        entries = {}
        for key in keys(folder):
            rest = key.removeprefix(prefix)
            if not key.startswith(prefix):
                continue
            if delimiter and delimiter in rest:
                name = prefix + rest.partition(delimiter)[0] + delimiter
                entries[name] = f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
                continue
            found = (folder / key).stat()
            entries[key] = (
                f"<Contents><Key>{escape(key)}</Key><Size>{found.st_size}</Size>"
                f"<ETag>{escape(tag(folder / key))}</ETag>"
                f"<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            )
        after = query.get("continuation-token", "")
        names = [name for name in sorted(entries, key=str.encode) if name.encode() > after.encode()]
        page = names[: self.server.options.page]
        text = "".join(entries[name] for name in page)
        if len(page) < len(names):
            text += f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>"
        return f"<?xml version='1.0'?><ListBucketResult>{text}</ListBucketResult>".encode()

    def object(self, path):
        wanted = self.headers.get("If-Match")
        if wanted and wanted != tag(path):
            return self.answer(412, error("PreconditionFailed"))
        headers = {"ETag": tag(path), "Last-Modified": formatdate(path.stat().st_mtime, usegmt=True)}
        content = path.read_bytes()
        size, status = len(content), 200
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if asked:
            first, last = asked.groups()
            start = int(first) if first else max(size - int(last), 0)
            end = min(int(last) + 1, size) if first and last else size
            if start >= end:
                return self.answer(416, error("InvalidRange"))
            content, status = content[start:end], 206
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        return self.answer(status, content, headers)

    def answer(self, status, content, headers=()):
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        cut = self.server.options.cut_after
        if status == 206 and len(content) > cut > 0 and self.server.take("cuts"):
            content = content[:cut]
            self.close_connection = True
        self.wfile.write(content)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--bucket", default="bucket")
    parser.add_argument("--page", type=int, default=1000, help="entries of one page of a list")
    parser.add_argument("--fail-first", type=int, default=0, help="answer so many requests with 503 at first")
    parser.add_argument(
        "--cut-after", type=int, default=0, help="break the first long answer off after so much"
    )
    store = Store(parser.parse_args())
    print(store.server_port, flush=True)
    threading.Thread(target=store.serve_forever, daemon=True).start()
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()

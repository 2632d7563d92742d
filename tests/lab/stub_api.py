"""A stand-in for the Messages API: answers the real CLI as its prompt directs, and logs what it was sent.

Promises: runs on loopback inside a network namespace of its own (it brings loopback up), says `ready` on
stdout, and ends when its stdin is closed, so that it never outlives the test run. The last prompt of a
request holds the script, one directive a line; each answer takes one step, tool results lead to the next:

    @@say TEXT                   answers TEXT
    @@fill BYTES                 answers that many bytes of text
    @@tool NAME {json}           asks for one tool call
    @@pair TEXT ||| NAME {json}  one message: a text block and the same tool call twice, in parallel
    @@recall                     answers what it was shown: "HIST messages=… prompts=… words=…"
    @@sleep SECONDS              waits before the step that follows

A prompt without a directive is answered as by @@recall. Every `WORD=xyz` in the messages is noted: the words
prove what history the CLI sent. Each request is one JSON line of the log.

Refuses: everything but what the CLI asks on its way through a turn; other paths get 404 and are logged too.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import re
import socket
import struct
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PORT = 8787
"""Fixed: the namespace is the lab's own, so nobody else can hold it."""

DIRECTIVE = re.compile(r"@@(say|fill|tool|pair|recall|sleep)\b[ \t]*(.*)")
CALL = re.compile(r"(\S+)\s*(\{.*\})?\s*")
WORD = re.compile(r"\bWORD=(\w+)")
FILLER = "All work and no play makes a long transcript. "

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request of the CLI, reduced to what a test asks about."""

    session: str | None
    """The session that the CLI says it speaks for."""
    tools: int
    messages: int
    prompts: int
    """User messages that are not tool results."""
    words: tuple[str, ...]
    """Every WORD=… of every message, in order."""
    text: str
    """All text of all messages, tool results included; neither system prompt nor tool descriptions."""


@dataclass(frozen=True, slots=True)
class Answer:
    blocks: tuple[Json, ...]
    wait_s: float = 0.0

    @property
    def stop_reason(self) -> str:
        return "tool_use" if any(block["type"] == "tool_use" for block in self.blocks) else "end_turn"


def text_of(content: object) -> str:
    """All text of a message's content, tool results included."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = []
    for block in content:
        if block.get("type") == "text":
            parts.append(str(block.get("text", "")))
        elif block.get("type") == "tool_result":
            parts.append(text_of(block.get("content")))
    return "\n".join(parts)


def holds_tool_result(message: Json) -> bool:
    content = message.get("content")
    return isinstance(content, list) and any(block.get("type") == "tool_result" for block in content)


def typed_text(message: Json) -> str:
    """What a user message says by itself, without the tool results in it and the CLI's own reminders."""
    content = message.get("content")
    blocks = [content] if isinstance(content, str) else [b.get("text", "") for b in content or []]
    return "\n".join(text for text in blocks if not text.lstrip().startswith("<system-reminder>"))


def asked(body: Json, session: str | None) -> Asked:
    """Reduce a request's body."""
    messages: list[Json] = body.get("messages", [])
    text = "\n".join(text_of(message.get("content")) for message in messages)
    prompts = sum(1 for m in messages if m.get("role") == "user" and not holds_tool_result(m))
    words = tuple(WORD.findall(text))
    return Asked(session, len(body.get("tools") or ()), len(messages), prompts, words, text)


def steps_of(text: str) -> list[tuple[float, str, str]]:
    """The script in a prompt: (seconds to wait, directive, argument) a step."""
    steps, wait_s = [], 0.0
    for line in text.splitlines():
        found = DIRECTIVE.search(line)
        if found is None:
            continue
        if found[1] == "sleep":
            wait_s += float(found[2])
        else:
            steps.append((wait_s, found[1], found[2].strip()))
            wait_s = 0.0
    return steps


def answer(body: Json, seen: Asked) -> Answer:
    """What the script says to this request."""
    if "create a detailed summary" in typed_text((body.get("messages") or [{}])[-1]):
        return _say(f"<summary>Stub summary of {len(seen.words)} words.</summary>")
    if not seen.tools and (body.get("output_config") or {}).get("format"):
        return _say(json.dumps({"title": "Stub title"}))
    recall = f"HIST messages={seen.messages} prompts={seen.prompts} words={','.join(seen.words)}"
    done = 0
    for message in reversed(body.get("messages", [])):
        if message.get("role") == "assistant":
            done += 1
        elif message.get("role") == "user" and (prompt := typed_text(message)).strip():
            steps = steps_of(prompt)
            break
    else:
        steps = []
    if done >= len(steps):
        return _say(recall)
    wait_s, verb, argument = steps[done]
    if verb == "say":
        return _say(argument, wait_s)
    if verb == "fill":
        size = int(argument)
        return _say((FILLER * (size // len(FILLER) + 1))[:size], wait_s)
    if verb == "tool":
        return Answer((_call(argument),), wait_s)
    if verb == "pair":
        text, _, call = argument.partition("|||")
        return Answer(({"type": "text", "text": text.strip()}, _call(call), _call(call)), wait_s)
    return _say(recall, wait_s)


def _say(text: str, wait_s: float = 0.0) -> Answer:
    return Answer(({"type": "text", "text": text},), wait_s)


def _call(argument: str) -> Json:
    found = CALL.fullmatch(argument.strip())
    if found is None:
        return {"type": "text", "text": f"no tool call: {argument[:80]}"}
    tool_input = json.loads(found[2] or "{}")
    return {"type": "tool_use", "id": f"toolu_{uuid.uuid4().hex[:22]}", "name": found[1], "input": tool_input}


def events(message: Json, blocks: tuple[Json, ...], stop_reason: str) -> Iterator[Json]:
    """The server-sent events of one streamed answer."""
    yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
    for index, block in enumerate(blocks):
        if block["type"] == "text":
            empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            empty = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": stop_reason, "stop_sequence": None},
        "usage": {"output_tokens": 12},
    }
    yield {"type": "message_stop"}


class Log:
    """Appends one JSON line a request, whole, from several threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def write(self, entry: Json) -> None:
        with self._lock, open(self._path, "a", encoding="utf-8") as out:
            out.write(json.dumps(entry) + "\n")


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, log: Log) -> None:
        self.log = log
        super().__init__(("127.0.0.1", PORT), Handler)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on stderr; the log has it."""

    def do_HEAD(self) -> None:
        self._json({})

    def do_GET(self) -> None:
        self.server.log.write({"path": self.path})
        if self.path.startswith("/v1/models"):
            self._json({"data": [], "has_more": False})
        else:
            self._json({"type": "error", "error": {"type": "not_found_error", "message": "stub"}}, 404)

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = self.path.partition("?")[0]
        if path == "/v1/messages":
            self._message(json.loads(raw), tokens=max(1, len(raw) // 4))
            return
        self.server.log.write({"path": path})
        counted = path == "/v1/messages/count_tokens"
        self._json({"input_tokens": max(1, len(raw) // 4)} if counted else {}, 200 if counted else 404)

    def _message(self, body: Json, tokens: int) -> None:
        seen = asked(body, self.headers.get("x-claude-code-session-id"))
        reply = answer(body, seen)
        entry = {name: getattr(seen, name) for name in Asked.__slots__}
        self.server.log.write({"path": "/v1/messages", "request": entry})
        time.sleep(reply.wait_s)
        # A fixed small count: the CLI must not come to compact by itself.
        usage = {"input_tokens": min(tokens, 9000), "output_tokens": 12}
        message = {
            "id": f"msg_{uuid.uuid4().hex[:22]}",
            "type": "message",
            "role": "assistant",
            "model": body.get("model", "stub"),
            "content": list(reply.blocks),
            "stop_reason": reply.stop_reason,
            "stop_sequence": None,
            "usage": {**usage, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0},
        }
        if not body.get("stream"):
            self._json(message)
            return
        self._head(200, "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        for event in events(message, reply.blocks, reply.stop_reason):
            self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())

    def _json(self, value: Json, status: int = 200) -> None:
        raw = json.dumps(value).encode()
        self._head(status, "application/json")
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(raw)

    def _head(self, status: int, kind: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("request-id", f"req_{uuid.uuid4().hex[:22]}")


def bring_loopback_up() -> None:
    """A fresh network namespace has its loopback down. (Done by ioctl: `ip` is not on every machine.)"""
    get_flags, set_flags, up = 0x8913, 0x8914, 0x1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        _, flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, get_flags, request))
        fcntl.ioctl(any_socket, set_flags, struct.pack("16sh14x", b"lo", flags | up))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--log", type=Path, required=True)
    log = Log(parser.parse_args().log)
    bring_loopback_up()
    server = Server(log)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()

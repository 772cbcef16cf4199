"""Hostile inputs: valid ones that are damaged byte by byte or value by value, and new ones made of a format's words."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

Mutation = Callable[[Random, bytes, Sequence[bytes]], bytes]

LONGEST = 20_000
WORDS = (
    b"\n", b"\r\n", b"\n\n", b"\t", b" ", b"_", b"#", b"# a = b\n", b'"', b"'", b",", b":", b"|", b"-", b"/", b"\\",
    b"\x00", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", "\u2028".encode(), "\U0001f600".encode(), "e\u0301".encode(),
    b"0", b"1", b"-1", b"2", b"4294967296", b"18446744073709551616", b"9" * 5000, b"1e999", b"NaN", b"-Infinity",
    b"null", b"true", b"[]", b"{}", b"[[]]", b'""', b"[" * 2000, b'{"a":' * 2000, b"a" * 3000, b"\\ud800", b"\\u0000",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, 0, 1, -1, 3, 10**9, 10**30, 0.5, -0.0, 1e300, float("nan"), float("inf"), "", "a", "1", "\0", "\ud800",
    "../x", "/etc/passwd", "a" * 1000, [], [0], [[]], [None], [["a"]], {}, {"a": 1}, {"": []},
)  # fmt: skip


def damaged(random: Random, seed: bytes, words: Sequence[bytes]) -> bytes:
    """A valid input with one to a few bytes, ranges or numbers changed."""
    data = seed
    for _ in range(1 + min(int(random.expovariate(0.7)), 8)):
        data = random.choice(_BYTE_CHANGES)(random, data, words)
    return data[:LONGEST]


def generated(random: Random, seed: bytes, words: Sequence[bytes]) -> bytes:
    """Words of the format in any order."""
    return b"".join(random.choices([*words, *WORDS[:25]], k=random.randint(0, 30)))[:LONGEST]


def changed_json(random: Random, seed: bytes, words: Sequence[bytes]) -> bytes:
    """JSON of which a few values are replaced, removed or repeated: what is wrong with it is its meaning."""
    value = json.loads(seed)
    for _ in range(1 + min(int(random.expovariate(1.0)), 4)):
        value = _changed(random, value)
    return json.dumps(value).encode()


def changed_json_lines(random: Random, seed: bytes, words: Sequence[bytes]) -> bytes:
    """Lines of JSON of which one is changed so."""
    lines = seed.splitlines()
    place = random.randrange(len(lines))
    lines[place] = changed_json(random, lines[place], words)
    return b"\n".join(lines) + b"\n"


def changed_header(random: Random, seed: bytes, words: Sequence[bytes]) -> bytes:
    """A safetensors file whose header says something else; its length is right, so that what it says is read."""
    size = int.from_bytes(seed[:8], "little")
    change = random.choice((changed_json, damaged))
    header = change(random, seed[8 : 8 + size], words)
    body = seed[8 + size :]
    if random.random() < 0.2:
        body = body[: random.randint(0, len(body))]
    return len(header).to_bytes(8, "little") + header + body


def changed_unmarked(random: Random, seed: bytes, words: Sequence[bytes]) -> bytes:
    """Such a file without its checksum, as who means harm would write it."""
    size = int.from_bytes(seed[:8], "little")
    tensors = {name: facts for name, facts in json.loads(seed[8 : 8 + size]).items() if name != "__metadata__"}
    header = json.dumps(tensors).encode()
    return changed_header(random, len(header).to_bytes(8, "little") + header + seed[8 + size :], words)


def _changed(random: Random, value: Any) -> Any:
    """The value with one place in it changed; deep places are as likely as shallow ones."""
    if isinstance(value, dict) and value and random.random() < 0.9:
        key = random.choice(list(value))
        if random.random() < 0.1:
            return {k: v for k, v in value.items() if k != key}
        if random.random() < 0.1:
            return {**value, random.choice(("", "a", f"{key}2")): value[key]}
        return {**value, key: _changed(random, value[key])}
    if isinstance(value, list) and value and random.random() < 0.8:
        place = random.randrange(len(value))
        if random.random() < 0.1:
            return value[:place] + value[place + 1 :]
        if random.random() < 0.1:
            return value[:place] + value[place:] * 2
        return [*value[:place], _changed(random, value[place]), *value[place + 1 :]]
    if isinstance(value, int) and random.random() < 0.3:
        return value + random.choice((-1, 1, 2, 1000))
    return random.choice(VALUES)


def _flip_bit(random: Random, data: bytes, words: Sequence[bytes]) -> bytes:
    if not data:
        return data
    place = random.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << random.randrange(8)]) + data[place + 1 :]


def _cut_short(random: Random, data: bytes, words: Sequence[bytes]) -> bytes:
    return data[: random.randint(0, len(data))]


def _remove(random: Random, data: bytes, words: Sequence[bytes]) -> bytes:
    start, stop = _range(random, data)
    return data[:start] + data[stop:]


def _repeat(random: Random, data: bytes, words: Sequence[bytes]) -> bytes:
    start, stop = _range(random, data)
    return data[:stop] + data[start:stop] * random.choice((1, 1, 2, 50)) + data[stop:]


def _move(random: Random, data: bytes, words: Sequence[bytes]) -> bytes:
    start, stop = _range(random, data)
    rest = data[:start] + data[stop:]
    place = random.randint(0, len(rest))
    return rest[:place] + data[start:stop] + rest[place:]


def _insert_word(random: Random, data: bytes, words: Sequence[bytes]) -> bytes:
    place = random.randint(0, len(data))
    return data[:place] + random.choice([*words, *WORDS]) + data[place:]


def _replace_number(random: Random, data: bytes, words: Sequence[bytes]) -> bytes:
    numbers = list(re.finditer(rb"\d+", data))
    if not numbers:
        return _insert_word(random, data, words)
    chosen = random.choice(numbers)
    return data[: chosen.start()] + random.choice(WORDS[24:]) + data[chosen.end() :]


_BYTE_CHANGES: tuple[Mutation, ...] = (
    _flip_bit,
    _cut_short,
    _remove,
    _repeat,
    _move,
    _insert_word,
    _insert_word,
    _replace_number,
)


def _range(random: Random, data: bytes) -> tuple[int, int]:
    start = random.randint(0, len(data))
    return start, min(start + 1 + int(random.expovariate(0.1)), len(data))

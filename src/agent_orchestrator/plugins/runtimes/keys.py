"""Converts tmux's names of keys to the bytes that a terminal sends for them."""

from __future__ import annotations

_NAMED_KEYS = {
    "Enter": b"\r",
    "Escape": b"\x1b",
    "Tab": b"\t",
    "BTab": b"\x1b[Z",
    "Space": b" ",
    "BSpace": b"\x7f",
    "Up": b"\x1b[A",
    "Down": b"\x1b[B",
    "Right": b"\x1b[C",
    "Left": b"\x1b[D",
    "Home": b"\x1b[1~",
    "End": b"\x1b[4~",
    "IC": b"\x1b[2~",
    "DC": b"\x1b[3~",
    "PPage": b"\x1b[5~",
    "PageUp": b"\x1b[5~",
    "NPage": b"\x1b[6~",
    "PageDown": b"\x1b[6~",
    "F1": b"\x1bOP",
    "F2": b"\x1bOQ",
    "F3": b"\x1bOR",
    "F4": b"\x1bOS",
}


def encode(key: str) -> bytes:
    """Return the bytes for one key; as in tmux, text that is no key's name stands for itself."""
    if key in _NAMED_KEYS:
        return _NAMED_KEYS[key]
    if key.startswith("M-") and len(key) > 2:
        return b"\x1b" + encode(key[2:])
    if key.startswith("C-") and len(key) == 3 and key[2].isascii():
        return b"\x7f" if key[2] == "?" else bytes([ord(key[2].upper()) & 0x1F])
    if key == "C-Space":
        return b"\0"
    return key.encode(errors="replace")

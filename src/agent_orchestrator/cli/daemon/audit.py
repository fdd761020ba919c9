"""`ao audit`: show, export and verify the audit log."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, TextIO

import click

from agent_orchestrator.base import hash_chain
from agent_orchestrator.base.http_client import StreamedResponse
from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import PROJECT, SESSION, client, follow_events, json_option, read_text
from agent_orchestrator.client.daemon_client import DaemonClient
from agent_orchestrator.errors import UsageError

Entry = dict[str, Any]
Query = dict[str, str | int | None]

_PAGE_SIZE = 1000
_MAX_WIDTHS = {"WHO": 14, "WHAT": 18, "ON": 13}
"""Maximum widths of these columns when the terminal is too narrow for all."""
_SUMMARY_FIELDS = (
    "action",
    "name",
    "reason",
    "path",
    "title",
    "text",
    "command",
    "message",
    "decision",
    "rule",
    "branch",
    "step",
)


@click.command()
@click.option("--since", metavar="WHEN", help="Only from then on: 2026-11-15, 2026-11-15T10:30, today, 90m, 12h or 7d.")
@click.option("--until", metavar="WHEN", help="Only before then.")
@click.option(
    "--actor", metavar="WHO", help="Only of this actor, `token ci`; one word means all of its kind: rule, agent, token."
)
@click.option("-s", "--session", metavar="S", type=SESSION, help="Only about this session.")
@click.option("-p", "--project", metavar="P", type=PROJECT, help="Only about this project.")
@click.option("--kind", metavar="KIND", help="Only of this kind: session-created, access-refused …")
@click.option(
    "-n", "--lines", metavar="N", type=click.IntRange(min=1), help="Only the last N; 50 unless --since is given."
)
@click.option("-f", "--follow", "should_follow", is_flag=True, help="Go on as entries come.")
@click.option("--export", metavar="FILE", help="Write all of them as JSON lines, with digests; `-` is standard output.")
@click.option(
    "--verify",
    metavar="[FILE]",
    is_flag=False,
    flag_value="",
    help="See whether the log, or a whole exported one, is what was written.",
)
@click.option("--kept", metavar="SEQ:DIGEST", help="With --verify: this entry, kept elsewhere, must still be there.")
@click.option("--head", "head", is_flag=True, help="Print the last entry's SEQ:DIGEST, to be kept elsewhere.")
@json_option
def audit(
    since: str | None,
    until: str | None,
    actor: str | None,
    session: str | None,
    project: str | None,
    kind: str | None,
    lines: int | None,
    should_follow: bool,
    export: str | None,
    verify: str | None,
    kept: str | None,
    head: bool,
    as_json: bool,
) -> int:
    """Show who did what, when and why; export it; see that nobody changed it.

    WHY names the entry that something was done because of. Entries are never changed or removed; a chain of digests shows it if
    somebody does. What was cut off at the end is seen only by a SEQ:DIGEST that was kept elsewhere.
    """
    if sum((should_follow, export is not None, verify is not None, head)) > 1:
        raise UsageError("--follow, --export, --verify and --head exclude each other", "give one of them")
    if kept is not None and verify is None:
        raise UsageError("--kept needs --verify", "ao audit --verify --kept SEQ:DIGEST")
    if verify is not None:
        return _verify(verify, kept, as_json)
    if head:
        last = client().get("/api/audit/head")
        out.print_json(last) if as_json else print(f"{last['seq']}:{last['digest']}")
        return 0
    query: Query = {
        "since": parse_time(since) if since else None,
        "until": parse_time(until) if until else None,
        "actor": actor,
        "session": session,
        "project": project,
        "type": kind,
    }
    ao = client()
    if export is not None:
        _export(ao, query, export)
        return 0
    if lines is None and since is not None:
        entries = list(_all_entries(ao, query))
    else:
        entries = ao.get("/api/audit", query | {"limit": min(lines or 50, 10_000)})["entries"]
    _show_entries(entries, as_json, heading=True)
    if not entries and not as_json:
        out.print_note("nothing of that kind is in the log")
    if should_follow:
        _follow(ao, query, entries[-1]["seq"] if entries else ao.get("/api/audit/head")["seq"], as_json)
    return 0


def parse_time(text: str) -> str:
    """Return a time in the format of the API; raise UsageError if it is invalid."""
    now = datetime.now(UTC)
    if text == "today":
        return now.replace(hour=0, minute=0, second=0, microsecond=0).isoformat()
    if match := re.fullmatch(r"(\d{1,5})([smhd])", text):
        unit = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}[match[2]]
        return (now - timedelta(**{unit: int(match[1])})).isoformat()
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{text} is no time", "for example 2026-11-15, 2026-11-15T10:30, today, 90m, 12h or 7d"
        ) from None
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).isoformat()


def _all_entries(ao: DaemonClient, query: Query, after: int = 0) -> Iterator[Entry]:
    while True:
        page: list[Entry] = ao.get("/api/audit", query | {"after": after, "limit": _PAGE_SIZE})["entries"]
        yield from page
        if len(page) < _PAGE_SIZE:
            return
        after = page[-1]["seq"]


def _show_entries(entries: list[Entry], as_json: bool, *, heading: bool) -> None:
    if as_json:
        for entry in entries:
            out.print_json_line(entry)
        return
    if not entries:
        return
    days = {entry["time"][:10] for entry in entries}
    header = ("#", days.pop() if len(days) == 1 and heading else "TIME", *_MAX_WIDTHS, "WHY")
    rows = [[out.one_line(cell) for cell in _row(entry, header[1] != "TIME")] for entry in entries]
    widths = _widths([list(header), *rows])
    if heading:
        print(out.paint(out.table_row(header, widths), "dim"))
    for row in rows:
        print(out.table_row(row, widths))


def _row(entry: Entry, one_day: bool) -> tuple[str, ...]:
    subject = entry["session"] or entry["project"] or "-"
    actor = "agent" if entry["actor"] == f"agent {subject}" else entry["actor"]
    time = entry["time"][11:19] if one_day else entry["time"][5:19].replace("T", " ")
    return (str(entry["seq"]), time, actor, entry["type"], subject, _cause_text(entry))


def _widths(rows: list[list[str]]) -> list[int]:
    """Return the column widths; on a narrow terminal who, what and on what are cut before why."""
    widths = [max(map(out.display_width, column)) for column in zip(*rows, strict=True)]
    gaps = 2 * (len(widths) - 1)
    if sum(widths) + gaps > out.terminal_width():
        widths[2:5] = [min(width, limit) for width, limit in zip(widths[2:5], _MAX_WIDTHS.values(), strict=True)]
        widths[5] = max(8, out.terminal_width() - sum(widths[:5]) - gaps)
    return widths


def _cause_text(entry: Entry) -> str:
    """Return the entry that caused this one, and the most important field of its data."""
    data = entry["data"] if isinstance(entry["data"], dict) else {}
    detail = next(
        (str(data[name]) for name in _SUMMARY_FIELDS if data.get(name) and not isinstance(data[name], dict)), ""
    )
    cause = f"#{entry['cause']} {entry['causeType'] or ''}".rstrip() if entry["cause"] is not None else ""
    return ": ".join(part for part in (cause, detail[:200]) if part)


def _follow(ao: DaemonClient, query: Query, last_seq: int, as_json: bool) -> None:
    """Show matching entries whenever something is recorded."""

    def show(stream: StreamedResponse) -> None:
        nonlocal last_seq
        while stream.read_event() is not None:
            with DaemonClient(start=False) as ao_client:
                entries = list(_all_entries(ao_client, query, last_seq))
            _show_entries(entries, as_json, heading=False)
            last_seq = entries[-1]["seq"] if entries else last_seq
            sys.stdout.flush()

    sys.stdout.flush()
    follow_events(ao, "/api/events", show, str(last_seq))


def _export(ao: DaemonClient, query: Query, file: str) -> None:
    count, last_entry = 0, None
    try:
        with _open_private(file) as target:
            for entry in _all_entries(ao, query):
                target.write(json.dumps(entry, ensure_ascii=False, separators=(",", ":")) + "\n")
                count, last_entry = count + 1, entry
            target.flush()
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}", "name another file") from None
    is_whole = not any(query.values())
    head_text = f"; head {last_entry['seq']}:{last_entry['digest']}" if last_entry and is_whole else ""
    part_note = "" if is_whole else "; a part of the log, which cannot be verified by itself"
    out.print_note(f"{out.plural(count, 'entry') if count == 1 else f'{count} entries'} exported{head_text}{part_note}")


@contextlib.contextmanager
def _open_private(file: str) -> Iterator[TextIO]:
    """Open a file for writing that only this user can read and that replaces an earlier one; devices are written directly."""
    if file == "-":
        yield sys.stdout
        return
    if os.path.exists(file) and not os.path.isfile(file):
        with open(file, "w", encoding="utf-8") as target:
            yield target
        return
    import tempfile

    descriptor, draft = tempfile.mkstemp(prefix=".ao-", dir=os.path.dirname(file) or ".")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as target:
            yield target
        os.replace(draft, file)
    except BaseException:
        os.unlink(draft)
        raise


def _verify(file: str, kept: str | None, as_json: bool) -> int:
    result = _verify_file(file, kept) if file else client().get("/api/audit/verify", {"kept": kept}, timeout=3600.0)
    broken, head = result["broken"], result["head"]
    if as_json:
        out.print_json(result)
    elif broken:
        valid_text = f"{result['entries']} before it fit" if result["entries"] != 1 else "1 before it fits"
        print(f"BROKEN at entry {broken['seq']}: {broken['reason']}; {valid_text}.")
    else:
        print(f"{result['entries']} entries, unbroken. Keep the head elsewhere, to see later that nothing was cut off:")
        print(f"{head['seq']}:{head['digest']}")
    return 1 if broken else 0


def _verify_file(file: str, kept: str | None) -> dict[str, Any]:
    """Verify an exported log without the daemon."""
    chain = hash_chain.ChainVerifier()
    try:
        entries = list(hash_chain.read_export(read_text(file).splitlines()))
    except ValueError as error:
        raise UsageError(f"{file}: {error}", "give a log as `ao audit --export FILE` writes it") from None
    chain.verify(entries)
    verdict = chain.result
    broken = {"seq": verdict.first_invalid, "reason": verdict.reason} if verdict.first_invalid is not None else None
    if broken is None and kept is not None and kept not in {f"{entry['seq']}:{entry['digest']}" for entry in entries}:
        broken = {"seq": int(kept.partition(":")[0] or 0), "reason": "it is not the one that was kept, or was cut off"}
    head = {"seq": verdict.head.seq, "digest": verdict.head.digest}
    return {"entries": verdict.entries, "head": head, "broken": broken}

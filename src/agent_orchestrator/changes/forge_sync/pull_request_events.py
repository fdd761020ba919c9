"""What is new about a pull request: `news(facts, pull, conflicts) -> [event's body]`. Pure.

The forge tells how things are (`protocols/forge.py`), the facts say what is known; the difference is what happened. So what
is read twice, by a webhook and by a poll, is told once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agent_orchestrator.core import events as e
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.pull_request import UNDER_WAY, Issue, PullRequest, issue_number
from agent_orchestrator.protocols.forge import Issue as Told
from agent_orchestrator.protocols.forge import PullCheck, PullComment, PullReview, PullState

UNKNOWN_FILES = ("files that the forge does not name",)


def news(facts: SessionFacts, pull: PullState, conflicts: Sequence[str] = ()) -> list[e.Body]:
    """What happened to a session's pull request, in its order; `conflicts`: the files in which it does, if they are known."""
    pr = facts.pr
    if pr is None or pr.state == "merged":
        return []
    found: list[e.Body] = []
    if pull.state == "open":
        found += _itself(pr, pull)
        if pull.base_head and pull.base_head != facts.base_head:
            found.append(e.BaseMoved(pull.base_head))
        if pull.head == facts.head:  # of another commit's checks and conflicts nothing follows for ours
            found += _mergeability(pr, pull, tuple(conflicts) or UNKNOWN_FILES) + _checks(pr, pull)
    if unpinned(facts, pull):
        found.append(e.LandingFailed(f"somebody pushed {pull.head[:12]}, which was not checked", "moved"))
    return found + _words(pr, pull) + _end(pr, pull)


def unpinned(facts: SessionFacts, pull: PullState) -> bool:
    """Is the forge about to land another commit than the one that may?"""
    asked = facts.pr.landing if facts.pr else None
    return asked is not None and pull.state == "open" and pull.queued and pull.head != asked.head


def _itself(pr: PullRequest, pull: PullState) -> list[e.Body]:
    found: list[e.Body] = []
    if pull.base != pr.base:
        found.append(e.BaseChanged(pull.base, "it was given another base at the forge"))
    now = (pull.title, pull.draft, "open", pull.blocked)
    if (pr.title, pr.draft, pr.state, pr.blocked) != now:
        found.append(e.PrChanged(*now))
    return found


def _mergeability(pr: PullRequest, pull: PullState, files: tuple[str, ...]) -> list[e.Body]:
    sides, clashes = (pull.head, pull.base_head), pull.mergeable == "no"
    known = pr.compared == sides and pr.base == pull.base and bool(pr.conflicts) == clashes
    return [] if pull.mergeable == "unknown" or known else [e.ConflictsSeen(*sides, files if clashes else ())]


def _checks(pr: PullRequest, pull: PullState) -> list[e.Body]:
    """Results one by one, and once all have ended that they have; a run that began anew takes that back."""
    if "checks" in pull.unread:
        return []
    there = {check.name for check in pull.checks}
    gone = [run for run in pr.checks.values() if run.head == pull.head and run.name not in there]
    running = any(check.state in UNDER_WAY for check in pull.checks)
    anew = running and pr.settled == pull.head
    fresh = [check for check in pull.checks if anew or not _is_known(pr, check, pull.head)]
    found = [*(e.CheckGone(run.name, run.head) for run in gone), *(_told(check, pull.head) for check in fresh)]
    if anew:
        return [e.ChecksRequested(pull.head), *found]
    before = any(run.head != pull.head for run in pr.checks.values())  # then this commit will have some too
    none = not pull.checks and pull.checks_expected is False and not before
    if (none or pull.checks) and not running and (found or pr.settled != pull.head or pr.unchecked != none):
        found.append(e.ChecksSettled(pull.head, none=none))
    return found


def _is_known(pr: PullRequest, check: PullCheck, head: str) -> bool:
    known = pr.checks.get(check.name)
    return known is not None and (known.head, known.state) == (head, check.state)


def _told(check: PullCheck, head: str) -> e.Body:
    match check.state:
        case "queued":
            return e.CheckStarted(check.name, head)
        case "running":
            return e.CheckStarted(check.name, head, url=check.url or "", running=True)
    return e.CheckFinished(check.name, head, check.state, summary=check.summary, log=check.log, url=check.url or "")


def _words(pr: PullRequest, pull: PullState) -> list[e.Body]:
    """What people, bots and the agent said; what the agent said here itself comes back under its mark."""
    found: list[tuple[float, e.Body]] = []
    reviews = {one.id: one.verdict for one in pr.reviews}
    for review in pull.reviews:
        verdict = reviews.get(review.id)
        if verdict is None:
            found.append((review.at, _submitted(review)))
        elif verdict != review.verdict:
            found.append((review.at, e.ReviewChanged(review.id, review.verdict)))
    known, threads = {one.id for one in pr.comments}, {one.thread: one.resolved for one in pr.comments if one.thread}
    fresh = [one for one in pull.comments if one.id not in known and one.mark not in known]
    found += [(one.at, _added(one, pull.head)) for one in fresh]
    settled = {one.thread: one.resolved for one in pull.comments if one.thread}
    said = [body for _, body in sorted(found, key=lambda one: one[0])]
    changed = [thread for thread, on in settled.items() if on != threads.get(thread, False)]
    return said + [e.ThreadSettled(thread, settled[thread]) for thread in changed]


def _submitted(review: PullReview) -> e.Body:
    return e.ReviewSubmitted(
        review=review.id,
        verdict=review.verdict,
        head=review.head,
        author=review.author.name,
        body=review.body,
        write_access=review.author.write_access,
        kind=review.author.kind,
        counts=review.author.kind == "person",
    )


def _added(comment: PullComment, head: str) -> e.Body:
    return e.CommentAdded(
        comment=comment.id,
        body=comment.body,
        author=comment.author.name,
        path=comment.path,
        line=comment.line,
        thread=comment.thread,
        review=comment.review,
        by_agent=comment.author.kind == "agent",
        head=comment.head or head,
        write_access=comment.author.write_access,
        kind=comment.author.kind,
    )


def _end(pr: PullRequest, pull: PullState) -> list[e.Body]:
    if pull.state == "merged":
        asked = pr.landing
        keep = asked is not None and not asked.delete_after
        how = asked.strategy if asked else "squash"
        there = bool(asked and not keep)
        return [e.PrMerged(pull.merged_as or "", "", pull.head, how, keep_branch=keep, remove_there=there)]
    if pull.state == "closed" and pr.state == "open":
        return [e.PrClosed("it was closed at the forge")]
    return []


def _by_its_author(changed: e.IssueChanged, told: Told) -> e.IssueChanged:
    """Nobody says who changed it. Who opened it may have; anybody else who may, may write to the repository."""
    return replace(changed, author=told.author.name, write_access=told.author.write_access)


def issue_news(known: Issue | None, told: Told, tracker: str, *, whole: bool) -> list[e.Body]:
    """What happened to an issue of a tracker; `whole`: it was read with its comments."""
    number = issue_number(told.id)
    if number is None:
        return []
    key = "" if told.id == str(number) else told.id
    found: list[e.Body] = []
    labels: tuple[str, ...] = ()
    if known is None:
        found.append(
            e.IssueOpened(
                number,
                told.title,
                told.body,
                told.labels,
                told.author.name,
                (),
                told.author.write_access,
                key,
                told.url,
                tracker,
                told.branch,
                told.assignee,
            )
        )
        labels, state = told.labels, "open"
    else:
        labels, state = known.labels, known.state
        changed = e.IssueChanged(
            number,
            title=told.title if told.title != known.title else None,
            body=told.body if whole and told.body != known.body else None,
        )
        if changed != e.IssueChanged(number):
            found.append(_by_its_author(changed, told))
        if (told.assignee or "") != (known.assignee or ""):
            found.append(e.IssueChanged(number, assignee=told.assignee or ""))
    if told.state != state:
        found.append(_by_its_author(e.IssueChanged(number, state=told.state), told))
    found += [e.LabelAdded(number, label) for label in told.labels if label not in labels]
    found += [e.LabelRemoved(number, label) for label in labels if label not in told.labels]
    said = {one.id for one in known.comments} if known else set()
    fresh = [one for one in told.comments if one.id not in said and one.author.kind != "agent"] if whole else []
    return found + [e.IssueComment(number, one.id, one.body, one.author.name, one.author.write_access) for one in fresh]

"""The earlier names that plugins may still use: the error names the current one."""

from __future__ import annotations

from collections.abc import Mapping

EARLIER_CLASSES: Mapping[str, str] = {
    "AgentRun": "RunningLaunch",
    "Answers": "Agent",
    "Changes": "FileChanges",
    "Checked": "Notifier",
    "Completed": "ProgramResult",
    "Delivers": "Agent",
    "Found": "InstalledAgent",
    "Furnishes": "Runtime",
    "Headless": "Agent",
    "Heard": "ReportBatch",
    "Held": "NotReady",
    "Issue": "TrackerIssue",
    "IssueRecords": "IssueStorage",
    "Keeps": "Agent",
    "Kept": "AgentState",
    "Known": "KnownPullRequest",
    "KnownPull": "KnownPullRequest",
    "KnowsBases": "SCM",
    "Lack": "MissingPermission",
    "Listens": "Agent",
    "Merging": "MergeOptions",
    "Metered": "SCM or Tracker",
    "NeedsWorkspace": "Agent",
    "Portable": "Agent",
    "PullCheck": "PullRequestCheck",
    "PullComment": "PullRequestComment",
    "PullRecord": "PullRequestRecord",
    "PullRequestRecords": "PullRequestStorage",
    "PullReview": "PullRequestReview",
    "PullSpec": "PullRequestSpec",
    "PullState": "PullRequestState",
    "Report": "LineCallback",
    "SignedIn": "SCM or Tracker",
    "Submits": "Agent",
    "Turn": "TurnCommand",
    "Typable": "ReadyToType",
    "Types": "Agent",
    "Unseen": "ProbeFailed",
    "Waiting": "MergeQueued",
    "Watchable": "Runtime",
    "file_name": "quote_file_name",
    "is_seen": "is_visible",
    "visible": "make_visible",
    "without_orders": "neutralize_forge_commands",
    "writable": "replace_lone_surrogates",
}
"""Earlier name in `agent_orchestrator.protocols` → the name to use now."""

EARLIER_METHODS: Mapping[str, Mapping[str, str]] = {
    "agent": {"typed": "escape_input", "unsent": "has_unsent_text"},
    "scm": {"call_off": "cancel_merge"},
    "runtime": {"furnish": "prepare_image", "leftovers": "orphaned_terminals"},
}
"""Slot → earlier name of a plugin's method → its name now."""

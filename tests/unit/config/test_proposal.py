"""Proposals: differences between configuration and detected commands, and digests of proposals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.config.detection import DetectedCommands
from agent_orchestrator.config.detection.proposal import (
    candidates_digest,
    describe_drift,
    missing_keys,
    proposal_digest,
)
from agent_orchestrator.config.effective import ProjectConfig, resolve_project
from agent_orchestrator.config.model import Config, Project

NPM = DetectedCommands("npm", ("npm ci",), "npm test", None, ("package-lock.json",))
PNPM = DetectedCommands("pnpm", ("pnpm install --frozen-lockfile",), "pnpm test", None, ("pnpm-lock.yaml",))


def project(root: Path, **keys: Any) -> ProjectConfig:
    return resolve_project("app", Project.model_validate(keys), root, root / "x.yaml", (Config(),), {})


@pytest.mark.parametrize(
    ("keys", "files", "detected", "expected"),
    [
        ({"postCreate": ["npm ci"], "ci": {"test": {"command": "x"}}}, ("package-lock.json",), [NPM], []),
        ({}, (), [], []),
        ({}, (), [NPM], ["postCreate is empty; package-lock.json suggests: npm ci", "no check is configured"]),
        ({"symlinks": ["node_modules"], "ci": {"test": {"command": "x"}}}, (), [NPM], []),
        (
            {"postCreate": ["npm ci"], "ci": {"test": {"command": "x"}}},
            ("pnpm-lock.yaml",),
            [PNPM],
            ["postCreate runs npm ci, which needs package-lock.json or npm-shrinkwrap.json; pnpm-lock.yaml suggests"],
        ),
        (
            {"postCreate": ["npm install"], "ci": {"test": {"command": "x"}}},
            ("pnpm-lock.yaml",),
            [PNPM],
            ["postCreate runs npm install; pnpm-lock.yaml suggests: pnpm install --frozen-lockfile"],
        ),
        ({"ci": {"test": {"command": "make test"}}}, (), [NPM, DetectedCommands("make", (), "make test")], []),
        ({"postCreate": ["./setup.sh"], "ci": {"test": {"command": "x"}}}, (), [PNPM], []),
        ({"postCreate": ["npm ci"], "ci": {"test": {"command": "x"}}}, ("package-lock.json",), [PNPM, NPM], []),
    ],
)
def test_differences_from_the_detected_commands_are_described(
    tmp_path: Path, keys: dict[str, Any], files: tuple[str, ...], detected: list[DetectedCommands], expected: list[str]
) -> None:
    for name in files:
        (tmp_path / name).touch()
    sentences = describe_drift(project(tmp_path, **keys), detected, tmp_path)
    assert len(sentences) == len(expected), sentences
    assert all(sentence.startswith(begin) for sentence, begin in zip(sentences, expected, strict=True)), sentences


def test_missing_keys_are_listed(tmp_path: Path) -> None:
    assert missing_keys(project(tmp_path)) == ("postCreate", "ci")
    assert missing_keys(project(tmp_path, copy=["node_modules"], ci={"test": {"command": "x"}})) == ()


def test_a_proposals_digest_depends_on_its_commands_and_its_file(tmp_path: Path) -> None:
    powers = {"projects": {"app": {"ci": {"default": "make test"}, "repo": "a/b"}}}
    first = proposal_digest(powers, tmp_path / "x.yaml")
    assert first == proposal_digest({"projects": {"app": {"ci": {"default": "make test"}}}}, tmp_path / "x.yaml")
    assert first != proposal_digest(powers, tmp_path / "y.yaml")
    assert first != proposal_digest({"projects": {"app": {"ci": {"default": "make"}}}}, tmp_path / "x.yaml")
    assert proposal_digest({"projects": {"app": {"repo": "a/b"}}}, tmp_path / "x.yaml") == ""
    assert candidates_digest([NPM, PNPM], tmp_path) != candidates_digest([NPM], tmp_path)

"""Reading untrusted JUnit XML."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent_orchestrator.changes.checks import junit
from agent_orchestrator.changes.checks.outcome import TestCounts
from agent_orchestrator.changes.checks.runners import read_outcome

REPORT = """<?xml version="1.0"?>
<testsuites tests="99"><testsuite name="outer" tests="99"><testsuite name="inner" tests="4">
  <testcase name="a"/><testcase name="b"><failure message="no">text</failure></testcase>
  <testcase name="c"><skipped/></testcase><testcase name="d"><error/><system-out>x</system-out></testcase>
</testsuite></testsuite></testsuites>
"""
LAUGHS = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b SYSTEM "file:///etc/hostname">]><testsuite><testcase name="&b;"/></testsuite>'


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def counts(*files: Path) -> TestCounts | None:
    return read_outcome("", files, exit_code=1).counts


def test_cases_are_counted_instead_of_the_numbers_of_suites(tmp_path: Path) -> None:
    file = write(tmp_path / "junit.xml", REPORT)
    assert counts(file, file) == TestCounts(2, 4, 2, 8)


@pytest.mark.parametrize("text", [LAUGHS, "<testsuite><testcase>", "<project/>", "", "no xml at all"])
def test_invalid_reports_and_those_with_a_doctype_are_skipped(tmp_path: Path, text: str) -> None:
    bad = write(tmp_path / "junit.xml", text)
    assert counts(bad, tmp_path / "gone.xml") is None
    assert counts(bad, write(tmp_path / "TEST-a.xml", REPORT)) == TestCounts(1, 2, 1, 4)


def test_an_empty_report_is_a_report_of_no_tests(tmp_path: Path) -> None:
    assert counts(write(tmp_path / "junit.xml", "<testsuites/>")) == TestCounts(0, 0, 0, 0)


def test_reports_are_found_by_name_by_folder_and_by_time(tmp_path: Path) -> None:
    reports = [
        write(tmp_path / name, REPORT)
        for name in ("build/test-junit-1.xml", "target/surefire-reports/TEST-a.B.xml", "reports/unit/all.xml")
    ]
    write(tmp_path / "pom.xml", "<project/>")
    write(tmp_path / "node_modules/x/junit.xml", REPORT)
    old = write(tmp_path / "old-junit.xml", REPORT)
    os.utime(old, ns=(1_000, 1_000))
    elsewhere = write(tmp_path.parent / "junit-elsewhere.xml", REPORT)
    (tmp_path / "junit-link.xml").symlink_to(elsewhere)
    assert sorted(junit.find_reports(tmp_path, 2_000)) == sorted(reports)


def test_a_huge_report_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(junit, "MAX_REPORT_BYTES", 100)
    write(tmp_path / "junit.xml", REPORT)
    assert junit.find_reports(tmp_path, 0) == []


def test_pytest_names_imported_test_classes_by_the_importing_module(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/__init__.py").touch()
    (tmp_path / "tests/test_a.py").write_text("class TestA:\n    def test_x(self):\n        pass\n")
    (tmp_path / "tests/test_b.py").write_text("from tests.test_a import TestA\nclass TestB(TestA):\n    pass\n")
    report = tmp_path / "junit.xml"
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-c", "/dev/null"]
    argv += ["--rootdir", str(tmp_path), "-o", "junit_family=xunit1", f"--junitxml={report}", "tests"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "3 passed" in done.stdout, done.stdout
    expected = {"tests/test_a.py::TestA::test_x", "tests/test_b.py::TestA::test_x", "tests/test_b.py::TestB::test_x"}
    assert set(read_outcome("", [report], exit_code=0).passed) == expected


def test_paths_in_messages_are_relative_to_the_repository(tmp_path: Path) -> None:
    failure = f'<failure message="cannot import x ({tmp_path}/shop/prices.py)"/>'
    file = write(tmp_path / "junit.xml", f'<testsuite><testcase name="a">{failure}</testcase></testsuite>')
    assert read_outcome("", [file], exit_code=1, top=tmp_path).failures == {"a": "cannot import x (shop/prices.py)"}

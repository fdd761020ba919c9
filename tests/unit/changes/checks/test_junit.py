"""Reading JUnit XML that strangers wrote."""

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


def test_cases_are_counted_not_what_suites_claim(tmp_path: Path) -> None:
    file = write(tmp_path / "junit.xml", REPORT)
    assert counts(file, file) == TestCounts(2, 4, 2, 8)


@pytest.mark.parametrize("text", [LAUGHS, "<testsuite><testcase>", "<project/>", "", "no xml at all"])
def test_what_is_no_report_or_declares_a_document_type_is_passed_over(tmp_path: Path, text: str) -> None:
    bad = write(tmp_path / "junit.xml", text)
    assert counts(bad, tmp_path / "gone.xml") is None
    assert counts(bad, write(tmp_path / "TEST-a.xml", REPORT)) == TestCounts(1, 2, 1, 4)


def test_an_empty_report_is_a_report_of_no_tests(tmp_path: Path) -> None:
    assert counts(write(tmp_path / "junit.xml", "<testsuites/>")) == TestCounts(0, 0, 0, 0)


def test_reports_are_found_by_name_by_folder_and_by_time(tmp_path: Path) -> None:
    found = [
        write(tmp_path / name, REPORT)
        for name in ("build/test-junit-1.xml", "target/surefire-reports/TEST-a.B.xml", "reports/unit/all.xml")
    ]
    write(tmp_path / "pom.xml", "<project/>")
    write(tmp_path / "node_modules/x/junit.xml", REPORT)
    old = write(tmp_path / "old-junit.xml", REPORT)
    os.utime(old, ns=(1_000, 1_000))
    elsewhere = write(tmp_path.parent / "junit-elsewhere.xml", REPORT)
    (tmp_path / "junit-link.xml").symlink_to(elsewhere)
    assert sorted(junit.find_reports(tmp_path, 2_000)) == sorted(found)


def test_a_huge_report_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(junit, "LARGEST", 100)
    write(tmp_path / "junit.xml", REPORT)
    assert junit.find_reports(tmp_path, 0) == []


def test_pytests_tests_of_a_class_that_another_module_imports_are_those_of_that_module(tmp_path: Path) -> None:
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


def test_a_message_has_paths_as_in_the_repository(tmp_path: Path) -> None:
    said = f'<failure message="cannot import x ({tmp_path}/shop/prices.py)"/>'
    file = write(tmp_path / "junit.xml", f'<testsuite><testcase name="a">{said}</testcase></testsuite>')
    assert read_outcome("", [file], exit_code=1, top=tmp_path).failures == {"a": "cannot import x (shop/prices.py)"}

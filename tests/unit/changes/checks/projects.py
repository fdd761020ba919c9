"""Small projects, one per kind of test runner: three tests in two files, and ways in which they fail."""

from __future__ import annotations

from collections.abc import Callable

Files = dict[str, str]
PASS, FAIL, SKIP, GONE = "pass", "fail", "skip", "gone"


# -- Python ------------------------------------------------------------------------------------------------------------


def python(adds: str, subtracts: str) -> Files:
    def test(name: str, state: str, right: str, wrong: str) -> str:
        if state == GONE:
            return ""
        mark = "@pytest.mark.skip(reason='later')\n" if state == SKIP else ""
        return f"{mark}def {name}():\n    assert {wrong if state == FAIL else right}\n\n\n"

    return {
        "sums.py": "def add(a, b):\n    return a + b\n",
        "test_sums.py": "import pytest\n\nfrom sums import add\n\n\n"
        + test("test_adds", adds, "add(1, 1) == 2", "add(1, 1) == 3")
        + "class TestMore:\n"
        + "".join(
            f"    {line}\n" if line else "\n"
            for line in (test("test_subtracts", subtracts, "add(2, -1) == 1", "add(2, -1) == 4") or "pass").splitlines()
        ).replace("()", "(self)", 1),
        "test_words.py": "import pytest\n\n\n@pytest.mark.parametrize('word', ['a b', 'ö'])\ndef test_upper(word):\n"
        "    assert word.upper() != word\n",
    }


PYTHON_MORE: dict[str, tuple[Files, str]] = {
    "missing": ({"test_sums.py": "import no_such_thing\n\n\ndef test_adds():\n    pass\n"}, ""),
    "missing_all": (
        {
            "sums.py": "import no_such_thing\n",
            "test_sums.py": "import sums\n\n\ndef test_adds():\n    pass\n",
            "test_words.py": "import sums\n\n\ndef test_upper():\n    pass\n",
        },
        "",
    ),
    "syntax": ({"test_sums.py": "def test_adds(:\n    pass\n"}, ""),
    "none": ({"test_sums.py": "", "test_words.py": ""}, ""),
    "crash": ({"test_words.py": "import os\n\n\ndef test_upper():\n    os._exit(3)\n"}, ""),
    "error": (
        {
            "test_words.py": "import pytest\n\n\n@pytest.fixture\ndef broken():\n    raise ValueError('in the fixture')\n\n\n"
            "def test_upper(broken):\n    pass\n"
        },
        "",
    ),
}


def unittest(adds: str, subtracts: str) -> Files:
    def test(name: str, state: str, right: str, wrong: str) -> str:
        if state == GONE:
            return ""
        mark = "    @unittest.skip('later')\n" if state == SKIP else ""
        return f"{mark}    def {name}(self):\n        self.assertEqual({wrong if state == FAIL else right})\n\n"

    return {
        "sums.py": "def add(a, b):\n    return a + b\n",
        "test_sums.py": "import unittest\n\nfrom sums import add\n\n\nclass Sums(unittest.TestCase):\n"
        + test("test_adds", adds, "add(1, 1), 2", "add(1, 1), 3")
        + test("test_subtracts", subtracts, "add(2, -1), 1", "add(2, -1), 4")
        + "    def test_zero(self):\n        pass\n",
        "test_words.py": "import unittest\n\n\nclass Words(unittest.TestCase):\n    def test_upper(self):\n"
        '        """Words in capitals."""\n        self.assertEqual("a".upper(), "A")\n',
    }


UNITTEST_MORE: dict[str, tuple[Files, str]] = {
    "missing": ({"test_sums.py": "import no_such_thing\n"}, ""),
    "missing_all": (
        {"sums.py": "import no_such_thing\n", "test_sums.py": "import sums\n", "test_words.py": "import sums\n"},
        "",
    ),
    "syntax": ({"test_sums.py": "def test_adds(:\n    pass\n"}, ""),
    "none": ({"test_sums.py": "", "test_words.py": ""}, ""),
    "crash": (
        {
            "test_words.py": "import os\nimport unittest\n\n\nclass Words(unittest.TestCase):\n"
            "    def test_upper(self):\n        os._exit(3)\n"
        },
        "",
    ),
    "error": (
        {
            "test_words.py": "import unittest\n\n\nclass Words(unittest.TestCase):\n"
            "    @classmethod\n    def setUpClass(cls):\n        raise ValueError('in the set-up')\n\n"
            "    def test_upper(self):\n        pass\n"
        },
        "",
    ),
    "subtests": (
        {
            "test_words.py": "import unittest\n\n\nclass Words(unittest.TestCase):\n    def test_upper(self):\n"
            "        for n in range(3):\n            with self.subTest('odd', n=n):\n"
            "                self.assertEqual(n % 2, 0)\n"
        },
        "",
    ),
}


def django(adds: str, subtracts: str) -> Files:
    files = unittest(adds, subtracts)
    return {
        "manage.py": "import os\nimport sys\n\nos.environ['DJANGO_SETTINGS_MODULE'] = 'settings'\n"
        "from django.core.management import execute_from_command_line\n\nexecute_from_command_line(sys.argv)\n",
        "settings.py": "SECRET_KEY = 'x'\nINSTALLED_APPS = ['shop']\nUSE_TZ = True\n"
        "DATABASES = {'default': {'ENGINE': 'django.db.backends.sqlite3', 'NAME': ':memory:'}}\n",
        "shop/__init__.py": "",
        "sums.py": files["sums.py"],
        "shop/test_sums.py": files["test_sums.py"],
        "shop/test_words.py": files["test_words.py"],
    }


DJANGO_MORE: dict[str, tuple[Files, str]] = {
    "missing": ({"shop/test_sums.py": "import no_such_thing\n"}, ""),
    "missing_all": ({"settings.py": "INSTALLED_APPS = ['no_such_thing']\nSECRET_KEY = 'x'\n"}, ""),
    "syntax": ({"shop/test_sums.py": "def test_adds(:\n    pass\n"}, ""),
    "none": ({"shop/test_sums.py": "", "shop/test_words.py": ""}, ""),
}

# -- Node --------------------------------------------------------------------------------------------------------------


def _node_sums(test: Callable[[str, str, str, str], str], adds: str, subtracts: str) -> str:
    return test("adds", adds, "1 + 1, 2", "1 + 1, 3") + test("subtracts it", subtracts, "2 - 1, 1", "2 - 1, 4")


def _described(skip: str) -> Callable[[str, str, str, str], str]:
    def test(name: str, state: str, right: str, wrong: str) -> str:
        if state == GONE:
            return ""
        word = skip if state == SKIP else "it"
        return f"  {word}('{name}', () => {{ equal({wrong if state == FAIL else right}); }});\n"

    return test


def suites(head: str, equal: str, end: str = "js") -> Callable[[str, str], Files]:
    def files(adds: str, subtracts: str) -> Files:
        start = f"{head}{equal}"
        return {
            "package.json": '{"name": "sums", "version": "1.0.0", "private": true}\n',
            f"test/sums.test.{end}": f"{start}describe('sums', () => {{\n"
            f"{_node_sums(_described('it.skip'), adds, subtracts)}}});\n",
            f"test/words.test.{end}": f"{start}describe('words', () => {{\n  describe('case', () => {{\n"
            "    it('upper', () => { equal('a'.toUpperCase(), 'A'); });\n  });\n});\n",
        }

    return files


ASSERT = "const equal = require('node:assert').strictEqual;\n"
EXPECT = "const equal = (a, b) => expect(a).toBe(b);\n"


def node_more(end: str, head: str = "", none: str = "") -> dict[str, tuple[Files, str]]:
    file, other = f"test/sums.test.{end}", f"test/words.test.{end}"
    imported = "import 'no-such-thing';\n" if end == "mjs" else "require('no-such-thing');\n"
    return {
        "missing": ({file: f"{imported}{head}it('adds', () => {{}});\n"}, ""),
        "missing_all": ({file: imported, other: imported}, ""),
        "syntax": ({file: "describe('sums', () => {\n"}, ""),
        "none": ({file: "", other: ""}, none),
        "crash": ({other: f"{head}it('upper', () => {{ process.exit(3); }});\n"}, ""),
    }


def calls(head: str, skip: Callable[[str], str], body: str, end: str = "js") -> Callable[[str, str], Files]:
    """Return a maker of projects for runners without suites: `body` has the placeholders NAME and ARGS."""

    def test(name: str, state: str, right: str, wrong: str) -> str:
        if state == GONE:
            return ""
        text = body.replace("NAME", name).replace("ARGS", wrong if state == FAIL else right)
        return skip(text) if state == SKIP else text

    def files(adds: str, subtracts: str) -> Files:
        return {
            "package.json": '{"name": "sums", "version": "1.0.0", "private": true}\n',
            f"test/sums.test.{end}": head + _node_sums(test, adds, subtracts),
            f"test/words.test.{end}": head + test("upper", PASS, "'a'.toUpperCase(), 'A'", ""),
        }

    return files


def call_more(head: str, end: str = "js") -> dict[str, tuple[Files, str]]:
    file, other = f"test/sums.test.{end}", f"test/words.test.{end}"
    imported = "require('no-such-thing');\n" if end == "js" else "import 'no-such-thing';\n"
    return {
        "missing": ({file: imported}, ""),
        "missing_all": ({file: imported, other: imported}, ""),
        "syntax": ({file: f"{head}test('adds', (t) => {{\n"}, ""),
        "none": ({file: "", other: ""}, ""),
        "crash": ({other: f"{head}test('upper', (t) => {{ process.exit(3); }});\n"}, ""),
    }


NODE_HEAD = "const { describe, it } = require('node:test');\n"
TAPE_HEAD = "const test = require('tape');\n"
AVA_HEAD = "import test from 'ava';\n"

# -- compiled ----------------------------------------------------------------------------------------------------------


def go(adds: str, subtracts: str) -> Files:
    def test(name: str, state: str, right: str, wrong: str) -> str:
        if state == GONE:
            return ""
        skip = '\tt.Skip("later")\n' if state == SKIP else ""
        call = wrong if state == FAIL else right
        return f'func {name}(t *testing.T) {{\n{skip}\tif got := {call}; got != 2 {{\n\t\tt.Errorf("got %d", got)\n\t}}\n}}\n\n'

    return {
        "go.mod": "module example.com/sums\n\ngo 1.19\n",
        "sums.go": "package sums\n\nfunc Add(a, b int) int { return a + b }\n",
        "sums_test.go": 'package sums\n\nimport "testing"\n\n'
        + test("TestAdds", adds, "Add(1, 1)", "Add(1, 2)")
        + test("TestSubtracts", subtracts, "Add(3, -1)", "Add(4, -1)"),
        "words/words.go": 'package words\n\nimport "strings"\n\nfunc Upper(w string) string { return strings.ToUpper(w) }\n',
        "words/words_test.go": 'package words\n\nimport "testing"\n\nfunc TestUpper(t *testing.T) {\n'
        '\tt.Run("one word", func(t *testing.T) {\n\t\tif Upper("a") != "A" {\n\t\t\tt.Fatal("no")\n\t\t}\n\t})\n}\n',
    }


GO_MORE: dict[str, tuple[Files, str]] = {
    "missing": (
        {
            "sums.go": 'package sums\n\nimport "example.org/no/such"\n\nfunc Add(a, b int) int { return such.Add(a, b) }\n'
        },
        "",
    ),
    "syntax": ({"sums.go": "package sums\n\nfunc Add(a, b int) int { return a + c }\n"}, ""),
    "crash": (
        {"words/words.go": 'package words\n\nfunc Upper(w string) string { panic("no words") }\n'},
        "",
    ),
    "exit": (
        {"words/words.go": 'package words\n\nimport "os"\n\nfunc Upper(w string) string { os.Exit(3); return w }\n'},
        "",
    ),
    "none": ({"sums_test.go": "", "words/words_test.go": ""}, ""),
    "subtest": (
        {
            "words/words.go": "package words\n\nfunc Upper(w string) string { return w }\n",
        },
        "",
    ),
}


def cargo(adds: str, subtracts: str) -> Files:
    def test(name: str, state: str, right: str, wrong: str) -> str:
        if state == GONE:
            return ""
        skip = "    #[ignore]\n" if state == SKIP else ""
        return f"    #[test]\n{skip}    fn {name}() {{\n        assert_eq!({wrong if state == FAIL else right}, 2);\n    }}\n"

    return {
        "Cargo.toml": '[package]\nname = "sums"\nversion = "0.1.0"\nedition = "2021"\n',
        "Cargo.lock": 'version = 4\n\n[[package]]\nname = "sums"\nversion = "0.1.0"\n',
        "src/lib.rs": "/// Adds.\n///\n/// ```\n/// assert_eq!(sums::add(1, 1), 2);\n/// ```\n"
        "pub fn add(a: i32, b: i32) -> i32 {\n    a + b\n}\n\n#[cfg(test)]\nmod tests {\n    use super::*;\n\n"
        + test("adds", adds, "add(1, 1)", "add(1, 2)")
        + test("subtracts", subtracts, "add(3, -1)", "add(4, -1)")
        + "}\n",
        "tests/words.rs": '#[test]\nfn upper() {\n    assert_eq!("a".to_uppercase(), "A");\n}\n',
    }


CARGO_MORE: dict[str, tuple[Files, str]] = {
    "missing": (
        {
            "Cargo.toml": '[package]\nname = "sums"\nversion = "0.1.0"\nedition = "2021"\n\n[dependencies]\nno-such-thing = "1"\n'
        },
        "",
    ),
    "syntax": ({"tests/words.rs": "#[test]\nfn upper() {\n    let x: i32 = sums::nothing();\n}\n"}, ""),
    "doctest": (
        {
            "src/lib.rs": "/// Adds.\n///\n/// ```\n/// assert_eq!(sums::add(1, 1), 3);\n/// ```\n"
            "pub fn add(a: i32, b: i32) -> i32 {\n    a + b\n}\n"
        },
        "",
    ),
    "crash": ({"tests/words.rs": "#[test]\nfn upper() {\n    std::process::abort();\n}\n"}, ""),
}


def ctest(adds: str, subtracts: str) -> Files:
    def test(name: str, state: str, right: str, wrong: str) -> str:
        if state == GONE:
            return ""
        line = f"add_test(NAME {name} COMMAND sums {wrong if state == FAIL else right})\n"
        return line + (f"set_tests_properties({name} PROPERTIES DISABLED TRUE)\n" if state == SKIP else "")

    return {
        "CMakeLists.txt": "cmake_minimum_required(VERSION 3.16)\nproject(sums C)\nenable_testing()\nadd_executable(sums sums.c)\n"
        + test("adds", adds, "1 1", "1 2")
        + test("subtracts", subtracts, "3 -1", "4 -1")
        + "add_test(NAME upper COMMAND sums 2 0)\n",
        "sums.c": "#include <stdio.h>\n#include <stdlib.h>\n\nint main(int n, char **words)\n{\n"
        "    int sum = atoi(words[1]) + atoi(words[2]);\n"
        '    printf("sum %d\\n", sum);\n    return sum != 2;\n}\n',
    }


CTEST_MORE: dict[str, tuple[Files, str]] = {
    "missing": ({"sums.c": "#include <no_such_thing.h>\n\nint main(void) { return 0; }\n"}, ""),
    "missing_package": (
        {
            "CMakeLists.txt": "cmake_minimum_required(VERSION 3.16)\nproject(sums C)\nfind_package(NoSuchThing REQUIRED)\n"
        },
        "",
    ),
    "syntax": ({"sums.c": "int main(void) { return nothing; }\n"}, ""),
    "none": ({"CMakeLists.txt": "cmake_minimum_required(VERSION 3.16)\nproject(sums C)\nenable_testing()\n"}, ""),
    "crash": (
        {"sums.c": "#include <stdlib.h>\n\nint main(void) { abort(); }\n"},
        "",
    ),
}
CTEST = "cmake -S . -B build && cmake --build build && ctest --test-dir build"


def meson(adds: str, subtracts: str) -> Files:
    def test(name: str, state: str, right: str, wrong: str) -> str:
        if state == GONE:
            return ""
        words = ", ".join(f"'{word}'" for word in (wrong if state == FAIL else right).split())
        return f"test('{name}', sums, args: [{words}])\n"

    source = ctest(PASS, PASS)["sums.c"].replace("return sum != 2", "return n > 3 ? 77 : sum != 2")
    return {
        "meson.build": "project('sums', 'c')\nsums = executable('sums', 'sums.c')\n"
        + test("adds", adds, "1 1", "1 2")
        + test(
            "subtracts", subtracts if subtracts != SKIP else PASS, "3 -1 skip" if subtracts == SKIP else "3 -1", "4 -1"
        )
        + "test('upper', sums, args: ['2', '0'])\n",
        "sums.c": source,
    }


def prove(adds: str, subtracts: str) -> Files:
    def test(name: str, state: str, right: str, wrong: str) -> str:
        if state == GONE:
            return ""
        if state == SKIP:
            return f"SKIP: {{ skip 'later', 1; is({right}, '{name}'); }}\n"
        return f"is({wrong if state == FAIL else right}, '{name}');\n"

    return {
        "t/sums.t": "use strict; use warnings; use Test::More;\n"
        + test("adds", adds, "1 + 1, 2", "1 + 1, 3")
        + test("subtracts it", subtracts, "2 - 1, 1", "2 - 1, 4")
        + "done_testing();\n",
        "t/words.t": "use strict; use warnings; use Test::More;\nsubtest 'case' => sub { is(uc('a'), 'A', 'upper'); };\ndone_testing();\n",
    }

"""Names stay names in every language that they are written into."""

import ast
import csv
import io
import json
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright import quoting
from tilewright.compiler.graph import Graph
from tilewright.errors import ArtifactError, ConfigurationError
from tilewright.flows.cli.console import say
from tilewright.flows.cli.main import main
from tilewright.flows.sweep.export import _as_csv
from tilewright.isa.configuration import PRESETS, Configuration
from tilewright.quoting import (
    c_name,
    comment,
    csv_cell,
    html_text,
    is_count,
    is_name,
    plain_word,
    printable,
    script_json,
    shell_word,
    tcl_list,
    tcl_word,
)
from tilewright.runtime.manifest import module_of

from .syntax_trees import syntax_trees

ROOT = Path(__file__).parents[1]

HOSTILE = (
    "\x1b]0;title\x07\x1b[2J", "a\nset x [exec id]", "} ; exec id ; {", "[exec id]", "$env(HOME)",
    "a\\", "*/ int x; /*", "'; id; '", "$(id)", "`id`", "=1+cmd|' /C calc'!A0", "-2+3", "@SUM(1)",
    "</script><script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "&lt;", "\u202egpj.exe",
    "a\x00b", "\ud800", "a\r\nb", "{", "}", "#", "a b", "", "~", "%s", "\u2028",
)  # fmt: skip

texts = st.one_of(st.sampled_from(HOSTILE), st.text(), st.text("{}[]$\\\"'; #\n=<>/*a"))


def tcl_words(line: str) -> list[str]:
    """The words of a command, as Tcl's rules say (man n Tcl); no substitution may happen."""
    words, at = [], 0
    while at < len(line):
        word = ""
        if line[at] == "{":
            depth, start = 1, at + 1
            while depth:
                at += 1
                assert line[at] != "\\"
                depth += {"{": 1, "}": -1}.get(line[at], 0)
            word, at = line[start:at], at + 1
        else:
            quoted = line[at] == '"'
            at += quoted
            while at < len(line) and line[at] != ('"' if quoted else " "):
                assert line[at] not in "[]$\n", "a substitution, or the end of the command"
                assert quoted or line[at] not in '{}";', "not part of a word"
                at += line[at] == "\\"
                word, at = word + line[at], at + 1
            at += quoted
        assert at == len(line) or line[at] == " ", "two words, or none"
        words, at = [*words, word], at + 1
    return words


@given(texts)
def test_a_word_of_tcl_is_itself(text):
    assert tcl_words(f"set x {tcl_word(text)}") == ["set", "x", printable(text)]


@given(st.lists(texts, min_size=1))
def test_a_list_of_tcl_has_its_words(words):
    assert tcl_words(tcl_list(words)) == [printable(word) for word in words]


@given(texts)
def test_a_plain_word_is_itself_or_refused(text):
    if re.fullmatch(r"[A-Za-z0-9_./+-]+", text):
        assert plain_word(text) == text
    else:
        with pytest.raises(ValueError, match="expected letters, digits and"):
            plain_word(text)


@given(texts)
def test_a_comment_ends_where_it_should(text):
    made = comment(text)
    assert made.isprintable()
    assert "*/" not in made
    assert not made.endswith("\\"), "the next line would be part of it"


@given(texts)
def test_what_is_printed_cannot_control_a_terminal(text):
    assert printable(text).isprintable()
    assert (printable(text) == text) is text.isprintable()


@given(texts)
def test_a_cell_is_computed_by_no_spreadsheet(text):
    made = _as_csv([{"key": text, "network": text}])
    for row in list(csv.reader(io.StringIO(made)))[1:]:
        assert row[0][:1] not in tuple("=+-@\t\r")
        assert row[0].removeprefix("'") == printable(text, keep="\n").removeprefix("'")
    assert csv_cell(-7) == -7


@given(texts)
def test_html_shows_the_text_alone(text):
    tags: list[str] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attrs: tags.append(f"{tag} {dict(attrs).get('t')}")
    parser.feed(f'<p t="{html_text(text)}">{html_text(text)}</p>')
    parser.close()
    assert [tag.partition(" ")[0] for tag in tags] == ["p"]


@given(texts)
def test_no_data_ends_its_script(text):
    made = script_json({"name": text})
    assert not set("<>&\u2028\u2029") & set(made)
    assert json.loads(made) == {"name": text}


@given(texts)
def test_names_in_c_are_identifiers(text):
    assert f"in_{c_name(text)}".isidentifier()
    assert c_name(text).isascii()


@pytest.mark.parametrize("text", [text for text in HOSTILE if text.isprintable() and text])
def test_a_shell_reads_the_same_word(text):
    command = f"printf %s {shell_word(text)}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, check=True)
    assert done.stdout.decode() == text


@given(texts)
def test_a_command_to_copy_is_printable(text):
    assert shell_word(text).isprintable()


@pytest.mark.parametrize("name", [*(text for text in HOSTILE if not is_name(text)), "a" * 1001, 7])
def test_names_are_checked_at_the_door(name):
    with pytest.raises(ConfigurationError, match="expected a `name` of 1 to 1,000 printable"):
        PRESETS["tiny"].replace(name=name)
    with pytest.raises(ConfigurationError):
        Configuration.from_dict({"name": name})
    with pytest.raises(ArtifactError):
        module_of(Graph("g", (), (), (), ()), PRESETS["tiny"], {"steps": [], "name": name}, [])


def test_printable_names_cannot_break_out_of_what_is_written(tmp_path, capsys):
    """The whole way for one name, from a file to Verilog and Tcl."""
    path = tmp_path / "it.json"
    name = '} [exec id] "; */ endmodule'
    path.write_text(json.dumps({**PRESETS["tiny"].parameters(), "name": name}))
    assert main(["verilog", "--config", str(path)]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "exec id" in line]
    assert line.startswith("// ")


def test_results_and_errors_on_the_terminal_are_printable(tmp_path, capsys):
    say("\x1b[31mred\na second line")
    assert main(["config", "show", "\x1b[31mred"]) == 1
    assert main(["run", str(tmp_path / "\x1b[31m.onnx")]) == 1
    assert main(["inspect", "x" * 5000]) == 1
    said = capsys.readouterr()
    assert "\x1b" not in said.out + said.err
    assert max(map(len, said.err.splitlines())) < 5000


DOORS = {
    "compiler/frontend/pytorch.py",
    "flows/cli/progress.py",
    "flows/cli/console.py",
    "flows/cli/main.py",
    "isa/manual.py",
    "runtime/host.py",
    "sim/toolchain.py",
}
"""Modules that print; whatever they print passes `printable` or holds no name."""

PRINTERS = ("flows/cli", "flows/reports", "flows/sweep", "flows/board", "flows/execution",
            "runtime", "sim", "compiler", "isa", "hardware")  # fmt: skip

NAMED = re.compile(r"(configuration|module|graph|board)\.name$|pin\.(site|pull)$|board\.standard$")
"""Names that users and strangers choose."""

WRITERS = ("flows/verilog/readable.py", "flows/board/vivado.py", "flows/board/vivado_system.py",
           "flows/board/constraints.py", "flows/bare_metal/network.py")  # fmt: skip
"""Modules that write other languages."""


def test_only_the_doors_print():
    """Everything else goes through `say`, `table` or `progress`, which escape."""
    found = set()
    paths = [path for folder in PRINTERS for path in (ROOT / folder).rglob("*.py")]
    for path, tree in syntax_trees(paths).items():
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "print":
                found.add(str(path.relative_to(ROOT)))
    assert found - DOORS == set()


def test_no_name_is_written_without_quotes():
    """In text of other languages, such a name stands in a call of a function of `quoting`."""
    quoters = {name for name in vars(quoting) if not name.startswith("_")}
    for path in WRITERS:
        tree = ast.parse((ROOT / path).read_text())
        quoted = {
            id(part)
            for call in ast.walk(tree)
            if (isinstance(call, ast.Call) and getattr(call.func, "id", "") in quoters)
            or isinstance(call, ast.Raise)
            for part in ast.walk(call)
        }
        for text in (one for one in ast.walk(tree) if isinstance(one, ast.FormattedValue)):
            for part in ast.walk(text):
                if NAMED.search(ast.unparse(part)) and isinstance(part, ast.Attribute):
                    assert id(part) in quoted, f"{path}:{part.lineno}: quote it"


def test_a_count_is_a_number_that_int_reads():
    assert [text for text in ("0", "007", "9" * 18) if not is_count(text)] == []
    odd = ("", "-1", "+1", " 1", "1_0", "\u0663", "\u00b2", "9" * 19, "9" * 5000)
    assert [text for text in odd if is_count(text)] == []

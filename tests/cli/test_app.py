"""The command: quick, one line for every fault, the promised exit codes, and no traceback."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import subprocess
import sys

import pytest

from sightline.cli import app, commands
from sightline.errors import InputError, NonFiniteError, StorageError, UnreadableDataError

VERB = """
from typing import Literal


def {name}(word: str, *, resolution: int = 32, pool: Literal["cls", "mean"] = "cls") -> None:
    \"\"\"Say a word.\"\"\"
    print(word, resolution, pool)
"""


@pytest.fixture
def verb(tmp_path, monkeypatch):
    """A command from a file of a test's own, as a new file in `commands/` would be."""
    monkeypatch.setattr(app, "COMMANDS", {"say_it": "Say a word."})
    (tmp_path / "say_it.py").write_text(VERB.format(name="say_it"))
    monkeypatch.setattr(commands, "__path__", [str(tmp_path)])
    yield
    sys.modules.pop("sightline.cli.commands.say_it", None)


def test_a_file_is_a_verb(verb, capsys):
    assert app.main(["say-it", "hello", "--resolution", "64"]) == 0
    assert capsys.readouterr().out == "hello 64 cls\n"
    assert app.main(["--help"]) == 0
    assert "Say a word." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["say-it", "a", "--resolutoin", "3"], ["--resolutoin", "--resolution", "See: sightline say-it --help"]),
        (["say-it", "a", "--resolution", "x"], ["--resolution", "int"]),
        (["say-it", "a", "--resolution"], ["--resolution"]),
        (["say-it", "a", "--pool", "men"], ["men", "cls", "mean"]),
        (["say-it", "a", "--no-pool"], ["--no-pool"]),
        (["say-it"], ["word"]),
        (["say-it", "a", "b"], ["b"]),
        (["say-ti", "a"], ["say-ti", "say-it"]),
        (["--nothing"], ["--nothing"]),
    ],
)
def test_wrong_use_is_one_line_and_exit_2(verb, arguments, words, capsys):
    assert app.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("sightline: error: ")
    assert err.count("\n") == 1
    for word in words:
        assert word in err, err


@pytest.mark.parametrize(
    ("fault", "code", "line"),
    [
        (InputError("a.yaml: lr\nis wrong"), 2, "sightline: error: a.yaml: lr is wrong\n"),
        (UnreadableDataError("too many"), 3, "sightline: error: too many\n"),
        (NonFiniteError("step 3"), 4, "sightline: error: step 3\n"),
        (StorageError("disk"), 5, "sightline: error: disk\n"),
        (OSError(28, "No space left on device", "runs/a"), 5, "sightline: error: runs/a: No space left on device\n"),
        (KeyboardInterrupt(), 130, "sightline: interrupted\n"),
    ],
)
def test_exit_codes(fault, code, line, monkeypatch, capsys):
    def broken():
        def run(arguments):
            raise fault

        return run

    monkeypatch.setattr(app, "build_app", broken)
    assert app.main([]) == code
    assert capsys.readouterr() == ("", line)


def test_a_verbs_number_is_the_exit_code(monkeypatch):
    monkeypatch.setattr(app, "build_app", lambda: lambda arguments: 7)
    assert app.main([]) == 7


def test_a_mistake_in_our_own_code_is_not_hidden(monkeypatch):
    def broken():
        raise ZeroDivisionError

    monkeypatch.setattr(app, "build_app", broken)
    with pytest.raises(ZeroDivisionError):
        app.main([])


def test_no_help_needs_torch():
    code = "import sys; from sightline.cli.app import COMMANDS, main; [main([one, '--help']) for one in COMMANDS]; "
    done = subprocess.run(
        [sys.executable, "-c", code + "print(); print('torch' in sys.modules)"], capture_output=True, text=True
    )
    assert (done.stdout.splitlines()[-1], done.stderr) == ("False", "")


def test_the_help_of_a_command_is_its_whole_docstring(capsys):
    for name in ("evaluate", "status"):
        module = importlib.import_module(f"sightline.cli.commands.{name}")
        _, details, *_ = inspect.getdoc(getattr(module, name)).split("\n\n")
        assert app.main([name, "--help"]) == 0
        assert " ".join(details.split()) in " ".join(capsys.readouterr().out.split())


def test_a_fault_shows_its_traceback_where_asked(capsys):
    for words, count in ((["encodings", "rope"], 0), (["--debug", "encodings", "rope"], 1)):
        assert app.main(words) == 2
        assert capsys.readouterr().err.count("Traceback") == count


def test_help_loads_nothing_heavy():
    """The promise is 0.6 s; what is loaded decides it, and does not depend on how busy the machine is."""
    code = "import sys; from sightline.cli.app import main; main(['--help']); print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.splitlines()}
    heavy = {"torch", "numpy", "PIL", "matplotlib", "pydantic", "yaml", "jinja2", "timm", "safetensors", "sklearn"}
    assert loaded.isdisjoint(heavy)


def test_a_reader_that_goes_away_is_no_fault():
    code = [sys.executable, "-m", "sightline", "--help"]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(code, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert done.stderr == ""
    assert done.returncode == app.PIPE_CLOSED


@pytest.mark.slow
def test_no_standard_error(tmp_path):
    """What would be said there is lost: it goes neither to standard output nor into a file that is opened next."""
    out = tmp_path / "rows.jsonl"
    line = '"$0" -m sightline bench memory --model vit_micro_patch4 --resolution 32 --device cpu --out "$1" 2>&-'
    done = subprocess.run(["sh", "-c", line, sys.executable, str(out)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert all(json.loads(row)["benchmark"] == "memory" for row in out.read_text().splitlines())
    done = subprocess.run(["sh", "-c", '"$0" -m sightline none 2>&-', sys.executable], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


def test_in_a_folder_that_was_deleted(tmp_path):
    line = f'cd "{tmp_path}" && rmdir "{tmp_path}" && "$0" -m sightline models'
    done = subprocess.run(["sh", "-c", line, sys.executable], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "sightline: error: the current folder was deleted; go to one that exists (cd)\n"
    tmp_path.mkdir()


def test_a_terminal_of_one_column(monkeypatch, capsys):
    """It took minutes; now it is as wide as a table needs."""
    monkeypatch.setenv("COLUMNS", "1")
    assert app.main(["pack", "--help"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) > 20
    assert os.environ["COLUMNS"] == "40"

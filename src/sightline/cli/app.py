"""The command `sightline`: finds its verbs in `commands/`, and turns every fault of the user into one line.

A verb is what its file holds under the file's own name: a function, or an `App` with sub-verbs. It imports what it
needs inside its function, so that `sightline --help` stays quick.
"""

from __future__ import annotations

import importlib
import io
import pkgutil
import sys
from collections.abc import Sequence
from typing import Any

from cyclopts import App, CycloptsError, Parameter, Token, convert

from sightline import __version__
from sightline.cli import commands
from sightline.errors import InputError, SightlineError, StorageError

INTERRUPTED = 130
# As rich does where it is the one that notices.
PIPE_CLOSED = 1


def build_app() -> App:
    """The command-line application with every verb of `commands/`."""
    app = App(
        name="sightline",
        help="Plain vision transformers at any resolution and aspect ratio.",
        version=__version__,
        # `main` prints errors in one line and chooses the exit code.
        print_error=False,
        exit_on_error=False,
        result_action="return_value",
        suppress_keyboard_interrupt=False,
        # An option is named once: no --no-json beside --json.
        default_parameter=Parameter(negative=(), converter=_convert),
    )
    for module in pkgutil.iter_modules(commands.__path__):
        verb = getattr(importlib.import_module(f"{commands.__name__}.{module.name}"), module.name)
        app.command(verb, name=module.name.replace("_", "-"))
    return app


def _convert(kind: type, tokens: Sequence[Token]) -> Any:
    """As cyclopts does, but a fraction is no whole number: its own rule rounds 1.5."""
    if kind is int and "." in tokens[0].value:
        raise ValueError(f'"{tokens[0].value}" is no whole number (int)')
    return convert(kind, tokens)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command (by default that of the process) and return its exit code.

    0 done; 2 wrong input or configuration; 3 unreadable data; 4 a number became non-finite; 5 storage failed;
    130 interrupted; 1 the reader of the output went away.
    """
    for stream in (sys.stdout, sys.stderr):
        # A name of a file may hold what the terminal's encoding does not.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        result = build_app()(list(sys.argv[1:] if arguments is None else arguments))
        # Here and not at exit, so that a closed pipe is noticed where it can be handled.
        if sys.stdout is not None:
            sys.stdout.flush()
    except SightlineError as error:
        return _complain(error)
    except CycloptsError as error:
        return _complain(InputError(f"{error} See: {' '.join(('sightline', *(error.command_chain or ())))} --help"))
    except KeyboardInterrupt:
        print("sightline: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # What is still buffered has no reader; without this, the interpreter would complain about it at exit.
        sys.stdout = None
        return PIPE_CLOSED
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _complain(StorageError(f"{where}{error.strerror or error}"))
    except (MemoryError, OverflowError, RuntimeError) as error:
        # Sizes beyond this machine's memory, which torch reports as a RuntimeError: still one line.
        said = " ".join(str(error).split())[:300]
        return _complain(SightlineError(f"{type(error).__name__}: {said or 'out of memory'} (try smaller sizes)"))
    return result if isinstance(result, int) else 0


def _complain(error: SightlineError) -> int:
    print(f"sightline: error: {' '.join(str(error).split())}", file=sys.stderr)
    return error.exit_code

"""The command `sightline`: its commands, and one line for every fault of the user.

A command is what its file in `commands/` holds under the file's own name: a function, or an `App` with sub-commands.
The file is imported when the command is called, and imports what it needs inside its function, so that `--help` stays
quick. Nothing here is slow to import: signals are heeded before anything else is.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sightline import __version__, plugins
from sightline.distributed import machine, ranks, signals
from sightline.errors import InputError, RanksError, SightlineError, StoppedError, StorageError

if TYPE_CHECKING:
    from cyclopts import App

# As rich does where it is the one that notices.
PIPE_CLOSED = 1
# In fewer columns, rich puts a letter a line and takes minutes to find that out.
_NARROWEST = 40
# Each with the first line of its own help, which a test compares: its file is not imported for the list of all.
COMMANDS = {
    "analyse": "Measure and plot what happens inside models: attention, tokens and weights, at any image size.",
    "bench": "Estimate the memory of a model, and measure the speed of models on this machine.",
    "cascade": "Measure accuracy against tokens and time, for single budgets and for a cascade of two.",
    "classes": "Compare the accuracy on each class between sizes and models, from stored logits.",
    "compare": "Train encodings with one recipe and several seeds on drawn scenes, and compare them at many sizes.",
    "convert": "Convert the weights of another project to a model of ours.",
    "data": "Check a data set.",
    "demo": "Train three position encodings on drawn scenes at 32 px, and test them at other sizes.",
    "encodings": "List the position encodings, or show one with its paper and its rule for a new grid.",
    "evaluate": "Measure a model at many image sizes: accuracy, calibration, likelihood, or the metrics of its task.",
    "explore": "Open a local page that shows where each head of one or two models looks, at any size, from any patch.",
    "export": "Write a model as one ONNX or torch file for any batch size, height and width.",
    "models": "List the registered models: width, depth, heads, parameters and training resolution.",
    "pack": "Show how images of many sizes pack into sequences without padding.",
    "predict": "Predict classes, masks or boxes for images of any size and aspect ratio.",
    "report": "Write one self-contained HTML page that compares runs: curves, tables, scenes, fields of view.",
    "rescore": "Compute every metric of a classifier again from stored logits, without model and images.",
    "scenes": "Draw scenes of the embedded data set on one sheet.",
    "status": "Show the progress of a run or a sweep, from any terminal or machine that sees its files.",
    "sweep": "Train every configuration of a grid or a search, and print best and average for each encoding.",
    "table": "Print the best and the average of some runs for each encoding, with the settings of the best.",
    "train": "Train a model at one image size, or packed at many, and test it.",
    "transfer": "Fine-tune a model to data sets by ViT's protocol: search the learning rate, train, test.",
    "verify": "Compare a converted model with its source; the exit code is 1 if they differ.",
}
_debug = False


def build_app(called: str = "") -> App:
    """The command-line application with every command. The help of the one that is `called` is its whole docstring; of
    the others the summary, so that none of them is imported."""
    from cyclopts import App, Parameter

    from sightline.cli.options import collect_settings
    from sightline.runs.options import convert_strictly

    app = App(
        name="sightline",
        help="Plain vision transformers at any resolution and aspect ratio.",
        help_epilogue="--plugins DIR: also use the encodings, tasks, data sets, metrics, embedders and architectures "
        "in that folder; its Python files are executed. --debug: show the traceback of an error.",
        version=__version__,
        # `main` prints errors in one line and chooses the exit code.
        print_error=False,
        exit_on_error=False,
        result_action="return_value",
        suppress_keyboard_interrupt=False,
        # An option is named once: no --no-json beside --json.
        default_parameter=Parameter(negative=(), converter=convert_strictly),
        config=(collect_settings,),
    )
    for name, summary in COMMANDS.items():
        word = name.replace("_", "-")
        app.command(f"sightline.cli.commands.{name}:{name}", name=word, help=None if word == called else summary)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command (by default that of the process) and return its exit code.

    0 done; 2 wrong input or configuration; 3 unreadable data; 4 a number became non-finite; 5 storage failed; 6 another
    process of the run ended; 7 cells of a sweep failed; 130 interrupted; 143 terminated; 1 the reader of the output
    went away.
    """
    with signals.handle_signals(own_process=arguments is None):
        if arguments is None:
            machine.shorten_openmp_spin()
        try:
            return _run(list(sys.argv[1:] if arguments is None else arguments))
        except Exception:
            # What was going on when a signal came may have made another fault of it.
            if not signals.heard():
                if not ranks.is_main_process():
                    # What nobody expected is said by whoever it happens to.
                    sys.stderr = sys.__stderr__
                raise
            return _say_interrupted()
        except KeyboardInterrupt:
            # Another one, as the first was about to be told.
            return _say_interrupted()


def _run(arguments: list[str]) -> int:
    _open_standard_streams()
    if not ranks.is_main_process():
        # Of several ranks one speaks; the others say what they fail by.
        sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if shutil.get_terminal_size().columns < _NARROWEST:
        os.environ["COLUMNS"] = str(_NARROWEST)
    for stream in (sys.stdout, sys.stderr):
        # A name of a file may hold what the terminal's encoding does not.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            os.getcwd()
        except FileNotFoundError:
            raise InputError("the current folder was deleted; go to one that exists (cd)") from None
        arguments = _common_options(arguments)
        app = build_app(*arguments[:1])
        signals.imported()
        result = _call(app, arguments)
        # Here and not at exit, so that a closed pipe is noticed where it can be handled.
        if sys.stdout is not None:
            sys.stdout.flush()
    except StoppedError as error:
        print(f"sightline: {signals.last_words(str(error))}", file=sys.stderr)
        # Of several ranks another one may have been told.
        return signals.exit_code() if signals.heard() else error.exit_code
    except SightlineError as error:
        return _complain(error)
    except KeyboardInterrupt:
        return _say_interrupted()
    except BrokenPipeError:
        # What is still buffered has no reader; without this, the interpreter would complain about it at exit.
        sys.stdout = None
        return PIPE_CLOSED
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _complain(StorageError(f"{where}{error.strerror or error}"), error)
    except (MemoryError, OverflowError, RuntimeError) as error:
        if signals.heard():
            return _say_interrupted()
        if not machine.is_out_of_memory(error):
            raise
        said = " ".join(str(error).split())[:300]
        said = f"{type(error).__name__}: {said or 'out of memory'} (try smaller sizes)"
        return _complain(SightlineError(said), error)
    return result if isinstance(result, int) else 0


def _common_options(arguments: list[str]) -> list[str]:
    """The other arguments; what `--plugins DIR` names is found from here on, and `--debug` shows tracebacks."""
    global _debug
    rest, words, _debug = [], iter(arguments), False
    plugins.given.clear()
    for word in words:
        if word == "--debug":
            _debug = True
            continue
        name, equals, folder = word.partition("=")
        if name != "--plugins":
            rest.append(word)
            continue
        folder = folder if equals else next(words, "")
        if not folder:
            raise InputError("--plugins: expected a folder")
        plugins.add(folder)
    return rest


def _open_standard_streams() -> None:
    """Give what was closed a place that takes and gives nothing.

    `print` to no standard error goes to standard output; and the next file to be opened, a checkpoint for one, would
    get the number under which libraries write their messages.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # It gets the lowest number that is free: this one.
            os.open(os.devnull, os.O_RDWR)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # for as long as the process lives


def _call(app: App, arguments: list[str]) -> Any:
    from cyclopts import CycloptsError, UnknownOptionError, UnusedCliTokensError

    try:
        return app(arguments)
    except CycloptsError as error:
        if isinstance(error.__cause__, InputError):
            raise error.__cause__ from None
        chain = " ".join(("sightline", *(error.command_chain or ())))
        said = str(error)
        if isinstance(error, UnusedCliTokensError):
            said = f"unexpected argument {' '.join(error.unused_tokens or ())}."
        if isinstance(error, UnknownOptionError):
            from sightline.cli.options import meant

            taken = [name for one in error.argument_collection for name in one.names if name.startswith("--")]
            word = error.token.keyword or error.token.value
            hint = meant(word, taken, trains=error.command_chain == ("train",))
            said = said.partition(" Did you mean")[0] + (f" Did you mean {hint}?" if hint else "")
        raise InputError(f"{said} See: {chain} --help") from None


def _say_interrupted() -> int:
    print(f"sightline: {signals.last_words()}", file=sys.stderr)
    return signals.exit_code()


def _complain(error: SightlineError, cause: BaseException | None = None) -> int:
    if _debug:
        traceback.print_exception(cause or error)
    line = " ".join(str(error).split())
    if ranks.is_main_process():
        print(f"sightline: error: {line}", file=sys.stderr)
    elif not isinstance(error, RanksError):
        print(f"sightline: error: rank {os.environ['RANK']}: {line}", file=sys.__stderr__)
    return error.exit_code

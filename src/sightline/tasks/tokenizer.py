"""Tokenizers that others made, from a file, a folder or the Hub."""

from __future__ import annotations

from pathlib import Path

from sightline.errors import InputError
from sightline.io.read import RECORD, read_text
from sightline.io.run_files import TOKENIZER
from sightline.tokens.text import TextTokenizer


def read_tokenizer(source: str | Path, *, lower_case: bool = False) -> TextTokenizer:
    """The tokenizer of a `tokenizer.json`, of a folder that has one, or of `hf-hub:owner/name`.

    Args:
        source: as above.
        lower_case: texts are lowered first.

    Raises:
        InputError: there is none, it is no tokenizer, or the Hub cannot be reached.
    """
    kind, _, name = str(source).partition(":")
    if kind == "hf-hub" and name:
        try:
            import huggingface_hub

            file = Path(huggingface_hub.hf_hub_download(name, TOKENIZER))
        # The errors of a hub have no common class.
        except Exception as error:
            said = " ".join(str(error).split())[:150] or type(error).__name__
            raise InputError(f"tokenizer {source}: cannot be fetched ({said})") from None
    else:
        file = Path(source)
        file = file / TOKENIZER if file.is_dir() else file
    if not file.is_file():
        raise InputError(f"tokenizer {source}: expected a tokenizer.json, a folder with one, or hf-hub:owner/name")
    try:
        return TextTokenizer.of(read_text(file, 8 * RECORD, "a tokenizer"), lower_case=lower_case)
    except InputError as error:
        raise InputError(f"{file}: {error}") from None

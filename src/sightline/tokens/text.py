"""Texts to token ids by the `tokenizers` library: a tokenizer that is given, or a small one learned from captions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from sightline.errors import InputError

PAD, END, UNKNOWN = "<pad>", "<end>", "<unknown>"


def _library() -> Any:
    # Workers are forked from a process that has used it, of which it warns.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        import tokenizers
    except ImportError:
        raise InputError("texts need the package tokenizers (expected: pip install '.[text]')") from None
    return tokenizers


class TextTokenizer:
    """Texts to token ids, without padding; special tokens as the tokenizer's own file adds them.

    Attributes:
        content: of its `tokenizer.json`; lower_case: texts are lowered first.
    """

    def __init__(self, tokenizer: Any, *, lower_case: bool = False) -> None:
        tokenizer.no_padding()
        self._tokenizer, self.lower_case = tokenizer, lower_case

    @classmethod
    def of(cls, content: str, *, lower_case: bool = False) -> TextTokenizer:
        """From the content of a `tokenizer.json`; raises InputError where it is none."""
        library = _library()
        try:
            return cls(library.Tokenizer.from_str(content), lower_case=lower_case)
        # The library raises Exception itself.
        except Exception as error:
            raise InputError(f"tokenizer: is no tokenizer.json ({' '.join(str(error).split())[:150]})") from None

    @classmethod
    def learn(cls, captions: Iterable[str], *, vocab_size: int, lower_case: bool = True) -> TextTokenizer:
        """A byte pair encoding of captions: `<pad>` is 0, and each text ends with `<end>`, 1.

        Args:
            captions: the texts that it is learned from.
            vocab_size: most tokens; fewer where the captions have fewer.
            lower_case: capitals count as small letters.
        """
        library = _library()
        made = library.Tokenizer(library.models.BPE(unk_token=UNKNOWN))
        made.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=True)
        trainer = library.trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=[PAD, END, UNKNOWN],
            initial_alphabet=library.pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        texts = (one.lower() for one in captions) if lower_case else iter(captions)
        made.train_from_iterator(texts, trainer)
        made.post_processor = library.processors.TemplateProcessing(single=f"$A {END}", special_tokens=[(END, 1)])
        return cls(made, lower_case=lower_case)

    @property
    def content(self) -> str:
        return self._tokenizer.to_str()

    @property
    def vocab_size(self) -> int:
        """Number of tokens, special ones included."""
        return self._tokenizer.get_vocab_size()

    def token_id(self, *names: str) -> int | None:
        """The id of the first of these tokens that it has."""
        return next((found for name in names if (found := self._tokenizer.token_to_id(name)) is not None), None)

    def encode(self, texts: Sequence[str], length: int) -> list[list[int]]:
        """The ids of each text, at most `length` with its special tokens, which stay."""
        self._tokenizer.enable_truncation(length)
        given = [one.lower() for one in texts] if self.lower_case else list(texts)
        return [one.ids for one in self._tokenizer.encode_batch(given)]

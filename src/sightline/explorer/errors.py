"""What the page is told where it gets no answer: one sentence, and what it may do about it."""

from __future__ import annotations


class HttpError(Exception):
    """An answer that is none.

    Attributes:
        status: of HTTP.
        said: one sentence for the user.
        more: what the page acts upon, as `gone` or `replaced`.
    """

    def __init__(self, status: int, said: str, **more: bool) -> None:
        super().__init__(said)
        self.status, self.said, self.more = status, said, more


def expired(what: str) -> HttpError:
    """It was here, and was given up for others."""
    return HttpError(410, f"this {what} is no longer in memory; ask for it again", gone=True)


def superseded() -> HttpError:
    """Another view was asked for in its place."""
    return HttpError(409, "another view was asked for in its place", replaced=True)

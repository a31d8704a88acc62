"""Reads a page as people do: its sections, its tables by caption, how many figures it has, and all of its text."""

from __future__ import annotations

from html.parser import HTMLParser

_VOID = {"meta", "img", "br", "link", "hr", "input", "wbr"}


def plain(words: list[str]) -> str:
    return " ".join(" ".join(words).replace("\xa0", " ").split())


class Page(HTMLParser):
    """Elements must be closed in order, and none may hold a script of its own.

    Attributes:
        sections: ids of the headings of the second level.
        tables: caption -> lines of texts, the heads of the columns first.
        figures: how many there are, and `labels` what pictures and tables say that they are.
        tags, links, ids: of all elements.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.labels: list[str] = []
        self.sections: list[str] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.words: list[str] = []
        self._cell: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == [], "elements left open"
        self.text, self.figures = plain(self.words), self.tags.count("figure")

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        named = {name: value or "" for name, value in attrs}
        assert not any(name.startswith("on") for name in named)
        self.tags.append(tag)
        self.links += [named[name] for name in ("src", "href", "xlink:href", "data", "action") if name in named]
        self.ids += [named["id"]] if "id" in named else []
        self.labels += [named["aria-label"]] if "aria-label" in named else []
        if tag == "h2":
            self.sections.append(named.get("id", ""))
        elif tag == "table":
            self.tables[plain([named["aria-label"]])] = self._lines = []
        elif tag == "tr":
            self._lines.append([])
        elif tag in ("td", "th"):
            self._cell = []

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag
        if tag in ("td", "th"):
            self._lines[-1].append(plain(self._cell))

    def handle_data(self, data):
        if not {"style", "script"} & set(self.open):
            self.words.append(data)
            self._cell.append(data)

    def table(self, caption: str) -> dict[tuple[str, str], str]:
        """(line, column), and (column, line), -> the text of a cell: a page turns a table to its narrower side."""
        (_, *columns), *lines = self.tables[caption]
        found = {(name, column): cell for name, *cells in lines for column, cell in zip(columns, cells, strict=True)}
        return found | {(column, name): cell for (name, column), cell in found.items()}

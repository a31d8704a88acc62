"""A file put in the place of another."""

from __future__ import annotations

from pathlib import Path

from sightline.io import atomic
from sightline.io.atomic import write_file


def test_the_content_is_on_the_disk_before_it_has_the_name(tmp_path, monkeypatch):
    file, flushed = tmp_path / "results.jsonl", []
    file.write_text("old")

    def flush(path):
        flushed.append((Path(path).read_text(), file.read_text()))

    monkeypatch.setattr(atomic, "fsync", flush)
    write_file(file, b"new")
    assert (flushed, file.read_text()) == ([("new", "old")], "new")

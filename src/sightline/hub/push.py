"""Our models on the Hugging Face Hub; `load_model("hf-hub:owner/name")` reads them back."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from torch import nn

from sightline.errors import InputError, StorageError
from sightline.hub.load import save_model
from sightline.hub.model_card import model_card
from sightline.results.rows import ResultRow


def push_to_hub(
    model: nn.Module,
    repository: str,
    *,
    results: Sequence[ResultRow] = (),
    private: bool = False,
    token: str | None = None,
    message: str = "Model",
) -> str:
    """Upload a model: `model.safetensors`, `config.json`, the checksums of both, and a model card as `README.md`.

    Args:
        model: a `Model`, compiled or wrapped or not.
        repository: "owner/name"; made where there is none.
        results: result rows for the card.
        private: whether a new repository is private.
        token: of the Hub; the one that is stored on this machine unless given.
        message: of the commit.

    Returns:
        The address of the commit.

    Raises:
        InputError: the name is none.
        StorageError: the Hub refused, or could not be reached.
    """
    import huggingface_hub

    if not isinstance(repository, str) or not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        raise InputError(f"repository {repository!r}: expected owner/name")
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "model"
        save_model(model, folder)
        record = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        # Beside the checksummed files: a card may be edited on the Hub.
        (folder / "README.md").write_text(model_card(record, repository, results), encoding="utf-8")
        try:
            hub = huggingface_hub.HfApi(token=token)
            hub.create_repo(repository, private=private, exist_ok=True)
            return str(hub.upload_folder(folder_path=folder, repo_id=repository, commit_message=message))
        # The errors of a hub have no common class.
        except Exception as error:
            said = " ".join(str(error).split())[:200] or type(error).__name__
            raise StorageError(f"hf-hub:{repository}: cannot be uploaded ({said})") from None

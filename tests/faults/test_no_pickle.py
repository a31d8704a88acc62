"""No file of a run is a pickle, by its content and not by its name; and nothing of the package reads or writes one."""

from __future__ import annotations

import ast
import csv
import dataclasses
import io
import json
import os
import pickle
import shutil
import tarfile
import zlib
from pathlib import Path

import pytest
import torch
import yaml

import sightline
from sightline.data.config import PackingConfig
from sightline.io.run_files import checkpoints
from sightline.training.config import OptimizerConfig, ValidationConfig
from tests.data.three_kinds import encoded, images
from tests.ranks import together
from tests.tiny import MODEL, pictures, tiny_config, train, wait_for_saves

SAFE = {"F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U8", "BOOL"}


def kind_of(content: bytes) -> str:
    """What a file is: `safetensors`, `json` (one value, or one a line), `yaml`, `csv`, `deflated text` (the listing of
    the data), or `empty`.

    Raises:
        AssertionError: none of them.
    """
    if not content:
        # A record that has no line yet.
        return "empty"
    if _is_safetensors(content):
        return "safetensors"
    if content[:1] == b"\x78" and zlib.decompressobj().decompress(content, 1 << 20):
        plain = zlib.decompress(content).decode()
        assert isinstance(json.loads(plain.splitlines()[0]), dict)
        assert plain.isprintable() or not any(ord(sign) < 32 and sign not in "\t\n" for sign in plain)
        return "deflated text"
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise AssertionError(f"no text: {content[:20]!r}") from None
    assert not any(ord(sign) < 32 and sign not in "\t\r\n" for sign in text), "no text"
    for kind, read in (("json", json.loads), ("json", _lines), ("yaml", yaml.safe_load), ("csv", _table)):
        try:
            found = read(text)
        except (ValueError, yaml.YAMLError):
            continue
        if isinstance(found, dict | list) and found:
            return kind
    raise AssertionError(f"of no known kind: {text[:60]!r}")


def _is_safetensors(content: bytes) -> bool:
    size = int.from_bytes(content[:8], "little")
    try:
        header = json.loads(content[8 : 8 + size])
        header.pop("__metadata__", None)
        # Every byte behind the header is of one tensor, and of one alone.
        places = sorted(one["data_offsets"] for one in header.values())
    except (ValueError, TypeError, AttributeError, KeyError):
        return False
    ends = [0, *(end for _, end in places)]
    return (
        all(one["dtype"] in SAFE for one in header.values())
        and [begin for begin, _ in places] == ends[:-1]
        and 8 + size + ends[-1] == len(content)
    )


def _lines(text: str) -> list[object]:
    return [json.loads(line) for line in text.splitlines()]


def _table(text: str) -> list[list[str]]:
    rows = list(csv.reader(io.StringIO(text)))
    if len({len(row) for row in rows}) != 1 or len(rows[0]) < 2 or "split" not in rows[0]:
        raise ValueError
    return rows


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_is_told_from_all_of_them(protocol):
    for value in ({"a": 1}, [1, 2], "a\nb", torch.zeros(3), os.getcwd, 5):
        with pytest.raises(AssertionError):
            kind_of(pickle.dumps(value, protocol))
    for new in (True, False):
        saved = io.BytesIO()
        torch.save({"a": torch.zeros(3)}, saved, _use_new_zipfile_serialization=new)
        with pytest.raises(AssertionError):
            kind_of(saved.getvalue())


def kinds_below(folder: Path) -> dict[str, str]:
    """The kind of every file below a folder, by its path."""
    files = sorted(path for path in folder.rglob("*") if not path.is_dir())
    assert all(path.is_file() and not path.is_symlink() for path in files)
    return {str(path.relative_to(folder)): kind_of(path.read_bytes()) for path in files}


@dataclasses.dataclass(frozen=True)
class CopyAt:
    """Observes a training and copies its folder after a step, as a reader would find it in mid-run."""

    step: int
    out: Path

    def __call__(self, at):
        if at.step == self.step:
            shutil.copytree(self.out, f"{self.out}.meanwhile", symlinks=True)


CHECKPOINT = {
    "checksums.json": "json", "config.json": "json", "data.listing": "deflated text", "left_out.jsonl": "json",
    "log.jsonl": "json", "model.safetensors": "safetensors", "validation.jsonl": "json",
}  # fmt: skip
RUN = {"config.yaml": "yaml", "log.jsonl": "json", "progress.json": "json", "validation.jsonl": "json"}


def everything(folder: Path, **changes):
    """A run that leaves every file that there is: a mean of weights, a curve, an image that cannot be read."""
    data = pictures(folder, count=8)
    shutil.copytree(folder / "test", folder / "minival")
    shutil.rmtree(folder / "test")
    cut = folder / "train" / "a" / "3.png"
    cut.write_bytes(cut.read_bytes()[:-30])
    return tiny_config(
        data=data, images=64, batch_size=8, checkpoint_every=8, optimizer=OptimizerConfig(ema=0.5),
        validation=ValidationConfig(times=8, images=4), skip_unreadable=1, **changes,
    )  # fmt: skip


def run(ranks, config, out):
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        wait_for_saves(patch)
        # The second pass: what cannot be read was met.
        train(config, out, ranks=ranks, device="cpu", observe=CopyAt(6 if config.packing is None else 8, out))


@pytest.mark.parametrize("packed", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("size", "sharing"), [(1, "ddp"), (2, "ddp"), pytest.param(2, "fsdp", marks=pytest.mark.slow)])
def test_every_file_of_a_run_is_json_text_or_safetensors(size, sharing, packed, tmp_path):
    config = everything(tmp_path / "data", packing=PackingConfig(tokens=120) if packed else None, sharing=sharing)
    assert together(size, run, config, tmp_path / "run") == [None] * size
    shards = {
        f"training/shard-{rank + 1:05d}-model-00001-of-00001.safetensors": "safetensors"
        for rank in range(size if sharing == "fsdp" else 1)
    }
    for folder, more in (("run", {}), ("run.meanwhile", {".lock": "json"})):
        out = tmp_path / folder
        expected = RUN | more
        for place in checkpoints(out):
            expected |= {f"checkpoints/{place.name}/{name}": kind for name, kind in (CHECKPOINT | shards).items()}
        found = kinds_below(out)
        if not (out / "checkpoint.best").exists():
            # No line of the curve yet.
            del expected["validation.jsonl"]
        assert found == {name: "empty" if found.get(name) == "empty" else kind for name, kind in expected.items()}
        assert checkpoints(out)


def test_so_is_what_a_command_leaves(tiny_run, tmp_path):
    kinds = kinds_below(tiny_run)
    assert (kinds["config.yaml"], kinds["predictions.csv"], kinds["results.jsonl"]) == ("yaml", "csv", "json")


# What reads or writes a pickle, also where its name does not say so: objects that ranks send to each other, checkpoints
# of torch.distributed (their metadata), tables of numpy.
READ_OR_WRITE = {"Unpickler", "Pickler", "jit_load", "broadcast_object_list", "all_gather_object", "gather_object"}
READ_OR_WRITE |= {"scatter_object_list", "send_object_list", "recv_object_list", "FileSystemWriter", "FileSystemReader"}


def test_no_line_of_the_package_reads_or_writes_one():
    """`torch.load` is called with weights_only=True, numpy's with allow_pickle=False."""
    root, loads = Path(sightline.__file__).parent, 0
    for file in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func)
            said = {word.arg: ast.unparse(word.value) for word in node.keywords}
            where = f"{file.relative_to(root)}:{node.lineno}: {name}"
            assert name.partition(".")[0] not in ("pickle", "joblib", "dill", "cloudpickle", "shelve"), where
            assert name.rpartition(".")[2] not in READ_OR_WRITE, where
            assert name not in ("torch.save", "dcp.save", "dcp.load", "eval", "exec"), where
            assert said.get("weights_only", "True") == "True", where
            assert said.get("allow_pickle", "False") == "False", where
            if name in ("torch.load", "np.load", "np.save"):
                assert {"torch.load": "weights_only"}.get(name, "allow_pickle") in said, where
                loads += 1
    assert loads >= 3


class Bomb:
    """Loading it makes a file."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("kind", ["wds", "hf", "imagefolder"])
def test_data_that_are_pickles_are_not_loaded(kind, cli, tmp_path):
    """Members that other readers of shards would decode by their extension, and files in the place of indexes."""
    bomb = pickle.dumps(Bomb(tmp_path / "marker"))
    root = tmp_path / "data"
    if kind == "wds":
        root.mkdir()
        with tarfile.open(root / "train-0000.tar", "w") as archive:
            for number in range(4):
                picture = images(count=4)["train"][number][2]
                for name, content in ((f"{number}.png", picture), (f"{number}.cls", bomb), (f"{number}.pyd", bomb),
                                      (f"{number}.pickle", bomb), (f"{number}.json", bomb)):  # fmt: skip
                    about = tarfile.TarInfo(name)
                    about.size = len(content)
                    archive.addfile(about, io.BytesIO(content))
    elif kind == "hf":
        (root / "train").mkdir(parents=True)
        for name in ("dataset_dict.json", "train/state.json", "train/dataset_info.json", "train/data-0.arrow"):
            (root / name).write_bytes(bomb)
    else:
        for name in ("a", "b"):
            (root / "train" / name).mkdir(parents=True)
            (root / "train" / name / "0.png").write_bytes(bomb)
            (root / "train" / name / "1.png").write_bytes(encoded(torch.zeros(8, 8, 3, dtype=torch.uint8).numpy()))
            (root / "train" / name / "index.pkl").write_bytes(bomb)
    options = [word for key, value in MODEL.items() for word in ("--set", f"model_options.{key}={value}")]
    code, _, err = cli("train", "--data", f"{kind}:{root}", "--images", 8, "--resolution", 16, "--threads", 1, *options,
                       "--out", tmp_path / "run")  # fmt: skip
    assert code in (2, 3)
    assert err.splitlines()[-1].startswith("sightline: error: ")
    assert str(root) in err.splitlines()[-1]
    assert not (tmp_path / "marker").exists()
    assert not (tmp_path / "run").exists()
    # The bomb is a real one.
    pickle.loads(bomb)
    assert (tmp_path / "marker").exists()

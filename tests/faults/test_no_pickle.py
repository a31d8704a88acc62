"""No file of a run is a pickle: each is read by a reader that runs nothing; and nothing of the package reads or writes
one."""

from __future__ import annotations

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
from safetensors.torch import load_file

from sightline.data.config import PackingConfig
from sightline.io.run_files import checkpoints
from sightline.training.config import OptimizerConfig, ValidationConfig
from tests.data.three_kinds import encoded, images
from tests.ranks import together
from tests.tiny import MODEL, pictures, tiny_config, train, wait_for_saves

# What reads a file of each ending, of which none can run anything.
READERS = {
    ".csv": lambda path: [row["split"] for row in csv.DictReader(io.StringIO(path.read_text()))],
    ".json": lambda path: json.loads(path.read_text()),
    ".jsonl": lambda path: [json.loads(line) for line in path.read_text().splitlines()],
    ".listing": lambda path: json.loads(zlib.decompress(path.read_bytes())),
    ".lock": lambda path: json.loads(path.read_text()),
    ".safetensors": load_file,
    ".yaml": lambda path: yaml.safe_load(path.read_text()),
}


def files_below(folder: Path) -> set[str]:
    """Every file below a folder, each of which its reader reads."""
    files = sorted(path for path in folder.rglob("*") if not path.is_dir())
    assert all(path.is_file() and not path.is_symlink() for path in files)
    for path in files:
        READERS[path.suffix or path.name](path)
    return {str(path.relative_to(folder)) for path in files}


@dataclasses.dataclass(frozen=True)
class CopyAt:
    """Observes a training and copies its folder after a step, as a reader would find it in mid-run."""

    step: int
    out: Path

    def __call__(self, at):
        if at.step == self.step:
            shutil.copytree(self.out, f"{self.out}.meanwhile", symlinks=True)


CHECKPOINT = {
    "checksums.json", "config.json", "data.listing", "left_out.jsonl", "log.jsonl", "model.safetensors",
    "validation.jsonl",
}  # fmt: skip
RUN = {"config.yaml", "log.jsonl", "progress.json", "validation.jsonl"}


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


@pytest.mark.parametrize(
    ("size", "sharing", "packed"),
    [(1, "ddp", False), (2, "ddp", False), pytest.param(2, "fsdp", True, marks=pytest.mark.slow)],
)
def test_every_file_of_a_run_is_json_text_or_safetensors(size, sharing, packed, tmp_path):
    config = everything(tmp_path / "data", packing=PackingConfig(tokens=120) if packed else None, sharing=sharing)
    assert together(size, run, config, tmp_path / "run") == [None] * size
    shards = {
        f"training/shard-{rank + 1:05d}-model-00001-of-00001.safetensors"
        for rank in range(size if sharing == "fsdp" else 1)
    }
    for folder, more in (("run", set()), ("run.meanwhile", {".lock"})):
        out = tmp_path / folder
        expected = RUN | more
        for place in checkpoints(out):
            expected |= {f"checkpoints/{place.name}/{name}" for name in CHECKPOINT | shards}
        if not (out / "checkpoint.best").exists():
            # No line of the curve yet.
            expected.discard("validation.jsonl")
        assert files_below(out) == expected
        assert checkpoints(out)


# What reads or writes a pickle, also where its name does not say so: objects that ranks send to each other, checkpoints
# of torch.distributed (their metadata), tables of numpy.
READ_OR_WRITE = {"Unpickler", "Pickler", "jit_load", "broadcast_object_list", "all_gather_object", "gather_object"}
READ_OR_WRITE |= {"scatter_object_list", "send_object_list", "recv_object_list", "FileSystemWriter", "FileSystemReader"}


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
    options = [f"--model_options.{key}={value}" for key, value in MODEL.items()]
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

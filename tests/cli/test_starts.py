"""What the start of a command loads: it decides how long that takes, and does not depend on how busy the machine is."""

import subprocess
import sys

import pytest
from PIL import Image

import sightline

CODE = """
import sys
from sightline.cli.app import main
code = main(sys.argv[1:])
print(code, "torch._dynamo" in sys.modules)
"""


def ended(*arguments: str) -> str:
    """The exit code of a command in a fresh process, and whether it loaded torch's compiler."""
    done = subprocess.run([sys.executable, "-c", CODE, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


@pytest.mark.slow
def test_a_list_of_models_loads_no_compiler():
    assert ended("models") == "0 False"


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["learned_1d", "lookhere_90"])
def test_a_prediction_loads_no_compiler(encoding, tmp_path):
    sightline.save_model(sightline.create_model("vit_micro_patch4", encoding=encoding), tmp_path / "model")
    Image.new("RGB", (40, 24)).save(tmp_path / "image.png")
    given = ["predict", str(tmp_path / "model"), str(tmp_path / "image.png"), "--resolution", "32"]
    assert ended(*given) == "0 False"

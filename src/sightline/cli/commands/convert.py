"""`sightline convert`."""

from __future__ import annotations

from pathlib import Path

from sightline.runs.options import KeyOptions


def convert(
    project: str,
    source: Path,
    dest: Path,
    *,
    config: Path | None = None,
    arguments: KeyOptions = None,
    names: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Convert the weights of another project to a model of ours.

    The model records its source and its outputs on fixed images; `sightline verify` compares both.

    Args:
        project: lookhere, rope_vit, rope_swin, timm, big_vision, big_vision_flexi, vision_transformer, dinov3, deit,
            irpe, navit, scenic, open_clip, transformers; for clips vivit; for dense tasks segmenter, eomt, owlvit.
        source: The weights: .safetensors, .pth, .npz; or a folder saved by timm or transformers.
        dest: The folder to write.
        config: A YAML or JSON file with the arguments of the original class; for timm also `model`, the name.
        arguments: Such arguments, for example --arguments.embed_dim 384.
        names: A text file with one class name per line. Without it classes are numbers.
        overwrite: Replace the model at DEST.
    """
    from sightline.cli import next_step, progress
    from sightline.cli.foreign import read_names, read_source
    from sightline.convert import import_weights
    from sightline.convert.verify import fingerprint
    from sightline.hub.load import write_model
    from sightline.io.config import errors_of_file
    from sightline.runs import outputs

    outputs.claim_checkpoint(dest, inputs=outputs.Inputs(files=[source, config, names]), overwrite=overwrite)
    with progress.Bars() as bars:
        bars.move("reading", 0, 3)
        named = None if names is None else read_names(names)
        state, found = read_source(project, source, config, arguments or {})
        bars.move("converting", 1, 3)
        with errors_of_file(source):
            model = import_weights(project, state, found)
        if named is not None:
            with errors_of_file(names):
                model.config = model.config.replace(class_names=named)
        bars.move("writing", 2, 3)
        # The outputs on fixed images, for `verify`.
        write_model(model, dest, fingerprint=fingerprint(model))
        bars.move("writing", 3, 3)
    grid = "x".join(map(str, model.config.train_grid))
    count = sum(parameter.numel() for parameter in model.parameters())
    print(
        f"{dest}: {count / 1e6:.1f} M parameters, {model.config.encoding}, {grid} patches of "
        f"{model.config.patch_size} pixels, {model.num_classes} classes"
    )
    next_step.say_next("verify", dest, "--against", source, "--project", project)

"""Swin (Liu et al., 2021): attention in windows, shifted in every other layer, and patches that are merged between
stages; with rotary positions as RoPE-ViT has it (Heo et al., 2024, section 4), or any other encoding inside windows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from sightline.encodings.base import Hooks, PositionEncoding, TrunkShape
from sightline.encodings.stages import create_staged
from sightline.errors import InputError
from sightline.io.config import Count, build_config, check_value, config_dataclass
from sightline.models.block import Attention, Block, LayerInputs
from sightline.models.config import ViTConfig
from sightline.models.merging import PatchMerging, merged, merged_grid
from sightline.models.stage import AttentionCost, StageSpec
from sightline.models.timm_surface import TimmSurface
from sightline.models.trunk import Trunk
from sightline.models.windows import WindowedLayout, WindowSpec, window_work, windows_of
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout

Layers = Annotated[int, Field(ge=1, le=4096)]


@config_dataclass
class SwinOptions:
    """`architecture_options` of a Swin.

    Attributes:
        depths, heads: layers and attention heads of each stage; a stage is twice as wide as the one before.
        window: (rows, cols) or side of a window in patches of its stage.
        table_window: the window that the position encoding was made for, where it was trained in another; None is
            `window`.
        edges: what is left over where the window does not divide an image. `smaller` makes a smaller window of it, and
            where a side of a stage's grid is no longer than the window, the window becomes the shorter side and is not
            shifted (the official rule). `padded` rolls, and fills the last window with zeros that are attended to;
            windows are those for `image_size` at any size (timm).
        window_grows: windows grow with the image, as the root of its patches over those in training; `window` is that
            of an image of the training grid.
    """

    depths: tuple[Layers, ...] = (2, 2, 6, 2)
    heads: tuple[Layers, ...] = (3, 6, 12, 24)
    window: Count | tuple[Count, Count] = 7
    table_window: Count | tuple[Count, Count] | None = None
    edges: Literal["smaller", "padded"] = "smaller"
    window_grows: bool = False

    def __post_init__(self) -> None:
        if len(self.depths) != len(self.heads) or not self.depths:
            given = f"{list(self.depths)} for {len(self.heads)} stages of heads"
            raise InputError(f"depths {given} (expected as many)", field="depths", value=self.depths)
        if self.window_grows and self.edges == "padded":
            said = "window_grows true: needs edges 'smaller' (timm's windows do not change)"
            raise InputError(said, field="window_grows", value=True)

    @classmethod
    def of(cls, config: ViTConfig) -> SwinOptions:
        """The checked options of a configuration.

        Raises:
            InputError: an unknown option (names the nearest), a value out of range, or one that contradicts `depth`,
                `heads` or `dim`.
        """
        if config.takes_clips:
            raise InputError(
                f"architecture swin: has windows of images alone (expected none of embedder {config.embedder!r})"
            )
        options = build_config(cls, config.architecture_options, "architecture_options")
        for name, said in (("depth", sum(options.depths)), ("heads", options.heads[0])):
            if getattr(config, name) != said:
                raise InputError(
                    f"{name} {getattr(config, name)}: architecture swin has {said} by architecture_options (depths "
                    f"{list(options.depths)}, heads {list(options.heads)})"
                )
        return options

    @property
    def firsts(self) -> list[int]:
        """The first layer of each stage."""
        return list(itertools.accumulate([0, *self.depths[:-1]]))

    def fitted(self, window: Sequence[int] | int, grid: Grid) -> tuple[Grid, tuple[int, int]]:
        """The window of a stage, and what odd layers shift it by, where its images' grid is this one."""
        window = Grid.checked(window)
        small = [side <= width for side, width in zip(grid, window, strict=True)]
        shift = [width // 2 for width in window]
        if self.edges == "padded":
            window = Grid(*map(min, grid, window))
            shift = [0 if one else width for one, width in zip(small, shift, strict=True)]
        elif any(small):
            square = window.rows == window.cols
            window, shift = Grid(*([min(grid)] * 2 if square else map(min, grid, window))), [0, 0]
        return window, (shift[0], shift[1])

    @property
    def made_for(self) -> int | tuple[int, int]:
        """The window that the position encoding was made for."""
        return self.window if self.table_window is None else self.table_window


@dataclass(frozen=True, kw_only=True)
class SwinStage(StageSpec):
    """Each token meets those of its window: Swin equation 2, and what is left over at edges by its rule.

    Attributes:
        options: of the model.
        trained: the grid by which windows are found: at timm's edges of images of `image_size`, else of those that the
            encoding was made for.
    """

    options: SwinOptions
    trained: Grid

    def cut(self, grid: Grid, *, shifted: bool) -> WindowSpec:
        """How an image is cut, of its grid in the stage."""
        window, padded = Grid.checked(self.options.window), self.options.edges == "padded"
        if self.options.window_grows:
            growth = math.sqrt(grid.cells / self.trained.cells)
            # What is left over is a window too: rounded up, there are no thin ones.
            window = Grid(*(math.ceil(round(side * growth, 6)) for side in window))
        size, shift = self.options.fitted(window, self.trained if padded else grid)
        return WindowSpec(size, shift if shifted else (0, 0), padded)

    def work(self, patches: int, grid: Grid | None = None) -> AttentionCost:
        depth = self.config.depth
        if grid is None:
            # Whole windows fill it.
            slots = depth * self.tokens(patches)
            return AttentionCost(slots, slots * self.keys(patches))
        there = merged_grid(grid, self.merged)
        plain, shifted = (window_work(there, self.cut(there, shifted=one)) for one in (False, True))
        each = zip(plain, shifted, strict=True)
        slots, pairs = ((depth + 1) // 2 * one + depth // 2 * other for one, other in each)
        return AttentionCost(slots, pairs)

    def keys(self, patches: int, grid: Grid | None = None) -> int:
        """Those of a whole window."""
        tokens = self.tokens(patches, grid)
        side = math.isqrt(tokens - 1) + 1
        there = Grid(side, side) if grid is None else merged_grid(grid, self.merged)
        return min(tokens, self.cut(there, shifted=False).size.cells)


class WindowAttention(Attention):
    """Attention of each window of an image over its own tokens (Swin section 3.2).

    Attributes:
        stage: says how images are cut.
        shifted: borders lie half a window further.
    """

    def __init__(self, config: ViTConfig, stage: SwinStage, *, shifted: bool) -> None:
        super().__init__(config)
        self.stage, self.shifted = stage, shifted

    def windows(self, layout: TokenLayout) -> WindowedLayout:
        """The windows of whole images in row-major order."""
        return windows_of(layout, [self.stage.cut(one.grid, shifted=self.shifted) for one in layout.segments])

    def extra_repr(self) -> str:
        options = self.stage.options
        return f"window={options.window}, shifted={self.shifted}, edges={options.edges!r}"


class SwinBlock(Block):
    """A block with attention in windows; the first of a stage merges patches before.

    Attributes:
        dim: width of what it gives.
        merge: of what the stage before gave; None where there was none, or the layer is not the first.
    """

    def __init__(self, config: ViTConfig, stage: SwinStage, layer: int) -> None:
        own, place = stage_config(config, stage.merged), layer - stage.options.firsts[stage.merged]
        super().__init__(own, layer)
        self.dim = own.dim
        self.attn = WindowAttention(own, stage, shifted=place % 2 == 1)
        first = stage.merged > 0 and place == 0
        self.merge = PatchMerging(stage_config(config, stage.merged - 1), own.dim) if first else None

    def forward(self, x: Tensor, inputs: LayerInputs) -> Tensor:
        """[rows, slots, dim] -> the same shape, or merged patches."""
        if self.merge is not None and inputs.layout is not None:
            x = self.merge(x, inputs.layout)
        return super().forward(x, inputs)


class SwinTrunk(Trunk):
    """Blocks in stages."""

    takes_tiles: ClassVar[bool] = False

    def layout_after(self, layer: int, layout: TokenLayout) -> TokenLayout:
        if any(not one.complete for one in layout.segments):
            raise InputError("architecture swin: windows are of whole images (expected no dropped patches)")
        blocks: list[Any] = list(self)[: layer + 1]
        for _ in filter(None, (block.merge for block in blocks)):
            layout = merged(layout)
        return layout

    def layer(self, layer: int, tokens: Tensor, layout: TokenLayout, encoding: Hooks) -> Tensor:
        if layout.segments:
            return super().layer(layer, tokens, layout, encoding)
        # No patch is there to be merged; what a norm of this stage is given has its width all the same.
        block: Any = self[layer]
        return tokens.new_zeros(layout.rows, self.layout_after(layer, layout).slots, block.dim)

    def layer_inputs(self, layer: int, tokens: Tensor, layout: TokenLayout, encoding: Hooks) -> LayerInputs:
        block: Any = self[layer]
        after = layout if block.merge is None else merged(layout)
        windows = block.attn.windows(after)
        return self.inputs_of(layer, tokens, after, windows.layout, encoding, windows=windows, layout=layout)


class Swin(TimmSurface):
    """A Swin at any resolution and aspect ratio: no prefix tokens, one encoding a stage, made for the stage's window.

    `forward_intermediates`, and timm's `features_only`, give the outputs of stages, as timm's own.
    """

    name = "swin"
    supports_token_dropping: ClassVar[bool] = False
    export_refusal: ClassVar[str] = (
        "how many windows there are hangs on an image's size, and one program is for every size (expected a vit)"
    )

    def __init__(self, config: ViTConfig) -> None:
        options = SwinOptions.of(config)
        prefix = "a class token" if config.has_class_token else f"num_registers {config.num_registers}"
        for wrong, said in (
            (config.num_prefix_tokens or config.pool_prefix, f"{prefix}: expected pool 'mean', and no prefix tokens"),
            (config.pool != "mean", f"pool {config.pool!r}: expected 'mean'"),
            (
                not config.has_classifier,
                f"head {config.head!r} reads patches of one size, merged here (expected linear or mlp)",
            ),
            (config.mask_token, "mask_token: expected false"),
        ):
            if wrong:
                raise InputError(f"architecture swin: {said}")
        super().__init__(config)
        self.stage_ends = [first + depth - 1 for first, depth in zip(options.firsts, options.depths, strict=True)]
        self.feature_info = [
            {"module": f"blocks.{layer}", "num_chs": config.dim * 2**stage, "reduction": config.patch_size * 2**stage}
            for stage, layer in enumerate(self.stage_ends)
        ]
        # The window that was last said, and the grid that it was said for.
        self._said = Grid.checked(options.window), config.grid_of(config.image_size)

    @classmethod
    def options_of(cls, config: ViTConfig) -> dict[str, Any]:
        options = SwinOptions.of(config)
        window, table = Grid.checked(options.window), Grid.checked(options.made_for)
        return vars(options) | {"window": window, "table_window": table}

    @classmethod
    def last_stage(cls, config: ViTConfig) -> ViTConfig:
        return stage_config(config, len(SwinOptions.of(config).depths) - 1)

    @classmethod
    def stages(cls, config: ViTConfig) -> tuple[StageSpec, ...]:
        return swin_stages(config)

    def make_trunk(self, config: ViTConfig) -> Trunk:
        layers = itertools.chain(*(itertools.repeat(stage, stage.config.depth) for stage in swin_stages(config)))
        return SwinTrunk(SwinBlock(config, stage, layer) for layer, stage in enumerate(layers))

    def make_positions(self, config: ViTConfig) -> PositionEncoding:
        image = TrunkShape(config.depth, config.heads, config.dim, config.train_grid, 0, config.head_dim)
        shapes = [
            replace(image, depth=own.depth, heads=own.heads, dim=own.dim, train_grid=frame)
            for own, frame in ((stage.config, stage.made_for) for stage in self.stages(config))
        ]
        return create_staged(config.encoding, shapes, image, config.encoding_options)

    def set_input_size(
        self,
        img_size: Sequence[int] | int | None = None,
        patch_size: Sequence[int] | int | None = None,
        window_size: Sequence[int] | int | None = None,
        window_ratio: int | None = None,
        always_partition: bool | None = None,
    ) -> None:
        """Another size of images, or of windows; tables of displacements stay as they were trained, and are resized by
        their own rule where they are used.

        Args:
            img_size: (height, width) or one side in pixels. At timm's edges (`padded`) windows are those of this size,
                and keep the share of the grid that they had when they were last said (as timm); at ours any size runs
                as it is.
            patch_size: None alone: what merges patches has them of one size.
            window_size: (rows, cols) or one side in patches.
            window_ratio: or of how many windows a side of the grid is to be.
            always_partition: False or None alone: a window that is larger than the image becomes the image's.

        Raises:
            InputError: a size that is none; the model is as it was.
        """
        if patch_size is not None:
            raise InputError(f"patch_size {patch_size!r}: architecture swin merges patches of one size (expected None)")
        if always_partition:
            said = "windows become the image's where it is smaller"
            raise InputError(f"always_partition True: {said} (expected False or None)")
        config, options = self.config, SwinOptions.of(self.config)
        size: Any = config.image_size if img_size is None else tuple(Grid.checked(img_size, "img_size"))
        (window, before), grid = self._said, config.grid_of(size)
        if window_size is not None:
            window = Grid.checked(window_size, "window_size")
        elif window_ratio is not None:
            check_value("window_ratio", window_ratio, Count)
            window = Grid(*(max(1, side // window_ratio) for side in grid))
        elif options.edges == "padded":
            window = Grid(*(max(1, one * now // old) for one, now, old in zip(window, grid, before, strict=True)))
        said = (window, grid) if window_size is not None or window_ratio is not None else self._said
        own = {**config.architecture_options, "window": tuple(window), "table_window": options.made_for}
        config = config.replace(image_size=size, table_grid=tuple(config.train_grid), architecture_options=own)
        self.config, self._said, stages = config, said, swin_stages(config)
        for block in self.blocks:
            attn: Any = block.attn
            attn.stage = stages[attn.stage.merged]

    _intermediates: ClassVar[str] = "stages"

    @property
    def _ends(self) -> Sequence[int]:
        return [layer for layer in self.stage_ends if layer < len(self.blocks)]

    @property
    def out_indices(self) -> int | tuple[int, ...]:
        return tuple(range(len(self.stage_ends)))


def swin_stages(config: ViTConfig) -> tuple[SwinStage, ...]:
    """The stages of a model, the first first."""
    options, found = SwinOptions.of(config), []
    made_for = config.train_grid
    trained = config.grid_of(config.image_size) if options.edges == "padded" else made_for
    for stage, depth in enumerate(options.depths):
        # A plain one of its width and depth, but for the windows.
        own = stage_config(config, stage).replace(architecture="vit", architecture_options={}, depth=depth)
        frame, _ = options.fitted(options.made_for, merged_grid(made_for, stage))
        # Four patches of half the width become one.
        entry = 2 * own.dim**2 if stage else 0
        there = merged_grid(trained, stage)
        found.append(SwinStage(own, frame, stage, entry, options=options, trained=there))
    return tuple(found)


def stage_config(config: ViTConfig, stage: int) -> ViTConfig:
    """The width and heads of a stage; the depth stays that of all, by which drop path rises."""
    return config.replace(dim=config.dim * 2**stage, heads=SwinOptions.of(config).heads[stage]) if stage else config

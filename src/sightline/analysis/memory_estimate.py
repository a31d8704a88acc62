"""What a pass takes in memory, by what it is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes that a pass takes at its peak, of each kind.

    Attributes:
        tokens: of one image, prefix tokens included.
        parameters: float32, as the model holds them.
        gradients, optimizer: 0 for a forward; the optimizer's moments, and the running mean of the weights.
        activations: images, patches, and what the blocks keep or use for a moment; under bfloat16 also the weights'
            copies in it.
        attention: scores and biases of the one layer that is being computed.
        other: what the libraries' buffers and the allocator hold beside.
        saved: the copy that a checkpoint is written from while the steps go on; 0 on a GPU, whose memory it is not in.
        built: the whole model, which each process builds before it keeps its part; no part of the sum.
        stored_bias: what a bias kept for all layers in float32 would take, as the public LookHere code keeps it; no
            part of `total`, and 0 where the encoding has none.
    """

    tokens: int
    parameters: int
    gradients: int
    optimizer: int
    activations: int
    attention: int
    other: int
    stored_bias: int
    saved: int = 0
    built: int = 0

    @property
    def total(self) -> int:
        """The peak: in training the last step's gradients are still there while the next forward keeps its own."""
        held = self.parameters + self.gradients + self.optimizer + self.saved
        return max(self.built, held + self.activations + self.attention + self.other)

"""What our methods have in common beside Captum's interface."""

from __future__ import annotations

from captum.attr import Attribution

__all__ = ["PlayerMethod"]


class PlayerMethod(Attribution):  # type: ignore[misc]
    """A method of ours: with target=None it explains all outputs, and a group of entries is one player."""

    backgrounds = True  # whether many baselines may be given for every row

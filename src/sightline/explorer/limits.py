"""What the explorer's server takes, at most."""

from __future__ import annotations

from sightline.data.image_file import MAX_PIXELS as MAX_PIXELS

UPLOAD_BYTES = 32 << 20
"""Of an image file that is sent."""
UPLOADS = 4
"""Image files that are received at a time; others wait."""
IMAGES_BYTES = 128 << 20
"""Of all image files that were sent and are kept, the least recently used given up first."""
SENT_IMAGES = 200
"""Image files that were sent and are kept, however small they are."""
LISTED_IMAGES = 500
"""Of the folder that is shown."""
QUESTION_BYTES = 64 << 10
"""Of what a view is asked for with."""
MAX_TOKENS = 1 << 14
"""Patches of a view, where memory allows as many."""
NATIVE_TOKENS = 1 << 12
"""Patches of an image at its own size, beyond which it is scaled down."""
MOST_VIEWS = 1024
"""Views that are kept, however small they are."""
WAITING = 32
"""Views and long overlays that are computed or wait for it; beyond, a request is turned away."""
THUMBNAIL = 160
"""The longer side of a small picture, in pixels."""
CONNECTIONS = 128
"""That are answered at a time; a browser opens six."""
SHORTEST_SIDES = 2
"""In patches, of the least of the sizes that are proposed."""

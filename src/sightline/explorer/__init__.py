"""A local page on which one looks into models: its server, its store of images and views. No web library here."""

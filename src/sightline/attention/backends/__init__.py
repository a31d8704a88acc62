"""Back ends, one a file: each renders a `Pattern` for a `TokenLayout`. Each is compared with `dense`."""

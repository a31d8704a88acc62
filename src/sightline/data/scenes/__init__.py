"""Vector scenes: described by numbers, then drawn at any height and width."""

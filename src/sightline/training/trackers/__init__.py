"""Where else a run's curves go, one tracker in a file; `log.jsonl` is always written."""

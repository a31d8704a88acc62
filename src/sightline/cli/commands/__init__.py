"""Commands: each file here is one, named as its function or `App`, and listed in `cli.app.COMMANDS`."""

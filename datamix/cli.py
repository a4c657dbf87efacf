"""The `datamix` command (grown by the command modules)."""


def main() -> None:
    raise SystemExit(2)

"""Word lists that the jobs' material is made from."""

from __future__ import annotations

import random

__all__ = ["COMPONENTS", "HOSTS", "NOUNS", "PEOPLE", "PRODUCTS", "REGIONS", "date_text", "folder_name", "pick_names"]

COMPONENTS = (
    "billing", "gateway", "search", "mailer", "scheduler", "indexer", "auth", "uploader", "exporter", "payments",
    "catalog", "reports", "notifier", "session", "inventory", "shipping", "metrics", "archiver", "importer", "renderer",
)  # fmt: skip
HOSTS = (
    "alder",
    "birch",
    "cedar",
    "elm",
    "fir",
    "hazel",
    "juniper",
    "larch",
    "maple",
    "oak",
    "pine",
    "rowan",
    "willow",
)
NOUNS = (
    "anchor", "basket", "beacon", "bridge", "candle", "canyon", "carbon", "cobalt", "copper", "coral", "falcon",
    "garden", "glacier", "harbor", "island", "jasper", "kettle", "lantern", "ledger", "lichen", "magnet", "marble",
    "meadow", "mirror", "nectar", "opal", "orchid", "paddle", "pebble", "pepper", "plume", "quartz", "raven", "ribbon",
    "saddle", "shadow", "signal", "silver", "summit", "tunnel", "valley", "velvet", "walnut", "willet", "window",
)  # fmt: skip
PEOPLE = (
    "Ada Brandt", "Ben Okafor", "Clara Nilsen", "Dmitri Sokol", "Elena Ruiz", "Farid Haddad", "Greta Lindqvist",
    "Hiro Tanaka", "Ines Moreau", "Jonas Weber", "Kavya Rao", "Liam Byrne", "Mara Kovac", "Noor Aziz", "Otto Brandvold",
)  # fmt: skip
PRODUCTS = (
    "bolt",
    "bracket",
    "cable",
    "clamp",
    "filter",
    "gasket",
    "hinge",
    "lamp",
    "motor",
    "nozzle",
    "pump",
    "relay",
    "sensor",
    "spring",
    "switch",
    "valve",
)
REGIONS = ("north", "south", "east", "west", "coast", "inland", "harbour", "highland")


def pick_names(generator: random.Random, count: int) -> list[str]:
    """Different two-word names such as cobalt-ridge, as many as asked for."""
    names: dict[str, None] = {}
    while len(names) < count:
        first, second = generator.sample(NOUNS, 2)
        name = f"{first}-{second}"
        names[name if name not in names else f"{name}-{generator.randint(2, 99)}"] = None
    return list(names)


def folder_name(generator: random.Random, taken: set[str], what: str) -> str:
    """A folder name that is not taken yet, and takes it."""
    while True:
        name = f"{generator.choice(NOUNS)}-{what}" if generator.random() < 0.6 else f"{what}-{generator.choice(NOUNS)}"
        if name in taken:
            name = f"{name}-{generator.randint(2, 999)}"
        if name not in taken:
            taken.add(name)
            return name


def date_text(generator: random.Random, year: int | None = None) -> str:
    """A date as YYYY-MM-DD."""
    return f"{year or generator.randint(2021, 2025)}-{generator.randint(1, 12):02d}-{generator.randint(1, 28):02d}"

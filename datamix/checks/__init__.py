"""`datamix check`: recount a run from its files, independently of the code that wrote them."""

from datamix.checks.result import CheckResult
from datamix.checks.target import check_path

__all__ = ["CheckResult", "check_path"]

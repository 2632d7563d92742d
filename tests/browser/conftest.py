"""One browser for a worker's whole run: it takes a second to start."""

from collections.abc import Iterator

import pytest

from tests.browser import chromium
from tests.conftest import Needs


@pytest.fixture(scope="session")
def browser(needs: Needs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Browser]:
    if lack := chromium.missing():
        needs.lacking(lack, "scripts/test installs it as root")
    one = chromium.Browser(tmp_path_factory.mktemp("chromium"))
    try:
        yield one
    finally:
        one.close()

"""The browser in which pages are looked at."""

import pytest
from browser import browsing, find_browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    executable = find_browser()
    if executable is None:
        pytest.skip("no Chromium is installed")
    with browsing(executable, tmp_path_factory.mktemp("profile")) as page:
        yield page

"""One browser per test module."""

from tests.browser import browser as browser

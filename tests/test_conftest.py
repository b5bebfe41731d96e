"""The settings of all tests do what they say."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request

import pytest


def test_no_test_reaches_the_network():
    with pytest.raises(OSError, match="a test reached for 192"), socket.socket() as s:
        s.connect(("192.0.2.1", 80))
    with pytest.raises(urllib.error.URLError, match="a test reached for"):
        urllib.request.urlopen("http://192.0.2.1/", timeout=1)

"""What the owner of a receiver reads about a certificate that was not accepted."""

import pycurl  # type: ignore[import-untyped]
import pytest

from gatepost.egress.curl_errors import describe


class Verified:
    """A libcurl handle after the verification of a certificate, with OpenSSL's result."""

    def __init__(self, result: int) -> None:
        self._result = result

    def getinfo(self, option: int) -> int:
        assert option == pycurl.SSL_VERIFYRESULT
        return self._result


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (0, "the certificate is not for this host"),
        (10, "the certificate has expired"),
        (26, "the certificate may not be used by servers, according to its extended key usage"),
        (62, "the certificate is not for this host"),
        (66, "the certificate has a key that is too small"),
        (79, "the certificate is signed by a certificate that is not an authority's"),
        (12345, "the certificate was not accepted"),
    ],
)
def test_a_certificate_that_is_not_accepted(result: int, text: str) -> None:
    error = pycurl.E_PEER_FAILED_VERIFICATION
    assert describe("tls", error, "", Verified(result), proxied=False, headers=False) == text

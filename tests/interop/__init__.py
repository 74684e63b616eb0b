import pytest

pytest.register_assert_rewrite("tests.interop.every_client")

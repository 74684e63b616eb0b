"""Rotation of secrets: the previous secret stays valid beside the new one for an overlap."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

import msgspec

from gatepost.core.json_schema import EXPECTS, Json, boolean, integer, request_object

OVERLAP = timedelta(hours=24)


class Expiring(Protocol):
    """A secret that may end."""

    @property
    def expires_at(self) -> datetime | None: ...

    def is_active(self, at: datetime) -> bool: ...


S = TypeVar("S", bound=Expiring)


def rotate_secret_schema(longest: timedelta) -> Json:
    """Return the schema of the member `rotate_secret`."""
    most = int(longest.total_seconds())
    overlap = request_object({"overlap": integer(0, most, unit="seconds")}, "overlap")
    return {"anyOf": [boolean(), overlap], EXPECTS: f'true, false or {{"overlap": seconds}} from 0 to {most}'}


def overlap_of(rotate_secret: Any) -> timedelta:
    """Return the overlap that a checked `rotate_secret` requests."""
    return timedelta(seconds=rotate_secret["overlap"]) if isinstance(rotate_secret, dict) else OVERLAP


def rotated(secrets: Sequence[S], new: S, overlap: timedelta, at: datetime) -> list[S]:
    """Return the new secret, preceded by the latest one if that stays valid for the overlap. Older ones end now."""
    latest = [secret for secret in secrets if secret.is_active(at)][-1:] if overlap else []
    end = at + overlap
    return [*(_replace(secret, expires_at=min(secret.expires_at or end, end)) for secret in latest), new]


_replace: Any = msgspec.structs.replace  # of any struct that is Expiring, which no type can express

"""What every answer has in common, and the answer to a request that failed."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Answer(BaseModel):
    """An answer: every key is always present, null where unknown."""

    model_config = ConfigDict(alias_generator=to_camel)


class Problem(Answer):
    """What went wrong, and what to do (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    remedy: str
    category: str
    exit_code: int

"""A small language for the form of JSON values: what may stand where, as data.

One form answers four questions: which JSON Schema describes it (`schema`), what is wrong with a value (`faults`), which
form a member has (`member`), and what a value of our own becomes so that it fits (`conform`, which shortens and
leaves out, and raises `Unfit` only where nothing is left). It must not know any document.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from dromos.domain.errors import Fault
from dromos.domain.limits import (
    MAX_KEY,
    MAX_STRING,
    SAFE,
    VIOLATION,
    conform_free,
    free_faults,
    long_fault,
    shortened,
    too_long,
)
from dromos.domain.pointers import pointer
from dromos.domain.text import clean_text, moment_text

Schema = dict[str, Any]

JSON_TYPES = ["object", "array", "string", "number", "boolean"]
MOMENT = r"^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)$"
_MOMENT = re.compile(MOMENT, re.ASCII)
_FIRST, _LAST = datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)


class Unfit(ValueError):
    """Nothing of the value fits the form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form(ABC):
    """`about` is a sentence for whoever reads the schema."""

    nullable: bool = False
    about: str = ""

    @abstractmethod
    def _schema(self) -> Schema: ...

    @abstractmethod
    def _faults(self, value: Any, path: str, depth: int) -> Iterator[Fault]: ...

    @abstractmethod
    def _conform(self, value: Any, depth: int) -> Any: ...

    def schema(self) -> Schema:
        """The JSON Schema (2020-12) of the form."""
        made = self._schema()
        if self.nullable:
            if "enum" in made:
                made["enum"] = [*made["enum"], None]
            made["type"] = [*_listed(made["type"]), "null"]
        return {**made, "description": self.about} if self.about else made

    def faults(self, value: Any, path: str = "", depth: int = 1) -> Iterator[Fault]:
        """Everything wrong with a value that stands at `path`, on level `depth` of its document."""
        if value is None and self.nullable:
            return
        yield from self._faults(value, path, depth)

    def conform(self, value: Any, depth: int = 1) -> Any:
        """A copy of the value that fits: texts cleaned and shortened, unknown members left out. Raises `Unfit`."""
        if value is None and self.nullable:
            return None
        try:
            return self._conform(value, depth)
        except Unfit:
            if self.nullable:
                return None
            raise

    def nothing(self) -> Any:
        """What stands for a value that is not there. Raises `Unfit` where nothing can."""
        if self.nullable:
            return None
        raise Unfit

    def member(self, key: str) -> Form | None:
        """The form of what stands under `key`; None where nothing may."""
        return None

    @property
    def removable(self) -> bool:
        """True where members come and go."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Text(Form):
    choices: Sequence[str] = ()

    def _schema(self) -> Schema:
        if self.choices:
            return {"type": "string", "enum": list(self.choices)}
        return {"type": "string", "maxLength": MAX_STRING}

    def _faults(self, value: Any, path: str, depth: int) -> Iterator[Fault]:
        if not isinstance(value, str):
            yield _wrong(path, "text" if not self.choices else _one_of(self.choices), self.nullable)
        elif self.choices and value not in self.choices:
            yield _wrong(path, _one_of(self.choices), self.nullable)
        elif too_long(value):
            yield long_fault(path)

    def _conform(self, value: Any, depth: int) -> str:
        if not isinstance(value, str) or (self.choices and value not in self.choices):
            raise Unfit
        return shortened(clean_text(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment(Form):
    """A time as RFC 3339 text."""

    def _schema(self) -> Schema:
        return {"type": "string", "format": "date-time", "pattern": MOMENT}

    def _faults(self, value: Any, path: str, depth: int) -> Iterator[Fault]:
        if not _is_moment(value):
            yield _wrong(path, "a time such as 2026-11-29T13:46:04Z", self.nullable)

    def _conform(self, value: Any, depth: int) -> str:
        if isinstance(value, datetime) and value.tzinfo is not None:
            return moment_text(value)
        if not _is_moment(value):
            raise Unfit
        text: str = value
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Number(Form):
    whole: bool = False
    least: int | None = None

    def nothing(self) -> int | None:
        return None if self.nullable else 0

    def _schema(self) -> Schema:
        made: Schema = {"type": "integer" if self.whole else "number", "maximum": SAFE}
        return {**made, "minimum": self.least if self.least is not None else -SAFE}

    def _fits(self, value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if not math.isfinite(value) or (self.whole and value != int(value)):
            return False
        return abs(value) <= SAFE and (self.least is None or value >= self.least)

    def _faults(self, value: Any, path: str, depth: int) -> Iterator[Fault]:
        if not self._fits(value):
            bounds = f" from {self.least}" if self.least is not None else ""
            kind = "a whole number" if self.whole else "a number"
            yield _wrong(path, f"{kind}{bounds} to {SAFE}", self.nullable)

    def _conform(self, value: Any, depth: int) -> int | float:
        if self.whole and isinstance(value, float) and value.is_integer():
            value = int(value)
        if not self._fits(value):
            raise Unfit
        number: int | float = value
        return number


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag(Form):
    def _schema(self) -> Schema:
        return {"type": "boolean"}

    def _faults(self, value: Any, path: str, depth: int) -> Iterator[Fault]:
        if not isinstance(value, bool):
            yield _wrong(path, "true or false", self.nullable)

    def _conform(self, value: Any, depth: int) -> bool:
        if not isinstance(value, bool):
            raise Unfit
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Group(Form):
    """An object with these members. Those in `optional` may be missing and may be removed."""

    members: Mapping[str, Form]
    optional: frozenset[str] = frozenset()

    def member(self, key: str) -> Form | None:
        return self.members.get(key)

    def _schema(self) -> Schema:
        return {
            "type": "object",
            "properties": {name: form.schema() for name, form in self.members.items()},
            "required": [name for name in self.members if name not in self.optional],
            "additionalProperties": False,
        }

    def _faults(self, value: Any, path: str, depth: int) -> Iterator[Fault]:
        if not isinstance(value, dict):
            yield _wrong(path, "an object", self.nullable)
            return
        for name, form in self.members.items():
            if name in value:
                yield from form.faults(value[name], path + pointer(name), depth + 1)
            elif name not in self.optional:
                yield Fault(VIOLATION, path + pointer(name), "this member is missing; add it")
        for name in value:
            if name not in self.members:
                known = ", ".join(self.members)
                yield Fault(
                    VIOLATION, path + pointer(clean_text(str(name))), f"no such member; there are: {known}"
                )

    def _conform(self, value: Any, depth: int) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise Unfit
        made: dict[str, Any] = {}
        for name, form in self.members.items():
            if name in value:
                try:
                    made[name] = form.conform(value[name], depth + 1)
                    continue
                except Unfit:
                    pass
            if name not in self.optional:
                made[name] = form.nothing()
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Register(Form):
    """An object whose keys are ids that the writer chooses."""

    of: Form

    def member(self, key: str) -> Form | None:
        return self.of if 0 < len(key) <= MAX_KEY else None

    @property
    def removable(self) -> bool:
        return True

    def _schema(self) -> Schema:
        return {
            "type": "object",
            "propertyNames": {"minLength": 1, "maxLength": MAX_KEY},
            "additionalProperties": self.of.schema(),
        }

    def _faults(self, value: Any, path: str, depth: int) -> Iterator[Fault]:
        if not isinstance(value, dict):
            yield _wrong(path, "an object", self.nullable)
            return
        for key, item in value.items():
            place = path + pointer(key)
            if self.member(key) is None:
                yield Fault(VIOLATION, place, f"an id has 1 to {MAX_KEY} characters; take a shorter one")
            yield from self.of.faults(item, place, depth + 1)

    def _conform(self, value: Any, depth: int) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise Unfit
        made = {}
        for key, item in value.items():
            key = clean_text(str(key))
            if self.member(key) is None:
                continue
            try:
                made[key] = self.of.conform(item, depth + 1)
            except Unfit:
                continue
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Series(Form):
    """A list; of one that is longer than `most` the newest, at its end, stay."""

    of: Form
    most: int | None = None

    def member(self, key: str) -> Form | None:
        return self.of if key == "-" or (key.isascii() and key.isdigit()) else None

    @property
    def removable(self) -> bool:
        return True

    def _schema(self) -> Schema:
        made: Schema = {"type": "array", "items": self.of.schema()}
        return made if self.most is None else {**made, "maxItems": self.most}

    def _faults(self, value: Any, path: str, depth: int) -> Iterator[Fault]:
        if not isinstance(value, list):
            yield _wrong(path, "a list", self.nullable)
            return
        for index, item in enumerate(value):
            yield from self.of.faults(item, f"{path}/{index}", depth + 1)

    def _conform(self, value: Any, depth: int) -> list[Any]:
        if not isinstance(value, list | tuple):
            raise Unfit
        made = []
        for item in value if self.most is None else value[-self.most :]:
            try:
                made.append(self.of.conform(item, depth + 1))
            except Unfit:
                continue
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Free(Form):
    """Any JSON; or any JSON object, where `objects` says so."""

    objects: bool = False

    def member(self, key: str) -> Form | None:
        return ANY

    @property
    def removable(self) -> bool:
        return True

    def _schema(self) -> Schema:
        return {"type": "object"} if self.objects else {"type": JSON_TYPES}

    def _faults(self, value: Any, path: str, depth: int) -> Iterator[Fault]:
        if self.objects and not isinstance(value, dict):
            yield _wrong(path, "an object", self.nullable)
            return
        yield from free_faults(value, path, depth)

    def _conform(self, value: Any, depth: int) -> Any:
        if self.objects and not isinstance(value, Mapping):
            raise Unfit
        return conform_free(value, depth)


ANY = Free(nullable=True)


def _is_moment(value: Any) -> bool:
    """A day and an hour that there are, and for which every device's own zone has a date."""
    if not isinstance(value, str) or not _MOMENT.fullmatch(value):
        return False
    try:
        return _FIRST <= datetime.fromisoformat(value.upper()) <= _LAST
    except (ValueError, OverflowError):
        return False


def _listed(kind: str | list[str]) -> list[str]:
    return [kind] if isinstance(kind, str) else kind


def _wrong(path: str, wanted: str, nullable: bool) -> Fault:
    return Fault(VIOLATION, path, f"here stands {wanted}{' or null' if nullable else ''}; send that")


def _one_of(choices: Sequence[str]) -> str:
    return "one of " + ", ".join(choices)

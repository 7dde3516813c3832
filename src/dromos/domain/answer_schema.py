"""Whether an answer fits the JSON Schema (2020-12) that its question came with. Pure; it must never fetch anything.

Schemas come from agents and adapters. Regular expressions in them are shown to people but not carried out here: a
bad one could hold up the whole server, and the dialect is not Python's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from jsonschema.exceptions import (  # type: ignore[import-untyped]
    SchemaError,
    ValidationError,
    best_match,
)
from jsonschema.validators import extend  # type: ignore[import-untyped]
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from dromos.domain.errors import Fault

Schema = Mapping[str, Any]
_NOTHING_ELSE: Registry[Any] = Registry()


def _unchecked(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    return iter(())


def _but_with_patterns(keyword: str) -> Any:
    """Which properties are "additional" cannot be said where patterns name some of them."""
    checked = Draft202012Validator.VALIDATORS[keyword]

    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        return () if "patternProperties" in schema else checked(validator, value, instance, schema)

    return check


_Validator = extend(
    Draft202012Validator,
    {
        "pattern": _unchecked,
        "patternProperties": _unchecked,
        "additionalProperties": _but_with_patterns("additionalProperties"),
        "unevaluatedProperties": _but_with_patterns("unevaluatedProperties"),
    },
)


def schema_fault(schema: Any) -> str | None:
    """Why this is no usable JSON Schema; None where it is one."""
    if not isinstance(schema, Mapping):
        return "a JSON Schema is an object"
    try:
        _Validator.check_schema(schema)
        resolver = _NOTHING_ELSE.resolver_with_root(DRAFT202012.create_resource(schema))
        for reference in _references(schema):
            resolver.lookup(reference)
        next(iter(_validator(schema).iter_errors(None)), None)
    except SchemaError as error:
        return str(error.message)
    except (Unresolvable, RecursionError):
        return "its references lead nowhere; put every part into the schema itself"
    return None


def _references(part: Any) -> Iterator[str]:
    if isinstance(part, Mapping):
        for key, value in part.items():
            if key in ("$ref", "$dynamicRef") and isinstance(value, str):
                yield value
            else:
                yield from _references(value)
    elif isinstance(part, list):
        for item in part:
            yield from _references(item)


def answer_faults(schema: Schema, answer: Any, root: str = "/answer") -> list[Fault]:
    """What is wrong with `answer`, each with its place; [] where it fits."""
    try:
        errors = sorted(_validator(schema).iter_errors(answer), key=lambda error: list(map(str, error.path)))
    except (Unresolvable, RecursionError):
        return [Fault("schema_violation", root, "the question's schema cannot be followed this far")]
    return [_fault(error, root) for error in errors[:20]]


def _validator(schema: Schema) -> Any:
    return _Validator(schema, registry=_NOTHING_ELSE)


def _fault(error: ValidationError, root: str) -> Fault:
    """Of a value that fits none of several forms the form it comes nearest to tells more."""
    nearest = best_match([error]) or error
    place = "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in nearest.absolute_path)
    return Fault("schema_violation", root + place, str(nearest.message)[:500])

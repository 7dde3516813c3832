"""Random changes of a document: patches that fit it, some that do not, and text with characters of every width."""

from __future__ import annotations

import random
from typing import Any

from dromos.domain.pointers import pointer

Json = dict[str, Any]
WORDS = ["a", "é", "🏛", "quick", "\u202e", "x" * 30, "\n", '"', "\\", "中", "\x1f", ""]
IDS = ["a", "b", "7", "0", "x/y", "~", "__proto__", "constructor"]


class Changes:
    """Made for the content as it is at each call."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._steps = 0

    def words(self) -> str:
        return "".join(self._random.choice(WORDS) for _ in range(self._random.randint(1, 4)))

    def patch(self, content: Json) -> list[Json]:
        """One to five operations, each made for the content before the patch: later ones may not fit any more."""
        return [self._operation(content) for _ in range(self._random.randint(1, 5))]

    def _operation(self, content: Json) -> Json:
        choose = self._random
        kinds = [self._value, self._usage, self._entry, self._free, self._plan, self._step, self._wrong]
        return choose.choices(kinds, [3, 2, 4, 3, 4, 4, 0.3])[0](content)

    def _value(self, content: Json) -> Json:
        path = self._random.choice(["/line", "/model", "/current", "/context", "/stall"])
        value: Any = self.words() if path in ("/line", "/model") else None
        if path == "/current" and self._random.random() < 0.7:
            value = {"kind": "tool", "name": self.words(), "progress": {"value": self._number(), "total": 10}}
        if path == "/context":
            value = {"used": self._random.randint(0, 999), "limit": None, "percent": self._number()}
        return {"op": self._random.choice(["add", "replace"]), "path": path, "value": value}

    def _usage(self, content: Json) -> Json:
        name = self._random.choice(["input", "output", "tool_calls"])
        return {"op": "replace", "path": f"/usage/{name}", "value": self._random.randint(0, 10**6)}

    def _entry(self, content: Json) -> Json:
        table, name = self._random.choice(["subagents", "background"]), self._random.choice(IDS)
        known = name in content[table]
        if known and self._random.random() < 0.3:
            return {"op": "remove", "path": pointer(table, name)}
        if known and self._random.random() < 0.6:
            return {"op": "add", "path": pointer(table, name, "status"), "value": self.words()}
        return {"op": "add", "path": pointer(table, name), "value": {"title": self.words()}}

    def _free(self, content: Json) -> Json:
        name, where = self._random.choice(IDS), content["workflows"]
        if not isinstance(where.get(name), dict):
            return {"op": "add", "path": pointer("workflows", name), "value": {"list": [1, [2]], "k": {}}}
        path, node = ["workflows", name], where[name]
        while True:
            inner = [key for key, value in self._items(node) if isinstance(value, dict | list)]
            if not inner or self._random.random() < 0.4:
                break
            key = self._random.choice(inner)
            path.append(str(key))
            node = node[key]
        return self._inside(path, node)

    def _inside(self, path: list[str], node: Any) -> Json:
        if isinstance(node, list):
            places = [str(index) for index in range(len(node) + 1)]
            if node and self._random.random() < 0.5:
                kind = self._random.choice(["remove", "replace"])
                place = self._random.choice(places[:-1])
            else:
                kind, place = "add", self._random.choice([*places, "-"])
        else:
            place = self._random.choice(IDS)
            kind = self._random.choice(["remove", "replace", "add"] if place in node else ["add"])
            if len(path) == 2 and place in ("list", "k"):
                kind = "add"
        operation = {"op": kind, "path": pointer(*path, place)}
        if kind != "remove":
            operation["value"] = self._random.choice([1, True, None, [], {}, [3, {"a": 1}], self.words()])
        return operation

    def _plan(self, content: Json) -> Json:
        plan, choose = content["plan"], self._random
        if plan and choose.random() < 0.6:
            index = choose.randrange(len(plan))
            if choose.random() < 0.4:
                return {"op": "remove", "path": f"/plan/{index}"}
            status = choose.choice(["active", "done"])
            return {"op": "replace", "path": f"/plan/{index}/status", "value": status}
        item = {"id": self.words(), "title": self.words(), "status": "pending"}
        place = choose.choice(["-", str(choose.randint(0, len(plan)))])
        return {"op": "add", "path": f"/plan/{place}", "value": item}

    def _step(self, content: Json) -> Json:
        steps, choose = content["steps"], self._random
        if steps and choose.random() < 0.5:
            index = choose.randrange(len(steps))
            return {"op": "add", "path": f"/steps/{index}/ms", "value": choose.randint(0, 9999)}
        if len(steps) > 40:
            return {"op": "remove", "path": "/steps/0"}
        self._steps += 1
        step = {"id": f"s{self._steps}", "kind": "tool", "name": self.words(), "status": "running"}
        return {"op": "add", "path": "/steps/-", "value": step}

    def _wrong(self, content: Json) -> Json:
        return self._random.choice(
            [
                {"op": "replace", "path": "/status", "value": "completed"},
                {"op": "move", "path": "/line", "from": "/model"},
                {"op": "replace", "path": "/plan/99/status", "value": "done"},
                {"op": "add", "path": "/usage/input", "value": -1},
            ]
        )

    def _number(self) -> float | int:
        return self._random.choice([0, 1, 9.5, 0.1, 12.25, 2**53 - 1])

    @staticmethod
    def _items(node: Any) -> list[tuple[Any, Any]]:
        return list(node.items()) if isinstance(node, dict) else list(enumerate(node))

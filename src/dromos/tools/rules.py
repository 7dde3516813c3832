"""What is in force for a tool: whether it may be called unasked, and how it may be repeated. Pure.

Configuration comes first, a rule for the tool itself before one for a pattern. What a server says of its own tools
(annotations) can only make the policy stricter, unless configuration trusts that server. It must not know servers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from dromos.domain.effects import ReplayClass, ToolPolicy, ToolRule, replay_class
from dromos.ports.tool import ToolAnnotations


@dataclass(frozen=True, slots=True)
class Rule:
    """What configuration says of the tools that a pattern names; None: nothing."""

    policy: ToolPolicy | None = None
    replay: ReplayClass | None = None


@dataclass(frozen=True, slots=True)
class ToolRules:
    """`policy` is that of a tool that nothing else is said of. `trusted`: servers whose annotations count, `*` all.

    `expires_after`: seconds until an approval that nobody gave is settled by `on_timeout` (expire | deny); None: never.
    """

    policy: ToolPolicy = ToolPolicy.AUTO
    rules: Mapping[str, Rule] = field(default_factory=dict)
    trusted: frozenset[str] = frozenset()
    expires_after: float | None = None
    on_timeout: str = "deny"

    def of(
        self,
        tool: str,
        source: str,
        said: ToolAnnotations,
        own_policy: ToolPolicy | None = None,
        own_replay: ReplayClass | None = None,
    ) -> ToolRule:
        """`own_policy` and `own_replay`: what the agent's author says, for where no rule names the tool."""
        trusted = source in self.trusted or "*" in self.trusted
        named = [rule for pattern, rule in self._by_precision() if fnmatchcase(tool, pattern)]
        policy = next((rule.policy for rule in named if rule.policy is not None), None)
        replay = next((rule.replay for rule in named if rule.replay is not None), None)
        policy, replay = policy or own_policy, replay or own_replay
        if replay is None:
            replay = replay_class(said.read_only, said.idempotent, trusted=trusted)
        if policy is None:
            policy = self._usual_policy(said, replay)
        return ToolRule(policy, replay)

    def _usual_policy(self, said: ToolAnnotations, replay: ReplayClass) -> ToolPolicy:
        """A tool that is known to read only needs no leave; one that says itself that it destroys does."""
        if replay is ReplayClass.READ and self.policy is ToolPolicy.ASK:
            return ToolPolicy.AUTO
        if said.destructive and replay is not ReplayClass.READ and self.policy is ToolPolicy.AUTO:
            return ToolPolicy.ASK
        return self.policy

    def _by_precision(self) -> list[tuple[str, Rule]]:
        """Exact names first, then the patterns with the most letters."""
        return sorted(
            self.rules.items(), key=lambda one: (any(sign in one[0] for sign in "*?["), -len(one[0]))
        )

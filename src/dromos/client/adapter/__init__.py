"""Drive runs of Dromos from a program of your own: claim them, show what happens in their box, answer.

    async with AdapterSession("http://127.0.0.1:8321", agents=["plain"], slots=4) as session:
        await session.serve(work)

    async def work(run):
        run.box.line = "thinking"
        await run.say("Hello ")
        return Answer("Hello world")

It must not know the server's inside: only its addresses and JSON.
"""

from dromos.client.adapter.box import Box
from dromos.client.adapter.effects import Effect, EffectFailed, OutcomeUnknown
from dromos.client.adapter.run import AdapterRun
from dromos.client.adapter.session import AdapterSession, serve
from dromos.client.adapter.steps import Current, Progress, Step
from dromos.client.adapter.values import AgentError, Answer, Decision, Parked, Question, Steer, Stop
from dromos.domain.errors import LeaseLost

__all__ = [
    "AdapterRun",
    "AdapterSession",
    "AgentError",
    "Answer",
    "Box",
    "Current",
    "Decision",
    "Effect",
    "EffectFailed",
    "LeaseLost",
    "OutcomeUnknown",
    "Parked",
    "Progress",
    "Question",
    "Steer",
    "Step",
    "Stop",
    "serve",
]

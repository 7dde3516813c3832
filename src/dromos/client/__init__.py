"""The Python client: the same HTTP that every device speaks, with safe retries and a stream that comes back.

    async with Client("http://127.0.0.1:8321") as client:
        conversation = await client.create_conversation()
        posted = await client.post_message(conversation["id"], "Name one prime number.")
        async with client.stream(focus=conversation["id"]) as events:
            async for event in events:
                ...

It must not know the server's inside: only addresses, JSON and events.
"""

from dromos.client.client import Client
from dromos.client.errors import (
    ApiError,
    ClientError,
    Conflict,
    Denied,
    InvalidRequest,
    NotFound,
    ProtocolError,
    ServerFault,
    ServerUnreachable,
)
from dromos.client.run_view import RunView
from dromos.client.stream import Event, EventStream, Link

__all__ = [
    "ApiError",
    "Client",
    "ClientError",
    "Conflict",
    "Denied",
    "Event",
    "EventStream",
    "InvalidRequest",
    "Link",
    "NotFound",
    "ProtocolError",
    "RunView",
    "ServerFault",
    "ServerUnreachable",
]

"""What the outside sees: the JSON shapes of the HTTP surface and of the stream, shared by server and client."""

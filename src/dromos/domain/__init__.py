"""The rules of a run: pure values and decisions.

Nothing here reads a clock, makes a random number, touches a file or a socket, or knows a framework. Time and
ids are handed in; what comes out is a new value or a refusal.
"""

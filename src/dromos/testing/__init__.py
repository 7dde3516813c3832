"""Test kit, shipped with the package: real parts that behave badly on command, and suites for adapters.

`model_server` and `tools_server` run as programs; `processes` starts and signals real servers; `waiting`
waits with a bound. It must not be imported by the server itself.
"""

"""The HTTP doors: requests in, answers and streams out.

A door translates. It decodes what a client sends, calls the lifecycle, encodes what comes back; it decides nothing
about runs and knows no table, no database, no agent framework. `native` and `lab` are two protocols over the same
lifecycle and do not know each other.
"""

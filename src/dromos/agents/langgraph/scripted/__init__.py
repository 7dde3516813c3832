"""A model that obeys the person's message, for logic, tests and demonstrations; it must not know runs or
stores.

`directives` is the language, `engine` the behaviour, `chat_model` the LangChain face. The HTTP face is
`dromos.testing.model_server`. Import the module you need: `engine` loads no LangChain.
"""

"""The doors of agents that run outside of this process: `/v1/adapter`."""

"""The door for work: claims runs and carries out attempts. It meets the api only in the store."""

from dromos.worker.service import Worker

__all__ = ["Worker"]
